"""The capture matrix: programs recorded, loaded in a fresh process, run eagerly to the same bits, replayed on Inductor
the same.

    python -m tests.matrix.capture_matrix                                    # every program: about a quarter of an hour
    python -m tests.matrix.capture_matrix --only 'cond|sparse' -j 2
    python -m tests.matrix.capture_matrix --write docs/capture-matrix.md

A batch of programs is recorded in one process and loaded in another. A cell holds when all graphs of the program at
that stage do; every cell that does not has its reason below the table. Exit code: 0 all rows hold whole, 1 some do not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.models.capture_programs import ROWS, Program

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = (
    "dynamo",
    "pre_grad",
    "joint",
    "joint_passed",
    "forward",
    "backward",
    "inference",
    "post_grad_forward",
    "post_grad_backward",
    "post_grad_inference",
    "compiled_autograd",
    "api",
)
HEADINGS = {
    name: name.replace("post_grad_", "post ").replace("joint_passed", "passed").replace("_", " ") for name in COLUMNS
}
SPACE = "room for it"


@dataclass
class Row:
    """What became of one program: stage -> the reasons that its graphs do not hold (empty: they do), and reasons of its
    own."""

    program: Program
    cells: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    graphs: int = 0
    lost: list[str] = field(default_factory=list[str])

    @property
    def whole(self) -> bool:
        """Whether everything that had to be recorded was, and holds."""
        return not self.lost and not any(self.cells.values())

    def reasons(self) -> list[str]:
        """Every reason, with its stage."""
        return [*self.lost, *(f"{stage}: {why}" for stage, result in self.cells.items() for why in result)]


def batch(programs: Sequence[Program], folder: Path, limit_s: float) -> list[Row]:
    """Records the programs in one process and judges them in a second one."""
    rows = {program.name: Row(program) for program in programs}
    _python("capture_live", folder, list(rows), limit_s)
    done = [name for name in rows if (folder / name / "done").exists()]
    words = [f"{name}={rows[name].program.imports}" for name in done]
    for line in _python("capture_load", folder, words, limit_s).splitlines():
        if not line.startswith("{"):
            continue
        cell = json.loads(line)
        row = rows[cell["row"]]
        if not cell["stage"]:
            row.lost.append(cell["why"])
            continue
        row.graphs += 1
        row.cells.setdefault(cell["stage"], []).extend([f"{cell['id']}: {cell['why']}"] if cell["why"] else [])
    for row in rows.values():
        missing = [stage for stage in row.program.stages() if stage not in row.cells]
        if missing and not row.lost:
            row.lost.append(f"no graph of {', '.join(missing)} was judged")
    return list(rows.values())


def _python(script: str, folder: Path, words: Sequence[str], limit_s: float) -> str:
    if not words:
        return ""
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
    with (folder / f"{script}.log").open("a") as log:
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"tests.matrix.{script}", str(folder.resolve()), *words],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=limit_s * len(words),
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
    return done.stdout


def matrix(programs: Sequence[Program], folder: Path, jobs: int = 1, size: int = 8, limit_s: float = 180) -> list[Row]:
    """All rows, in order."""
    parts = [programs[at : at + size] for at in range(0, len(programs), size)]
    folders = [folder / f"batch{number}" for number in range(len(parts))]
    for item in folders:
        item.mkdir(parents=True)
    with ThreadPoolExecutor(jobs) as pool:
        result = pool.map(lambda pair: batch(pair[0], pair[1], limit_s), zip(parts, folders, strict=True))
        return [row for rows in result for row in told(rows)]


def told(rows: list[Row]) -> list[Row]:
    for row in rows:
        print(
            f"{row.program.name}: {'whole' if row.whole else '; '.join(row.reasons())[:1500]}",
            file=sys.stderr,
            flush=True,
        )
    return rows


def told_before(page: Path) -> list[Row]:
    """The rows of a page that was made before: what each cell said."""
    text = page.read_text()
    notes = dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    stages = [name for heading in lines[0] for name, shown in HEADINGS.items() if shown == heading]
    known = {row.name: row for row in ROWS}
    rows: list[Row] = []
    for name, _, *cells, mark in lines[2:]:
        row = Row(known[name])
        for stage, cell in zip(stages, cells, strict=True):
            if cell:
                row.cells[stage] = [notes[number].partition(", ")[2] for number in re.findall(r"\[(\d+)\]", cell)]
        if mark == "no" or (mark != "yes" and not known[name].known):
            row.lost = [notes[number].partition(": ")[2] for number in re.findall(r"\[(\d+)\]", mark)]
        rows.append(row)
    if rows and (match := re.search(r"hold whole \((\d+) graphs", text)):
        rows[0].graphs = int(match[1])  # the page says their sum alone
    return rows


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The Markdown table, and the reasons below it."""
    import torch

    used = [stage for stage in COLUMNS if any(stage in row.cells for row in rows)]
    whole = sum(row.whole for row in rows)
    yield (
        f"{whole} of {len(rows)} programs hold whole ({sum(row.graphs for row in rows)} graphs; torch "
        f"{torch.__version__})."
    )
    yield ""
    yield "| program | kind | " + " | ".join(HEADINGS[stage] for stage in used) + " | whole |"
    yield "|---" * (len(used) + 3) + "|"
    notes: list[str] = []
    for row in rows:
        cells = []
        for stage in used:
            if stage not in row.cells:
                cells.append("")
            elif not row.cells[stage]:
                cells.append("✓")
            else:
                first = len(notes) + 1
                notes += [f"{row.program.name}, {why}" for why in row.cells[stage]]
                cells.append(" ".join(f"[{number}]" for number in range(first, len(notes) + 1)))
        mark = "yes" if row.whole else "no"
        if row.lost:
            notes += [f"{row.program.name}: {why}" for why in row.lost]
        if row.program.known and not row.whole:
            notes.append(f"{row.program.name} as a whole: {row.program.known}")
        if row.lost or (row.program.known and not row.whole):
            mark += f" [{len(notes)}]"
        yield f"| {row.program.name} | {row.program.kind} | {' | '.join(cells)} | {mark} |"
    yield ""
    for number, note in enumerate(notes, 1):
        yield f"{number}. {' '.join(note.split())[:700]}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", metavar="REGEX", default="", help="programs whose name matches")
    options.add_argument("--list", action="store_true", help="one line for each program")
    options.add_argument(
        "--write", type=Path, metavar="FILE", help="put the table into this page; with --only, into its rows"
    )
    options.add_argument("-j", type=int, default=1, dest="jobs", help="batches at a time")
    options.add_argument("--size", type=int, default=8, help="programs in a batch")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the runs there, which must not exist")
    chosen = options.parse_args()
    programs = [row for row in ROWS if re.search(chosen.only, row.name)]
    if chosen.list:
        for program in programs:
            print(f"{program.name:28} {program.kind:20} {program.mode:16} {program.about}")
        return
    if chosen.keep:
        rows = matrix(programs, chosen.keep, chosen.jobs, chosen.size)
    else:
        with tempfile.TemporaryDirectory(prefix="graphdbg-matrix-") as work:
            rows = matrix(programs, Path(work), chosen.jobs, chosen.size)
    lines = list(table(rows))
    print("\n".join(lines))
    if chosen.write:
        from tests.matrix.capture_page import write

        if chosen.only and chosen.write.exists():
            before = {row.program.name: row for row in told_before(chosen.write)}
            built = {row.program.name: row for row in rows}
            for name in set(built) & set(before):
                built[name].graphs = before[name].graphs
            every = before | built
            rows = [every[row.name] for row in ROWS if row.name in every]
            lines = list(table(rows))
        write(chosen.write, lines, [row.program for row in rows])
    raise SystemExit(0 if all(row.whole for row in rows) else 1)


if __name__ == "__main__":
    main()
