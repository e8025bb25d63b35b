"""Held inputs: the last ones, and those of the step that went wrong, of real training runs that end in all sorts of
ways."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphdbg
from graphdbg.dumps import held
from graphdbg.toolkit.recorder.hold import Hold

pytestmark = pytest.mark.long  # all share one recording

SCRIPTS = Path(__file__).parent / "scripts"
NAN = str(SCRIPTS / "nan.py")
AOT = {"BACKEND": "aot_eager"}


def _notes(done, key):
    lines = [line for path in done.run.glob("*/journal.jsonl") for line in path.read_text().splitlines()]
    return [note for note in map(json.loads, lines) if key in note]


def _kept(done):
    return {(note["graph"], note["execution"]) for note in _notes(done, "kept")}


@pytest.fixture(scope="module")
def plain(runner):
    return runner.script("nan.py", "backward")


@pytest.fixture(scope="module")
def backward(runner, plain):
    """Recorded with caches that the plain run has warmed, which must not hide a graph."""
    return runner.dump("backward", "--when", "nan", "--", NAN, "backward")


def test_a_nan_at_step_37_leaves_a_forward_and_a_backward_that_give_it(plain, backward):
    assert backward.code == 0, backward.stderr
    assert backward.stdout == plain.stdout
    assert _kept(backward) == {("0_0/dynamo", 37), ("0_0/forward", 37), ("0_0/backward", 37)}
    assert (
        "NaN first in 0_0/backward (outputs" in backward.stderr
        and "execution 37, step 37; its inputs and" in backward.stderr
    )
    run = graphdbg.open_run(backward.run)
    seen = run.graph("0_0/forward").inputs_record
    assert (seen.execution, seen.step, seen.reason) == (37, 37, "nan")
    outcome = graphdbg.replay(run.graph("0_0/backward"))
    assert any(torch.isnan(output).any() for output in outcome.outputs if output is not None)
    assert outcome.nan == outcome.eager_nan != []
    assert (outcome.verdict.kind, outcome.verdict.fault) == ("nan", "model")


def test_the_kept_forward_is_the_one_of_that_step(backward):
    inputs = {node.name: value for node, value in _named_inputs(graphdbg.open_run(backward.run).graph("0_0/forward"))}
    gates = [value for value in inputs.values() if tuple(value.shape) == (16, 1)]
    assert [int((gate == 0).sum()) for gate in gates] == [1]


def _named_inputs(saved):
    nodes = [node for node in saved.record.graph.nodes if node.op == "placeholder"]
    return zip(nodes, saved.inputs(), strict=True)


@pytest.mark.slow
def test_the_report_of_a_replay_says_whose_nan_it_is(runner):
    done = runner.dump("forward", "--when", "nan", "--", NAN, "forward", **AOT)
    assert "NaN first in 0_0/forward (outputs" in done.stderr, done.stderr
    assert _kept(done) >= {("0_0/forward", 37), ("0_0/backward", 37)}
    reported = runner.python("-m", "graphdbg", "replay", "--rung", "nop", "forward/0_0/forward").stdout.decode()
    assert (
        "nan        NaN in " in reported
        and "NaN in output" not in reported
        and "eager gives NaN too, so the compiler is not at fault" in reported
    )


@pytest.mark.slow
def test_usual_nan_and_infinite_masks_hide_nothing(runner):
    done = runner.dump("padded", "--when", "nan", "--", NAN, "padded", **AOT)
    results = [(note["execution"], note["graph"]) for note in _notes(done, "found")]
    assert results == [(1, "0_0/forward"), (37, "0_0/forward")]
    folder = graphdbg.open_run(done.run).graph("0_0/backward").path
    assert {path.name.removesuffix(".gz") for path in folder.glob("inputs*")} == {
        "inputs.json",
        "inputs.1.json",
        "inputs.37.json",
    }
    assert (
        graphdbg.open_run(done.run).graph("0_0/backward").inputs_record.execution == 1
    )  # of the first that went wrong


@pytest.mark.slow
def test_no_nan_no_finding_and_too_large_inputs_are_told(runner):
    plain = runner.script("nan.py", "clean", **AOT)
    done = runner.dump(
        "clean", "--when", "nan,error", "--inputs", "last", "--held-limit", "12K", "--", NAN, "clean", **AOT
    )
    assert (done.code, done.stdout) == (0, plain.stdout)
    assert not _notes(done, "found")
    assert "are not held: they take" in done.stderr
    run = graphdbg.open_run(done.run)
    policies = {saved.inputs_record.policy for saved in run.graphs() if saved.inputs_record is not None}
    assert policies == {"index"} or policies == {"index", "last"}
    assert "index" in policies
    assert not list(done.run.glob("*/held"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "graph", "execution", "text"),
    [("tangent", "0_0/backward", 37, "with tangents_1"), ("optimizer", "0_0/forward", 38, "parameter L['self']")],
)
def test_a_nan_from_outside_compiled_code_is_said_to_be_that(runner, way, graph, execution, text):
    done = runner.dump(way, "--when", "nan", "--", NAN, way, **AOT)
    assert [(note["graph"], note["execution"]) for note in _notes(done, "found")] == [(graph, execution)]
    assert "it came in from outside compiled code" in done.stderr and text in done.stderr, done.stderr


@pytest.mark.parametrize("wrapped", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_last_inputs_survive_kill_9(runner, wrapped, capsys):
    if wrapped:
        done = runner.dump("killed", "--inputs", "last", "--", NAN, "kill", **AOT)
        assert not list(done.run.glob("*/held"))
    else:
        done = runner.python(NAN, "kill", GRAPHDBG="alone", GRAPHDBG_OPTIONS='{"inputs": "last"}', **AOT)
        done.run = runner.folder / "alone"
        assert list(done.run.glob("*/held/0_0/forward"))
        torn = next(done.run.glob("*/held/0_0/dynamo"))
        torn.write_bytes(held._HEAD.pack(held._MAGIC, 37, 0, 0, 0) + torn.read_bytes()[held._HEAD.size :])
    assert done.code == 137, done.stderr
    wanted = torch.load(runner.folder / "killed.pt")
    run = graphdbg.open_run(done.run)
    forward = run.graph("0_0/forward")
    assert (forward.inputs_record.policy, forward.inputs_record.execution) == ("last", 37)
    if not wrapped:
        assert run.graph("0_0/dynamo").inputs_record.policy == "index"  # as seen of the first execution
        assert "they are incomplete" in capsys.readouterr().err
    values = [value for value in forward.inputs() if isinstance(value, torch.Tensor)]
    for name, value in wanted.items():
        if name != "y":
            assert any(value.shape == item.shape and torch.equal(value, item) for item in values), name
    assert any(
        tuple(value.shape) == (16, 8) for value in run.graph("0_0/backward").inputs() if isinstance(value, torch.Tensor)
    )
    replayed = graphdbg.replay(forward, rung="eager").outputs
    assert any(
        item is not None and item.shape == wanted["y"].shape and torch.equal(item, wanted["y"]) for item in replayed
    )


@pytest.mark.slow
def test_inputs_are_taken_before_the_graph_writes_into_them(runner):
    done = runner.dump("cache", "--inputs", "last", "--", str(SCRIPTS / "cache.py"))
    assert done.code == 0, done.stderr
    wanted = torch.load(runner.folder / "cache.pt")
    for stage in ("inference", "joint_passed", "dynamo"):
        saved = graphdbg.open_run(done.run).graph(f"0_0/{stage}")
        assert saved.inputs_record.execution == 5
        for value in wanted:
            assert any(tensor.shape == value.shape and torch.equal(tensor, value) for tensor in saved.inputs())


@pytest.mark.parametrize(
    ("way", "error"), [("index", "out of range"), pytest.param("raise", "ValueError", marks=pytest.mark.slow)]
)
def test_when_error_keeps_the_step_that_raised(runner, way, error):
    done = runner.dump(f"error-{way}", "--when", "error", "--", NAN, way, **AOT)
    assert done.code == 1
    assert "hold.py" not in done.stderr and "observe.py" not in done.stderr
    assert _kept(done) == {("0_0/dynamo", 37), ("0_0/forward", 37)}
    (result,) = _notes(done, "found")
    assert result["what"] == "error" and error in result["message"]
    assert graphdbg.open_run(done.run).graph("0_0/forward").inputs_record.reason == "error"


def test_what_goes_wrong_later_does_not_take_the_place_of_the_first(tmp_path: Path) -> None:
    saved: list[tuple[int, int | None]] = []
    writer = SimpleNamespace(
        graph_path=lambda local: tmp_path,
        save_inputs=lambda local, record, number=None: saved.append((record.execution, number)),
    )
    hold: Any = object.__new__(Hold)
    hold.holder = SimpleNamespace(session=SimpleNamespace(writer=lambda: writer, event=lambda *_, **__: None))
    hold.locals, hold.was_kept = ["0_0/forward"], False
    for execution in (3, 10):
        record = SimpleNamespace(step=None, reason=None, execution=execution)
        hold.copy = SimpleNamespace(whole=True, inputs=lambda put, record=record: record)
        hold.keep(SimpleNamespace(what="nan", number=execution))
    assert saved == [(3, 3), (3, None), (10, 10)]
