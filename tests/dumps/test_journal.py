"""The journal: states, damage, one line per write, and what is left of it after `kill -9`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps import journal
from graphdbg.dumps.store import open_run

kinds = st.sampled_from(journal.KINDS)
graphs = st.sampled_from(["0_0/joint", "0_0/forward", "1_0/forward.1", None])
fields = st.dictionaries(
    st.sampled_from(["nodes", "seconds", "message", "type", "reason"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
    ),
    max_size=3,
)
events = st.lists(st.tuples(kinds, graphs, fields), max_size=12)

ROOT = Path(__file__).parents[2]


def written(path: Path, many: list[tuple[str, str | None, dict[str, object]]]) -> bytes:
    path.unlink(missing_ok=True)
    log = journal.Journal(path)
    for kind, graph, extra in many:
        log.event(kind, graph, **extra)
    log.close()
    return path.read_bytes()


@given(events)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, many: list[tuple[str, str | None, dict[str, object]]]
) -> None:
    contents = journal.parse(written(tmp_path_factory.getbasetemp() / "journal.jsonl", many))
    assert contents.damage == []
    assert [(event.kind, event.graph) for event in contents.events] == [(kind, graph) for kind, graph, _ in many]
    for graph, state in contents.states().items():
        assert state.status == [kind for kind, name, _ in many if name == graph and kind in journal.STATES][-1]


@given(events, st.integers(min_value=0))
def test_a_torn_journal_gives_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, many: list[tuple[str, str | None, dict[str, object]]], cut: int
) -> None:
    data = written(tmp_path_factory.getbasetemp() / "journal.jsonl", many)
    torn = data[: cut % (len(data) + 1)]
    contents = journal.parse(torn)
    assert len(contents.events) == torn.count(b"\n")
    assert len(contents.damage) == (not torn.endswith(b"\n") and bool(torn))


@given(st.binary())
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    contents = journal.parse(data)
    contents.states()
    assert len(contents.events) + len(contents.damage) <= data.count(b"\n") + 1


def test_states_errors_and_seconds() -> None:
    lines = [
        {"t": 1.0, "kind": "captured", "graph": "0_0/forward", "nodes": 9},
        {"t": 2.0, "kind": "compiling", "graph": "0_0/forward"},
        {
            "t": 5.5,
            "kind": "failed",
            "graph": "0_0/forward",
            "type": "LoweringException",
            "message": "no lowering for sin",
        },
        {"t": 6.0, "kind": "captured", "graph": "0_0/joint"},
        {"t": 6.0, "kind": "compiled", "graph": "0_0/joint", "seconds": 0.25},
        {"t": 6.0, "kind": "note", "graph": "0_0/joint", "message": "hello"},
    ]
    states = journal.parse(b"".join(msgspec.json.encode(line) + b"\n" for line in lines)).states()
    failed, joint = states["0_0/forward"], states["0_0/joint"]
    assert (failed.status, failed.error, failed.seconds, failed.nodes) == (
        "failed",
        "LoweringException: no lowering for sin",
        3.5,
        9,
    )
    assert (joint.status, joint.error, joint.seconds) == ("compiled", None, 0.25)


def test_a_short_write_costs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = journal.Journal(tmp_path / "journal.jsonl")
    whole = os.write
    log.event("captured", "0_0/joint")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:10]))
        log.event("compiling", "0_0/joint")
    log.event("compiled", "0_0/joint")
    contents = journal.read(log.path)
    assert [event.kind for event in contents.events] == ["captured", "compiled"]
    assert contents.damage == [f"{log.path}, line 2: damaged and skipped"]


def test_threads_never_tear_each_others_lines(tmp_path: Path) -> None:
    log = journal.Journal(tmp_path / "journal.jsonl")
    threads = [
        threading.Thread(target=lambda: [log.event("note", message="x" * 3000) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    contents = journal.read(log.path)
    assert (len(contents.events), contents.damage) == (200, [])


def test_values_that_json_lacks_are_written_as_text(tmp_path: Path) -> None:
    log = journal.Journal(tmp_path / "journal.jsonl")
    log.event("note", message="\ud800", big=2**80, path=tmp_path, error=ValueError("no"))
    fields_read = journal.read(log.path).events[0].fields
    assert fields_read == {"message": "\\ud800", "big": str(2**80), "path": str(tmp_path), "error": "no"}


KILLED = """
import signal
from pathlib import Path
from tests.dumps.graphs import new_run, chain
run, process = new_run(Path({run!r}))
for number in range(5):
    record = chain(process.unique_id(f"{{number}}/0", "forward"))
    process.save_graph(record)
    process.journal.event("compiling", graph=record.id)
    if number < 4:
        process.journal.event("compiled", graph=record.id)
print("ready", flush=True)
signal.pause()
"""


def test_after_kill_9_every_graph_is_readable_and_the_one_in_flight_is_named(tmp_path: Path) -> None:
    run_path = tmp_path / "run"
    program = KILLED.format(run=str(run_path))
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    assert open_run(run_path).graph("4_0/forward").error is None, "while the process lives, compiling is no error"
    child.send_signal(signal.SIGKILL)
    child.wait()
    run = open_run(run_path)
    assert [graph.status for graph in run.graphs()] == ["compiled"] * 4 + ["compiling"]
    assert all(len(graph.record.graph.nodes) == 5 for graph in run.graphs())
    assert run.graphs()[4].error == f"process {child.pid} died while this graph was compiling"
    assert run.processes[0].liveness == "dead"
