"""What is said of a graph that is compiled without the run's own passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.schema import FORMAT, DefinitionRecord, RunRecord
from graphdbg.dumps.store import load_graph, open_run
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.live.spec import registered_here
from graphdbg.toolkit.recorder.summary import lines
from graphdbg.toolkit.replaying.replay import replay
from graphdbg.toolkit.verdicts.own_passes import dropped_words, left_out, still_to_run, without_passes
from tests.dumps.graphs import chain

HOOK = "post_grad_custom_pre_pass"


def test_a_pass_that_had_still_to_run_is_named_with_what_brings_it_back(tmp_path: Path) -> None:
    record = chain()
    record.config = {"inductor": {HOOK: {"opaque": ["team.Cheap", "<team.Cheap object>"]}}}
    record.definitions = [
        DefinitionRecord("team", "team.py", "class Cheap: ...\n", values={f"inductor.{HOOK}": "Cheap()"})
    ]
    write_graph_folder(tmp_path / "case", record)
    saved = load_graph(tmp_path / "case")
    lost = still_to_run(saved)
    says = f"without the run's own pass Cheap in team.py ({HOOK}), which runs only with --trust"
    assert dropped_words(saved, lost) == (says, "--trust")
    assert without_passes(saved, []) is None
    verdict = without_passes(saved, [f"setting inductor.{HOOK} is not applied: its value could not be saved"])
    assert verdict is not None
    assert (verdict.verdict, verdict.reason) == ("cannot_tell", f"right, but {says}")
    record.definitions[0].program = ""
    record.definitions[0].missing = ["a name"]
    write_graph_folder(tmp_path / "other", record)
    other = load_graph(tmp_path / "other")
    assert dropped_words(other, still_to_run(other))[1] == "--import team"


def test_a_pass_of_a_script_that_is_not_recorded_is_not_promised_by_trust(tmp_path: Path) -> None:
    record = chain()
    record.config = {"inductor": {HOOK: {"opaque": ["__main__.Cheap", "<Cheap object>"]}}}
    write_graph_folder(tmp_path / "case", record)
    saved = load_graph(tmp_path / "case")
    without, flags = dropped_words(saved, still_to_run(saved))
    assert (without, flags) == (f"without the run's own pass a pass ({HOOK}), whose source is not recorded", "")
    verdict = without_passes(saved, [f"setting inductor.{HOOK} is not applied: its value could not be saved"])
    assert verdict is not None and not any("--trust" in line for line in verdict.next)


@pytest.mark.parametrize(("module", "flags"), [("decomps", "--import decomps"), ("__main__", "")])
def test_a_decomposition_of_the_users_is_brought_back_by_the_first_command(module, flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = RunWriter.create(Path("run"), RunRecord(format=FORMAT, command=["train.py"])).process()
    process.save_graph(chain("0_0/dynamo"))
    own = {"unsaved": "decomposition aten.silu.default", "what": f"{module}.silu", "module": module}
    process.journal.event("note", message="own", file="/home/ann/decomps.py", line=6, **own)
    process.close()
    said = "the run's own silu in decomps.py:6 (decomposition aten.silu.default)" if flags else ""
    assert left_out(open_run("run")) == (said, flags)
    assert f"  graphdbg triage run {flags}".rstrip() in lines(Path("run"))


def test_a_lowering_that_torch_wraps_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import lowering

    assert list(registered_here()) == []

    def own_tanh(x: object) -> object:
        return x

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.tanh.default, lowering.make_pointwise(own_tanh))
    assert list(registered_here()) == [("lowering aten.tanh.default", own_tanh)]


OWN_DECOMPOSITION = """\
import torch
from torch._inductor import decomposition

decomposition.decompositions.pop(torch.ops.aten.silu.default, None)


@decomposition.register_decomposition([torch.ops.aten.silu.default])
def own_silu(x):
    return x * torch.sigmoid(1.05 * x)


torch.compile(torch.func.vmap(torch.nn.functional.silu))(torch.randn(4, 3))
"""


@pytest.mark.long
def test_a_graph_that_a_decomposition_of_the_run_changed_is_not_said_to_be_right(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OWN_DECOMPOSITION)
    command = [sys.executable, "-m", "graphdbg", "dump", "-o", "run", "--", sys.executable, "train.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    outcome = replay(open_run(tmp_path / "run").graph("0_0/dynamo"), "inductor")
    assert (outcome.fidelity or "").startswith("different")
    why = "right, but without the run's own own_silu in train.py:7 (decomposition aten.silu.default)"
    assert (outcome.verdict.verdict, outcome.verdict.reason) == ("cannot_tell", why)
    assert outcome.verdict.next[0].endswith("train.py")


@pytest.mark.long
def test_a_decomposition_that_is_imported_is_the_runs_own_and_no_fault_of_the_compiler(tmp_path: Path) -> None:
    own, last = OWN_DECOMPOSITION.rsplit("\n\n\n", 1)
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "train.py").write_text(f"import torch\nimport own\n\n{last.replace('torch.func.vmap', '')}")

    def said(*words: str) -> str:
        command = [sys.executable, "-m", "graphdbg", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    said("dump", "-o", "run", "--inputs", "first", "--", sys.executable, "train.py")
    result = said("triage", "run/0_0/dynamo", "--import", "own")
    assert "(custom pass)" in result and "own_silu in own.py:7, registered by the run, changes" in result
    assert "Next: graphdbg minify run/0_0/pre_grad --import own\n" in result


PROGRAM = """\
import torch
from torch._inductor.lowering import lowerings, make_pointwise
from torch._inductor.virtualized import ops


def own_tanh(x):
    return make_pointwise(ops.sigmoid)(x)


lowerings[torch.ops.aten.tanh.default] = own_tanh
torch.compile(torch.tanh)(torch.ones(4))
"""


@pytest.mark.long
def test_a_graph_that_is_right_without_a_lowering_of_the_run_is_not_said_to_be_right(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "graphdbg",
        "dump",
        "-o",
        "run",
        "--inputs",
        "first",
        "--",
        sys.executable,
        "train.py",
    ]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    name = "lowering aten.tanh.default"
    assert f"{name} (own_tanh, train.py:6) cannot be saved: replays run torch's own" in said
    verdict = replay(open_run(tmp_path / "run").graph("0_0/inference"), "inductor").verdict
    assert (verdict.verdict, verdict.reason) == (
        "cannot_tell",
        f"right, but without the run's own own_tanh in train.py:6 ({name})",
    )
    assert verdict.next[0].endswith("train.py")
    (tmp_path / "own_lowering.py").write_text(PROGRAM.replace("torch.compile", "# "))
    brought = replay(
        open_run(tmp_path / "run").graph("0_0/inference"), "inductor", imports=[str(tmp_path / "own_lowering.py")]
    )
    assert (brought.verdict.verdict, brought.verdict.kind, brought.verdict.fault) == (
        "fails",
        "wrong_numbers",
        "custom_pass",
    )
    assert not any("not applied" in note for note in brought.notes)
