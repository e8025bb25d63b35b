"""`minify -- CMD`: the program is triaged; where the fault is outside its graphs its repro is cut, else that graph is
minified.

For example: `minify_program(["python", "train.py"], "out", 600.0, as_json=False)` gives `0`.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

from ...dumps.atomic import free_path
from ...dumps.output import emit, say
from ...dumps.wording import counted, shown_path
from ...toolkit.isolation import programs
from ...toolkit.program.concluding import ProgramTriage
from ...toolkit.program.run import triage_program
from ...toolkit.program.showing import shown
from .cutting import Cutting

DEFAULT_TIME_S = 600.0


def triaged(command: list[str], out: str | None, max_time_s: float | None, *, quiet: bool) -> ProgramTriage:
    """The program compared with eager, its calls watched for that long; its files are in OUT."""
    folder = Path(out) if out else free_path("minified-program", first=2)
    return triage_program(command, output=folder, max_time_s=max_time_s, quiet=quiet, report=say)


def left_of(max_time_s: float | None, triaged: ProgramTriage) -> float | None:
    """The seconds that are left for cutting, at least one."""
    return None if max_time_s is None else max(float(round(max_time_s - triaged.seconds)), 1.0)


def failing_graph(triaged: ProgramTriage) -> str:
    """The graph that fails, where one does and Dynamo alone does not depart; else ""."""
    by_dynamo = triaged.at is not None and triaged.at.failed is not None and triaged.at.failed.rung == "dynamo"
    where = triaged.verdict.where
    return where.graph if triaged.verdict.failed and where is not None and not by_dynamo else ""


def cut_repro(triaged: ProgramTriage, max_time_s: float | None, as_json: bool) -> int:
    """Cuts the repro of the departure, and runs it 3 times; returns the exit code."""
    repro, began, asked = triaged.repro, time.monotonic(), 0
    if triaged.verdict.failed and repro.says == "shows":
        say(f"the fault is outside its graphs; cutting {shown_path(Path(repro.path))}")
        deadline = began + (max_time_s or DEFAULT_TIME_S)
        with programs() as bare:
            cutting = Cutting(Path(repro.path), deadline, bare)
            lines = len(cutting.text.splitlines())
            cutting.run()
        asked = cutting.asked
        left = counted(len(cutting.text.splitlines()), "line")
        over = "" if asked else "; the time was over before it was cut (--max-time)"
        say(f"{counted(asked, 'candidate')} run: of {counted(lines, 'line')} {left} left{over}")
        repro = shown(Path(repro.path), sys.executable)
    failed = triaged.verdict.failed
    code = (0 if repro.says == "shows" else 1) if failed or triaged.verdict.verdict in ("ok", "rounding") else 4
    tried = shlex.join(["python", shown_path(Path(repro.path))]) if repro.says == "shows" else ""
    if as_json:
        done = {"event": "done", **triaged.verdict.flat(), **repro.plain(), "queries": asked}
        emit(done | ({"next": [tried]} if tried else {}), as_json=True)
        return code
    say(triaged.verdict.reason or triaged.summary)
    if failed:
        say(repro.sentence)
    if tried:
        say(f"try it: {tried}")
        emit(repro.path, as_json=False)
    return code
