"""What `graphdbg compile` cannot do is a sentence and a code, said before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.store import Run
from graphdbg.toolkit.compile_fx.showing import showing

FORWARD, JOINT, INFERENCE = "0_0/forward", "0_0/joint", "1_0/inference"

REFUSED = [
    (FORWARD, ["--until", "lowr"], "no stage is called 'lowr'", "Did you mean 'lower'?"),
    (FORWARD, ["--diff", "postgrad"], "no stage is called 'postgrad'", "Did you mean 'post_grad'?"),
    (FORWARD, ["--until", "joint"], "was recorded after joint", "Try graphdbg compile {run}/0_0/joint --until joint."),
    (FORWARD, ["--diff", "joint"], "was recorded after joint", "Try graphdbg compile {run}/0_0/joint --diff joint."),
    (FORWARD, ["--skip", "joint"], "was recorded after joint", "Try graphdbg compile {run}/0_0/joint --skip joint."),
    (
        FORWARD,
        ["--skip", "joint.remove_noop_ops"],
        "was recorded after joint",
        "{run}/0_0/joint --skip joint.remove_noop_ops.",
    ),
    (
        FORWARD,
        ["--until", "pre_grad"],
        "was recorded after pre_grad",
        "Try graphdbg compile {run}/0_0/dynamo --until pre_grad.",
    ),
    (
        "0_0/post_grad_forward",
        ["--diff", "post_grad"],
        "was recorded after post_grad",
        "{run}/0_0/forward --diff post_grad.",
    ),
    (
        FORWARD,
        ["--diff", "lower"],
        "--diff lower has nothing to compare: it makes no graph",
        "pre_grad, joint, post_grad",
    ),
    (
        JOINT,
        ["--diff", "partition"],
        "--diff partition has nothing to compare: it makes two graphs of one",
        "--diff takes",
    ),
    (
        JOINT,
        ["--diff", "post_grad", "--until", "joint"],
        "--diff post_grad needs post_grad to run",
        "--until joint stops before",
    ),
    (INFERENCE, ["--until", "partition"], "is not partitioned: it is an inference graph", ""),
    (
        FORWARD,
        ["--skip", "lower"],
        "cannot skip lower: the scheduler takes the loops",
        "--until post_grad stops before it.",
    ),
    (
        FORWARD,
        ["--skip", "remove_noop"],
        "no pass or stage is called 'remove_noop'",
        "Did you mean remove_noop_ops (joint,",
    ),
    (
        FORWARD,
        ["--skip", "stable_sort"],
        "post_grad.stable_sort cannot be skipped: passes before it leave nodes ahead",
        "",
    ),
    (FORWARD, ["--emit", "ptxx"], "--emit knows no 'ptxx': it takes source, ttir,", "Did you mean ptx?"),
    (FORWARD, ["--emit", "cubin"], "--emit cubin prints nothing: machine code is binary", "Write it with -o DIR."),
    (FORWARD, ["--emit", "code"], "--emit knows no 'code'", "it takes source"),
    (FORWARD, ["--target", "cuda:0"], "'cuda:0' is not a target", "cuda:80 (A100)"),
    (FORWARD, ["--target", "cuda:91"], "no GPU with compute capability 9.1 is known", "cuda:90 (H100)"),
    (
        FORWARD,
        ["--target", "gfx942"],
        "'gfx942' is not a target: code is written for NVIDIA GPUs only",
        "cuda:90 (H100)",
    ),
    (
        FORWARD,
        ["--target", "cuda:90", "--device", "cpu"],
        "--device and a target are two different things",
        "Leave one",
    ),
    (FORWARD, ["--kernel", "relu"], "--kernel needs --emit", "ptx"),
    (FORWARD, ["--emit", "ptx", "--until", "lower"], "--emit ptx needs the code", "--until lower stops before codegen"),
    (
        FORWARD,
        ["--emit", "source", "--until", "lower"],
        "--emit source needs the code",
        "--until lower stops before codegen",
    ),
    (FORWARD, ["--package", "model.so"], "cannot write a package to model.so: torch loads only files", ".pt2"),
    (FORWARD, ["--package", "m.pt2", "--until", "lower"], "--package runs every stage as it is", "Leave --until out."),
    ("0_0/nothing", [], "0_0/nothing", ""),
]


@pytest.mark.parametrize(
    ("graph", "options", "what", "fix"), REFUSED, ids=lambda item: " ".join(item) if isinstance(item, list) else None
)
def test_a_mistake_is_told_before_anything_is_compiled(
    graph: str,
    options: list[str],
    what: str,
    fix: str,
    recorded: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(recorded.path.parent)
    monkeypatch.setattr(showing, "opened", lambda *given: pytest.fail("it began to compile"))
    assert command(["compile", f"run/{graph}", *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    assert what in err and fix.format(run="run") in err


def test_an_existing_folder_is_refused_first(
    recorded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(showing, "opened", lambda *given: pytest.fail("it began to compile"))
    assert command(["compile", f"{recorded.path}/{FORWARD}", "-o", str(tmp_path)]) == 2
    assert "it exists already. Choose another name or delete it." in capsys.readouterr().err


def test_an_existing_package_is_refused_first(
    recorded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(showing, "opened", lambda *given: pytest.fail("it began to compile"))
    (tmp_path / "model.pt2").write_text("mine")
    assert command(["compile", f"{recorded.path}/{FORWARD}", "--package", str(tmp_path / "model.pt2")]) == 2
    assert "is there already: nothing is overwritten" in capsys.readouterr().err
    assert (tmp_path / "model.pt2").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_refused_first(
    recorded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(showing, "opened", lambda *given: pytest.fail("it began to compile"))
    (tmp_path / "file").write_text("")
    assert command(["compile", f"{recorded.path}/{FORWARD}", "-o", str(tmp_path / "file" / "out")]) == 3
    assert "cannot write" in capsys.readouterr().err


def test_of_a_run_the_worst_graph_known_is_compiled(recorded: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", str(recorded.path), "--until", "pre_grad"]) == 0
    assert "taking 0_0/dynamo: no graph of the run is known to fail" in capsys.readouterr().err


def test_the_passes_are_listed(recorded: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compile", f"{recorded.path}/{FORWARD}", "--skip", "list"]) == 0
    out = capsys.readouterr().out
    assert "post_grad.remove_noop_ops: " in out and "cannot be skipped" in out
