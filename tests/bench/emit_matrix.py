"""What an emitted repro can express: programs of the capture matrix recorded, each graph written as repro.py, which is run.

    python tests/bench/emit_matrix.py                                        # every program, one graph of each stage
    python tests/bench/emit_matrix.py --only 'cond|scan' --stages dynamo,inference
    python tests/bench/emit_matrix.py --runs FOLDER                          # what capture_matrix.py --keep FOLDER left
    python tests/bench/emit_matrix.py --rung inductor -j 4

The failure is planted: each repro asks for an exception that nothing raises, so that one that works ends with 0 ("gone: it
compiles and runs"), having run eagerly and compiled; one that cannot tell ends with 2. A program runs in a process with torch
alone, under the stock backend that stands for the rung (nop: "aot_eager", which runs the traced graph and makes no kernels).
A cell is "runs", "stub" (it runs, with a stand-in for what nobody can import), "says" (no program, and a sentence why) or
"broken". Exit code: 0.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from capture_programs import ROWS, Program

from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.store import SavedGraph, load_graph, open_run
from graphdbg.minifier.report import custom_ops, op_stubs
from graphdbg.minifier.report.bundle import _reader
from graphdbg.minifier.report.case import Case
from graphdbg.minifier.report.repro import Script, candidates
from graphdbg.minifier.report.starter import Starter
from graphdbg.minifier.report.verify import run_once, starting, toolchain_seed
from graphdbg.toolkit.signature import Signature

HERE = Path(__file__).parent
PLANTED = Signature("crash", "compile", "PlantedError", "planted", raw="planted")
WORDS = ("runs", "stub", "says", "broken")
MARK = "STAND-IN"
"""Stands in the head of a repro that has a stand-in for an operator."""


@dataclass
class Cell:
    """What became of one graph."""

    program: str
    stage: str
    word: str
    why: str = ""
    lines: int = 0
    nodes: int = 0
    clean: bool = True


def record(programs: Sequence[Program], folder: Path) -> None:
    """Records programs in a process of its own, as the capture matrix does."""
    folder.mkdir(parents=True)
    with (folder / "log").open("w") as log:
        subprocess.run(
            [sys.executable, str(HERE / "capture_live.py"), str(folder), *(one.name for one in programs)], check=False,
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def graphs(folder: Path) -> Iterator[tuple[str, SavedGraph]]:
    """(stage, graph) of one recorded program: the first of each stage."""
    if (folder / "case" / "graph.json").exists():
        yield "api", load_graph(folder / "case")
        return
    if not (folder / "run").exists():
        return
    seen: set[str] = set()
    for saved in open_run(folder / "run").graphs():
        if saved.status != "skipped" and saved.stage not in seen:
            seen.add(saved.stage)
            yield saved.stage, saved


def judged(program: Program, stage: str, saved: SavedGraph, starter: Starter, rung: str, keep: Path | None) -> Cell:
    """Writes the graph as a repro, plainest first, until one runs."""
    nodes = sum(node.op.startswith("call_") for node in saved.record.graph.nodes)
    cell = Cell(program.name, stage, "broken", nodes=nodes)
    try:
        case = Case(saved.record, saved.inputs_record, _reader(saved), PLANTED, rung)
        for number, script in enumerate(candidates(case)):
            if number > 3:
                break
            code, why = _run(script, program, stage, starter, keep)
            cell.lines, cell.clean = len(script.text.splitlines()), _clean(script.text)
            if code == 0:
                cell.word, cell.why = ("stub" if MARK in script.text else "runs"), ""
                break
            cell.why = cell.why or f"exit code {code}: {why}"
    except GraphdbgError as error:
        cell.word, cell.why = "says", str(error)
    except Exception as error:  # noqa: BLE001  a cell that says so
        cell.why = f"the emitter fails: {type(error).__name__}: {error}"
    return cell


def _run(script: Script, program: Program, stage: str, starter: Starter, keep: Path | None) -> tuple[int | None, str]:
    with tempfile.TemporaryDirectory(prefix="graphdbg-emit-") as scratch:
        folder = keep / f"{program.name}-{stage}" if keep else Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        path = folder / "repro.py"
        path.write_text(script.text)
        if script.sidecar is not None:
            path.with_suffix(".safetensors").write_bytes(script.sidecar)
        trial = run_once(path, limit_s=240, starter=starter, seed=toolchain_seed())
        if keep:
            (folder / "output.txt").write_text(trial.output)
        found = [line for line in trial.output.splitlines() if line.startswith(("cannot tell", "gone", "BUG"))]
        last = found[-1:] or trial.output.strip().splitlines()[-1:]
        raised = [line for line in trial.output.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return trial.code, " ".join([*raised[-1:], *last])


def _clean(text: str) -> bool:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        return True
    command = [ruff, "check", "--isolated", "--no-cache", "-q", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0


def table(cells: Sequence[Cell], programs: Sequence[Program]) -> Iterator[str]:
    """The Markdown table, reasons below it, and the sums."""
    used = list(dict.fromkeys(cell.stage for cell in cells))
    by = {(cell.program, cell.stage): cell for cell in cells}
    yield "| program | " + " | ".join(used) + " |"
    yield "|---" * (len(used) + 1) + "|"
    notes: list[str] = []
    for program in programs:
        row: list[str] = []
        for stage in used:
            cell = by.get((program.name, stage))
            if cell is not None and cell.why:
                notes.append(f"{program.name}, {stage}: {cell.why}")
            row.append("" if cell is None else f"{cell.word} [{len(notes)}]" if cell.why else cell.word)
        yield f"| {program.name} | {' | '.join(row)} |"
    yield ""
    yield from (f"{number}. {' '.join(note.split())[:400]}" for number, note in enumerate(notes, 1))
    yield ""
    counts = Counter(cell.word for cell in cells)
    names = {cell.program for cell in cells}
    whole = [name for name in names if all(cell.word in ("runs", "stub") for cell in cells if cell.program == name)]
    told = ", ".join(f"{counts[word]} {word}" for word in WORDS)
    yield f"{len(cells)} graphs of {len(names)} programs: {told}; of {len(whole)} programs every graph's repro runs."
    small = sorted(cell.lines for cell in cells if 0 < cell.nodes <= 5 and cell.lines)
    if small:
        yield f"Up to 5 nodes: {len(small)} graphs, {small[0]} to {small[-1]} lines, median {small[len(small) // 2]}."
    unclean = [f"{cell.program}, {cell.stage}" for cell in cells if not cell.clean]
    yield f"ruff check: {'all clean' if not unclean else 'not clean: ' + '; '.join(unclean)}."


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name matches")
    options.add_argument("--stages", metavar="A,B", default="", help="those stages alone")
    options.add_argument("--rung", default="nop", help="nop, decomposed or inductor")
    options.add_argument("--runs", type=Path, metavar="FOLDER", help="recordings that capture_matrix.py --keep left")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the programs there")
    options.add_argument(
        "--strange", action="store_true", help="as where nobody knows the custom operators: all stood in for"
    )
    options.add_argument("-j", type=int, default=2, dest="jobs", help="programs at a time")
    chosen = options.parse_args()
    if chosen.strange:
        custom_ops.source_of, op_stubs._known_schema = lambda _: None, lambda _: ""
    programs = [one for one in ROWS if re.search(chosen.only, one.name)]
    stages = set(filter(None, chosen.stages.split(",")))
    with tempfile.TemporaryDirectory(prefix="graphdbg-emit-runs-") as work, starting(seed=toolchain_seed()) as starter:
        if chosen.runs is None:
            for at in range(0, len(programs), 8):
                record(programs[at : at + 8], Path(work) / f"batch{at}")
        root = chosen.runs or Path(work)
        found = {path.name: path for path in root.glob("batch*/*") if path.is_dir()}
        wanted = [
            (program, stage, saved)
            for program in programs if program.name in found
            for stage, saved in graphs(found[program.name]) if not stages or stage in stages
        ]  # fmt: skip
        with ThreadPoolExecutor(chosen.jobs) as pool:
            made = pool.map(lambda one: _told(judged(*one, starter, chosen.rung, chosen.keep)), wanted)
            cells = list(made)
    print("\n".join(table(cells, programs)))


def _told(cell: Cell) -> Cell:
    print(f"{cell.program}, {cell.stage}: {cell.word} {' '.join(cell.why.split())[:300]}", file=sys.stderr, flush=True)
    return cell


if __name__ == "__main__":
    main()
