"""The demo's own logic, with stand-ins for its steps: it picks the failing graph and stops with a sentence where a step
fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from graphdbg.cli import run as graphdbg
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.writer import RunWriter
from graphdbg.minifier.demo import Demo, DemoFailedError, telling_lines

from .cases import relu_record


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    """A demo with a recorded run of two graphs in it."""
    result = Demo(tmp_path / "demo", narrate=lambda text: None)
    run = RunWriter.create(result.folder / "run", RunRecord(format=FORMAT, command=["train_gpt.py"]))
    process = run.process("main")
    for stage in ("dynamo", "forward", "backward"):
        record = relu_record(stage=stage)
        process.save_graph(record, process.tensors)
        process.journal.event("captured", graph=record.id)
        process.journal.event("compiled", graph=record.id)
    return result


def answers(demo: Demo, kinds: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `triage` answer with a kind of failure per graph."""
    graphs = [
        {"id": name, "verdict": kind or "ok", "signature": {"kind": kind} if kind else None}
        for name, kind in kinds.items()
    ]
    document = json.dumps({"graphs": graphs, "summary": "a sentence"})
    monkeypatch.setattr(demo, "step", lambda arguments, codes=(0,), **_: document)


def test_the_script_is_copied_and_the_folder_is_new(tmp_path: Path) -> None:
    Demo(tmp_path / "demo", narrate=lambda text: None)
    assert (tmp_path / "demo" / "train_residual.py").exists()
    assert graphdbg(["demo", "-o", str(tmp_path / "demo")]) == 2


def test_the_failing_graph_that_inductor_compiles_is_taken(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(demo, {"0_0/dynamo": "accuracy", "0_0/backward": "accuracy", "0_0/forward": None}, monkeypatch)
    assert demo.find("run", "accuracy") == "0_0/backward"


def test_a_failure_of_another_kind_is_not_the_bug(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(demo, {"0_0/forward": "crash", "0_0/backward": None}, monkeypatch)
    with pytest.raises(DemoFailedError, match="accuracy bug was not found"):
        demo.find("run", "accuracy")


def test_a_failing_step_is_told_with_its_command(demo: Demo) -> None:
    with pytest.raises(
        DemoFailedError, match=r"step `graphdbg show nothing` failed: exit code 2 instead of 0"
    ) as caught:
        demo.step(["show", "nothing"], terse=True)
    assert caught.value.exit_code == 1
    assert "nothing is neither a run" in str(caught.value)


def test_a_step_returns_its_data(demo: Demo) -> None:
    messages: list[str] = []
    demo.narrate = messages.append
    assert [row["id"] for row in json.loads(demo.step(["ls", "run", "--json"]))["graphs"]] == [
        "0_0/dynamo",
        "0_0/forward",
        "0_0/backward",
    ]
    assert messages == ["\n$ graphdbg ls run --json"]


def test_a_step_that_says_nothing_is_said_to_be_at_work(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdbg.minifier.demo.BEAT_S", 0.02)
    messages: list[str] = []
    demo.narrate = messages.append
    demo.step(["ls", "run"], show=True)
    assert "   ... ls is at work, 0 s" in messages
    assert any("forward+backward" in line for line in messages)


def test_triage_is_given_the_time_that_this_machine_needs(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    graph = {"id": "0_0/forward", "verdict": "wrong", "signature": {"kind": "accuracy"}}
    document = json.dumps({"graphs": [graph], "summary": ""})

    def step(arguments: list[str], codes: object = (0,), **_: object) -> str:
        asked.append(arguments)
        return document

    monkeypatch.setattr(demo, "step", step)
    for demo.recorded_s in (10.0, 400.0):
        demo.find("run", "accuracy")
    assert asked == [["triage", "run", "--json"], ["triage", "run", "--json", "--max-time", "4000", "--limit", "4000"]]


def test_the_noise_of_compilers_is_left_out() -> None:
    lines = [
        "x.h:1:2: warning: overflow",
        "  243 | 0xff",
        "main.cpp:28:38: error: ‘compile’ was not",
        "Set TORCHDYNAMO_VERBOSE=1",
    ]
    lines += ["torch._inductor.exc.InductorError: CppCompileError: C++", "graphdbg: recorded", "  graphdbg ls run"]
    assert telling_lines("\n".join(lines)) == [
        "main.cpp:28:38: error: ‘compile’ was not",
        "torch._inductor.exc.InductorError: CppCompileError: C++",
        "graphdbg: recorded",
        "  graphdbg ls run",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_residual", "train_gpt", "train_convnet"])
def test_examples_train_and_repeat_themselves(name: str, tmp_path: Path) -> None:
    import subprocess

    from graphdbg.examples import path_of

    command = [sys.executable, str(path_of(name)), "--no-compile", "--steps", "4"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout for _ in range(2)
    )
    assert first == second
    losses = [float(line.split()[-1]) for line in first.splitlines()]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert "graphdbg" not in path_of(name).read_text().replace("`graphdbg demo`", "")
