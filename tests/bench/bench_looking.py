"""How long looking takes, as whole processes: `ls` of a large run, `show` and `diff` of large graphs, beside Python's
own start.

    python -m tests.bench.bench_looking [--graphs 1000] [--nodes 10000] [--repeat 5] [--keep FOLDER]

The run and its graphs are made up, without torch. Each line gives the median and the best of some runs of a fresh
process, as a ratio to `python -c pass` and to `python -c "import json"` measured in between, and the bar where there is
one (for the sizes above), which the best run has to meet: other work on the machine only ever adds. Exits with 1 when a
bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from graphdbg.dumps.schema import FORMAT, GraphRecord, RunRecord
from graphdbg.dumps.writer import RunWriter
from tests.dumps.layered import layered, renumbered, scattered

Line = tuple[str, list[str], float | None]
"""What is measured: its name, the words of the command, the bar in seconds."""

GRAPHDBG = [sys.executable, "-m", "graphdbg"]


def write_run(path: Path, graphs: list[GraphRecord]) -> None:
    """A run of one process whose graphs were compiled and ran."""
    process = RunWriter.create(path, RunRecord(format=FORMAT, command=["train.py"], started=time.time())).process()
    for record in graphs:
        process.save_graph(record)
        process.journal.event("compiling", graph=record.id)
        process.journal.event("compiled", graph=record.id, seconds=0.1)
        process.journal.event("ran", graph=record.id)
    process.close()


def many(count: int) -> list[GraphRecord]:
    """Small graphs of as many compiles."""
    return [layered(40, f"{number}_0/forward") for number in range(count)]


def large(nodes: int) -> list[GraphRecord]:
    """A large graph and its relatives: other names, one change, 200 changes with other names, another batch size."""
    result = layered(nodes, "0_0/forward")
    named = renumbered(result)
    changes = min(200, nodes // 20)
    relatives = [named, scattered(result, 1, seed=1), scattered(named, changes, seed=2), larger_batch(named)]
    for number, record in enumerate(relatives, 1):
        record.id = f"{number}_0/forward"
    return [result, *relatives]


def larger_batch(record: GraphRecord) -> GraphRecord:
    """The same graph for 12 rows where there were 8."""
    result = renumbered(record, "m")
    for node in result.graph.nodes:
        shape = getattr(node.value, "shape", None)
        if shape and shape[0] == 8:
            shape[0] = 12
    return result


def seconds(command: list[str], folder: Path) -> float:
    """One fresh process, its output thrown away; 1 is the exit code of `diff` when there is a difference."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    took = time.perf_counter() - began
    if done.returncode not in (0, 1) or b"Traceback" in done.stderr:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr.decode()}")
    return took


def measure(lines: list[Line], folder: Path, repeat: int) -> bool:
    """Prints one line each, measured in turn so that a busy moment hits all of them; whether every bar was met."""
    bare = [[sys.executable, "-c", "pass"], [sys.executable, "-c", "import json"]]
    commands = [*bare, *(words for _, words, _ in lines)]
    for command in commands:
        seconds(command, folder)
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(repeat):
        for command, taken in zip(commands, times, strict=True):
            taken.append(seconds(command, folder))
    middle = [statistics.median(taken) for taken in times]
    print(f"python -c pass {middle[0]:.3f} s, python -c 'import json' {middle[1]:.3f} s (medians of {repeat})")
    print(f"{'':34} {'median':>8} {'best':>8} {'/ pass':>7} {'/ json':>7}   bar")
    met = True
    for (name, _, bar), taken, took in zip(lines, times[2:], middle[2:], strict=True):
        verdict = "" if bar is None else f"   {bar:g} s {'met' if min(taken) <= bar else 'MISSED'}"
        met = met and (bar is None or min(taken) <= bar)
        print(f"{name:34} {took:7.3f}s {min(taken):7.3f}s {took / middle[0]:6.1f}x {took / middle[1]:6.1f}x{verdict}")
    return met


def main() -> None:
    """Builds both runs, then measures."""
    parser = argparse.ArgumentParser(description="Time ls, show and diff as whole processes.")
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="build the runs there, or use those built there before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        if not (folder / "large").exists():
            write_run(folder / "large", large(options.nodes))
        if not (folder / "many").exists():
            write_run(folder / "many", many(options.graphs))
        full = options.graphs == 1000 and options.nodes == 10_000
        first = "large/0_0/forward"

        def line(name: str, *words: str, bar: float | None = None) -> Line:
            return name, [*GRAPHDBG, *words], bar if full else None

        lines = [
            line("graphdbg --version", "--version"),
            line(f"ls, {options.graphs} graphs", "ls", "many", bar=0.3),
            line(f"ls --json, {options.graphs} graphs", "ls", "many", "--json", bar=0.3),
            line(f"show, {options.nodes} nodes", "show", first, bar=1),
            line(f"show --json, {options.nodes} nodes", "show", first, "--json", bar=1),
            line("diff with itself", "diff", first, first, bar=3),
            line("diff, all nodes renamed", "diff", first, "large/1_0/forward", bar=3),
            line("diff, one change", "diff", first, "large/2_0/forward", bar=3),
            line("diff, 200 changes and renamed", "diff", first, "large/3_0/forward", bar=3),
            line("diff --all, another batch size", "diff", first, "large/4_0/forward", "--all", bar=3),
            line(f"diff of two runs, {options.graphs} graphs", "diff", "many", "many"),
        ]
        raise SystemExit(0 if measure(lines, folder, options.repeat) else 1)


if __name__ == "__main__":
    main()
