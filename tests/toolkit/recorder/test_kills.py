"""kill -9 at random moments of a run that compiles 30 graphs: what the journal calls captured loads, and the next run
starts."""

from __future__ import annotations

import json

import pytest

import graphdbg
from graphdbg.dumps import deaths
from graphdbg.dumps.graph_folder import JOURNAL_FILE
from graphdbg.dumps.journal import STATES, read


def _victims(runner, name, kills, seed, backend):
    """The runs of the victims, all recorded into the same GRAPHDBG, and what each told of its progress."""
    done = runner.script("victims.py", name, str(kills), str(seed), backend)
    assert done.code == 0, done.stderr
    *progress, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last["killed"] == kills
    assert "Traceback" not in done.stderr
    runs = [graphdbg.open_run(path) for path in runner.folder.glob(f"{name}*") if (path / "run.json").is_file()]
    return runs, progress


def _check(run):
    """Every graph that the journal calls captured is whole; returns the compiles that were in flight."""
    if not run.processes:  # it died between making the run and its own folder
        return set()
    (process,) = run.processes
    captured = [e.graph for e in read(process.path / JOURNAL_FILE).events if e.kind == "captured"]
    assert set(captured) <= process.saved
    for saved in run.graphs():
        assert saved.record.graph.nodes and len(saved.table) == len(saved.record.graph.nodes)
        assert f"Graph {saved.local_id} " in saved.program()
        saved.module()
    assert not run.damage
    assert all(row.status in STATES for row in run.rows)
    (ending,) = deaths.endings(run.processes)
    assert ending.status == "died"
    return {row.local.partition("/")[0] for row in run.rows if row.lost}


def _kill(runner, name, kills, seed, backend):
    runs, progress = _victims(runner, name, kills, seed, backend)
    started = sum("end 0" in item for item in progress)
    assert started <= len(runs) <= len(progress), "each has a run of its own, unless it died before its first graph"
    in_flight = 0
    for run in runs:
        lost = _check(run)
        text = "".join(deaths.lines(run.processes))
        assert "ended, and its journal does not say how" in text or not run.processes
        assert len(lost) <= 1, "functions are compiled one after the other"
        for compile_name in lost:
            in_flight += 1
            assert f"last event {compile_name}/" in text
            at_work = int(compile_name.partition("_")[0])
            assert [f"begin {at_work}"] in [lines[-1:] for lines in progress]
    if in_flight:
        name = next(run.path.name for run in runs if any(row.lost for row in run.rows))
        listed = runner.python("-m", "graphdbg", "ls", name)
        assert ", died" in listed.stdout.decode() and "in flight when the process died" in listed.stderr
    graphs = sorted(len(run.graphs()) for run in runs)
    assert graphs[-1] == 30 and graphs[0] < 30
    return in_flight


@pytest.mark.slow
def test_twelve_kills(runner):
    assert _kill(runner, "twelve", 12, 3, "aot_eager") >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "kills"), [("aot_eager", 50), ("inductor", 20)])
def test_fifty_kills(runner, backend, kills):
    assert _kill(runner, f"fifty-{backend}", kills, 1, backend) >= kills // 10
