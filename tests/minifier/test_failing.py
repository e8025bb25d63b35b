"""Which graph of a run is minified where none was named, and what is said of it: read from journals alone."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord, RunRecord, TensorValue
from graphdbg.dumps.store import open_run
from graphdbg.dumps.writer import RunWriter
from graphdbg.minifier.commands.minify import minify
from graphdbg.minifier.failing import failing_graph
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.search.problem import DoesNotFailError
from graphdbg.toolkit.replaying.after_failure import unlike_the_record

ERROR = "AssertionError: incorrect out shape"


def chosen(folder: Path, states: dict[str, str]) -> tuple[str, str]:
    """What is taken of a run whose graphs came to these states; "failed" ones with ERROR, others as they are called."""
    writer = RunWriter.create(folder / "run", RunRecord(format=FORMAT, command=["train.py"]))
    process = writer.process("p0")
    for name, state in states.items():
        node = NodeRecord(name="x", op="placeholder", target="x", value=TensorValue("float32", [2], [1]))
        process.save_graph(GraphRecord(format=FORMAT, id=name, stage=name.partition("/")[2], graph=GraphBody([node])))
        process.journal.event("captured", name)
        process.journal.event("compiling", name)
        if state == "ran":
            process.journal.event("ran", name)
        else:
            process.journal.event("failed", name, error=state)
    process.close()
    graph, why = failing_graph(open_run(writer.path))
    return graph.id, why


def test_the_inner_graph_that_failed_is_taken(tmp_path: Path) -> None:
    choice = chosen(tmp_path, {"0_0/dynamo": ERROR, "0_0/inference": ERROR})
    assert choice == ("0_0/inference", f"it failed in the run: {ERROR}")


def test_a_failure_of_tracing_is_taken_at_the_dynamo_graph(tmp_path: Path) -> None:
    choice = chosen(tmp_path, {"0_0/dynamo": ERROR, "0_0/pre_grad": ERROR})
    assert choice == ("0_0/dynamo", f"AOT tracing failed and no later graph was made: {ERROR}")


def test_a_failure_between_the_graphs_is_taken_at_the_dynamo_graph(tmp_path: Path) -> None:
    choice = chosen(tmp_path, {"0_0/dynamo": ERROR, "0_0/forward": "ran"})
    assert choice == ("0_0/dynamo", f"it failed, and none of the graphs made of it did: {ERROR}")


def test_an_interrupted_compile_is_no_error_of_its_own(tmp_path: Path) -> None:
    name, why = chosen(tmp_path, {"0_0/dynamo": "KeyboardInterrupt", "0_0/forward": "KeyboardInterrupt"})
    assert name == "0_0/forward"
    assert "--check hang" in why


def test_the_time_for_finding_the_graph_is_part_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, clock, left = "graphdbg.minifier.commands.minify", iter([0.0, 40.0]), list[float]()
    monkeypatch.setattr(f"{command}.time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(f"{command}._graph", lambda name, options: (SimpleNamespace(stage="forward"), name))
    monkeypatch.setattr(f"{command}._beginning", lambda saved, options: nullcontext())
    monkeypatch.setattr(f"{command}._run", lambda saved, out, options, *rest: left.append(options.max_time) or 0)
    done = CliRunner().invoke(minify, ["run", "--max-time", "60", "-o", str(tmp_path / "out")])
    assert (done.exit_code, left) == (0, [20.0]), done.output


def test_another_failure_is_told(tmp_path: Path) -> None:
    name, why = chosen(tmp_path, {"0_0/inference": ERROR, "1_0/inference": "KeyError: 'x'"})
    assert name == "0_0/inference"
    assert "1 other failure" in why


@pytest.mark.long
def test_a_run_without_a_failure_is_judged_under_the_rung_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "planted")
    writer = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["train.py"]))
    process, value = writer.process("p0"), TensorValue("float32", [4, 3], [3, 1])
    x = NodeRecord(name="x", op="placeholder", target="x", value=value)
    silu = NodeRecord(name="silu", op="call_function", target="aten.silu.default", args=[{"node": "x"}], value=value)
    out = NodeRecord(name="output", op="output", target="output", args=[{"tuple": [{"node": "silu"}]}])
    process.save_graph(
        GraphRecord(format=FORMAT, id="0_0/inference", stage="inference", graph=GraphBody([x, silu, out]))
    )
    process.journal.event("captured", "0_0/inference")
    process.journal.event("ran", "0_0/inference")
    process.close()
    graph, why = failing_graph(open_run(writer.path), MinifyOptions(rung="debug_nop", imports=("planted_strides",)))
    assert (graph.id, why.partition(":")[0]) == ("0_0/inference", "metadata")
    with pytest.raises(DoesNotFailError) as raised:
        failing_graph(open_run(writer.path), MinifyOptions(rung="debug_nop"))
    assert "each was judged under debug_nop" in str(raised.value)
    assert "graphdbg replay" in str(raised.value)
    assert "--rung debug_nop" in str(raised.value)
    assert "graphdbg triage -- python train.py" in str(raised.value)


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no graphs"):
        chosen(tmp_path, {})


@pytest.mark.parametrize(
    ("what", "stack", "says"),
    [
        ("failed", [["/a/train.py", 4, "step", "x.f()"]], "Dynamo raised Unsupported: Call to f, train.py:4, in step"),
        ("break", [["/a/train.py", 4, "step", "x.f()"]], "Dynamo breaks off before it has a graph: Call to f, tr"),
        ("failed", [["/a/train.py", "four"]], "nothing was compiled, or the recorder was not active"),
    ],
)
def test_of_an_empty_run_what_dynamo_did_is_said(what: str, stack: list[object], says: str, tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["python", "a b.py"]))
    process = writer.process("p0")
    process.journal.event(
        "why", what=what, compile="0_0", error="Unsupported", text="Call to f\n  Hint: none", stack=stack
    )
    process.close()
    with pytest.raises(UsageError) as raised:
        failing_graph(open_run(writer.path), MinifyOptions())
    assert says in str(raised.value)
    assert "graphdbg triage -- python 'a b.py'" in str(raised.value)


@pytest.mark.parametrize(
    ("recorded", "text", "unlike"),
    [
        ("AssertionError: no such size 4", "crash in compile: AssertionError: no such size 16", False),
        ("AssertionError: no such size 4", "crash in compile: KeyError: something else altogether", True),
        ("KeyboardInterrupt", "hang in compile", False),
        (None, "wrong numbers", False),
        (
            "CppCompileError: C++ compile error\n\nCommand:\ng++ x",
            "crash in compile: CppCompileError (C++): redeclared",
            False,
        ),
    ],
)
def test_another_failure_than_the_recorded_one_is_told(recorded: str | None, text: str, unlike: bool) -> None:
    assert bool(unlike_the_record(recorded, text)) == unlike
