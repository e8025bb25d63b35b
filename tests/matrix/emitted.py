"""Programs of the capture matrix recorded, and one graph written as a repro that is run: what the emit and minify
matrices share.

A repro asks for an exception that nothing raises, so that one that works ends with 0 ("gone: it compiles and runs"),
having run eagerly and compiled; one that cannot tell ends with 2. It runs in a process with torch alone.

>>> judged(Cell("cond", "dynamo"), saved, bare, "nop", None).word
'runs'
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.program.case import ReproFacts
from graphdbg.dumps.program.repro import Script
from graphdbg.dumps.store import SavedGraph, load_graph, open_run
from graphdbg.minifier.report.trying import candidates
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.isolation.cache import toolchain_seed
from graphdbg.toolkit.isolation.fresh import run_once
from graphdbg.toolkit.verdicts.signature import Signature
from tests.models.capture_programs import Program

ROOT = Path(__file__).resolve().parents[2]
PLANTED = Signature("crash", "compile", "PlantedError", "planted", raw="planted")
WORDS = ("runs", "stub", "says", "broken")
MARK = "STAND-IN"
"""Stands in the head of a repro that has a stand-in for an operator."""
WIDTH = 130


@dataclass
class Cell:
    """What became of one graph: "runs", "stub" (it runs, with a stand-in for what nobody can import), "says" (no
    program, and a sentence why) or "broken"."""

    program: str
    stage: str
    word: str = "broken"
    why: str = ""
    lines: int = 0
    nodes: int = 0
    clean: bool = True
    sidecar: bool = False
    """Whether a file of values lies beside it."""

    @property
    def works(self) -> bool:
        return self.word in ("runs", "stub")


def record(programs: Sequence[Program], folder: Path) -> None:
    """Records programs in a process of its own, as the capture matrix does."""
    folder.mkdir(parents=True)
    with (folder / "log").open("w") as log:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.matrix.capture_live",
                str(folder.resolve()),
                *(program.name for program in programs),
            ],
            cwd=ROOT,
            check=False,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )


def recorded(programs: Sequence[Program], folder: Path, runs: Path | None) -> dict[str, Path]:
    """Name -> the folder of its recording: those that capture_matrix.py --keep left in `runs`, else made here."""
    if runs is None:
        for at in range(0, len(programs), 8):
            record(programs[at : at + 8], folder / f"batch{at}")
    wanted = {program.name for program in programs}
    return {path.name: path for path in (runs or folder).glob("batch*/*") if path.is_dir() and path.name in wanted}


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


def judged(cell: Cell, saved: SavedGraph, bare: ForkServer, rung: str, keep: Path | None) -> Cell:
    """Writes the graph as a repro, plainest first, until one runs. `keep`: where it is left, and what it printed."""
    cell.nodes = sum(node.op.startswith("call_") for node in saved.record.graph.nodes)
    try:
        case = ReproFacts(saved.record, saved.inputs_record, saved.kept, PLANTED, rung)
        for number, script in enumerate(candidates(case)):
            if number > 3:
                break
            code, why = _run(script, bare, keep)
            cell.lines, cell.clean = len(script.text.splitlines()), clean(script.text)
            cell.sidecar = script.sidecar is not None
            if code == 0:
                cell.word, cell.why = ("stub" if MARK in script.text else "runs"), ""
                break
            cell.why = cell.why or f"exit code {code}: {why}"
    except GraphdbgError as error:
        cell.word, cell.why = "says", str(error)
    except Exception as error:  # noqa: BLE001  a cell that says so
        cell.why = f"the emitter fails: {type(error).__name__}: {error}"
    return cell


def _run(script: Script, bare: ForkServer, keep: Path | None) -> tuple[int | None, str]:
    with tempfile.TemporaryDirectory(prefix="graphdbg-emit-") as scratch:
        folder = keep or Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        path = folder / "repro.py"
        path.write_text(script.text)
        if script.sidecar is not None:
            path.with_suffix(".safetensors").write_bytes(script.sidecar)
        trial = run_once(path, limit_s=240, bare=bare, seed=toolchain_seed())
        if keep:
            (folder / "output.txt").write_text(trial.output)
        results = [line for line in trial.output.splitlines() if line.startswith(("cannot tell", "gone", "BUG"))]
        last = results[-1:] or trial.output.strip().splitlines()[-1:]
        raised = [line for line in trial.output.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return trial.code, " ".join([*raised[-1:], *last])


def clean(text: str) -> bool:
    """Whether ruff has nothing to say of a program, where there is a ruff."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        return True
    command = [
        ruff,
        "check",
        "--isolated",
        "--no-cache",
        "-q",
        "--line-length",
        str(WIDTH),
        "--extend-select",
        "E,F,I,W",
        "-",
    ]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0


def small(cells: Sequence[Cell]) -> str:
    """A sentence on the lengths of programs of few nodes; empty where there is none."""
    few = sorted(cell.lines for cell in cells if 0 < cell.nodes <= 5 and cell.lines)
    return f"Up to 5 nodes: {len(few)} graphs, {few[0]} to {few[-1]} lines, median {few[len(few) // 2]}." if few else ""


def linted(cells: Sequence[Cell]) -> str:
    """A sentence on what ruff says."""
    unclean = [f"{cell.program}, {cell.stage}" for cell in cells if not cell.clean]
    return f"ruff check: {'all clean' if not unclean else 'not clean: ' + '; '.join(unclean)}."
