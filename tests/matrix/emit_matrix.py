"""What an emitted repro can express: programs of the capture matrix recorded, each graph written as repro.py, which is
run.

    python -m tests.matrix.emit_matrix                                        # every program, one graph of each stage
    python -m tests.matrix.emit_matrix --only 'cond|scan' --stages dynamo,inference
    python -m tests.matrix.emit_matrix --runs FOLDER                         # what capture_matrix.py --keep FOLDER left
    python -m tests.matrix.emit_matrix --rung inductor -j 4

The failure is planted: each repro asks for an exception that nothing raises, so that one that works ends with 0 ("gone:
it compiles and runs"), having run eagerly and compiled; one that cannot tell ends with 2. A program runs in a process
with torch alone, under the stock backend that stands for the rung (nop: "aot_eager", which runs the traced graph and
makes no kernels). A cell is "runs", "stub" (it runs, with a stand-in for what nobody can import), "says" (no program,
and a sentence why) or "broken". Exit code: 0.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from graphdbg.dumps.store import SavedGraph
from graphdbg.minifier.report import custom_ops
from graphdbg.toolkit import isolation
from tests.matrix.emitted import WORDS, Cell, graphs, judged, linted, recorded, small
from tests.models.capture_programs import ROWS, Program


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
    text = ", ".join(f"{counts[word]} {word}" for word in WORDS)
    yield f"{len(cells)} graphs of {len(names)} programs: {text}; of {len(whole)} programs every graph's repro runs."
    yield from filter(None, [small(cells), linted(cells)])


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
        custom_ops.source_of, custom_ops.known_schema = lambda _: None, lambda _: ""
    programs = [row for row in ROWS if re.search(chosen.only, row.name)]
    stages = set(filter(None, chosen.stages.split(",")))
    with tempfile.TemporaryDirectory(prefix="graphdbg-emit-runs-") as work, isolation.programs() as bare:
        result = recorded(programs, Path(work), chosen.runs)
        wanted = [
            (program, stage, saved)
            for program in programs
            if program.name in result
            for stage, saved in graphs(result[program.name])
            if not stages or stage in stages
        ]

        def made(program: Program, stage: str, saved: SavedGraph) -> Cell:
            keep = chosen.keep / f"{program.name}-{stage}" if chosen.keep else None
            return _told(judged(Cell(program.name, stage), saved, bare, chosen.rung, keep))

        with ThreadPoolExecutor(chosen.jobs) as pool:
            cells = list(pool.map(lambda item: made(*item), wanted))
    print("\n".join(table(cells, programs)))


def _told(cell: Cell) -> Cell:
    print(f"{cell.program}, {cell.stage}: {cell.word} {' '.join(cell.why.split())[:300]}", file=sys.stderr, flush=True)
    return cell


if __name__ == "__main__":
    main()
