"""`minify -- CMD`: triages the program; where the fault is outside its graphs, cuts its repro, else names the failing
graph to minify.

Also: the `issue.md` of such a repro, in the sections of PyTorch's bug form.

For example: `graph_of(["python", "train.py"], "out", 600.0, as_json=False)` gives
`("out/run/0_0/forward", "out/minified", 412.0)` where that graph fails.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from urllib.parse import quote_plus

from ...dumps import written
from ...dumps.atomic import free_path, write_file
from ...dumps.output import emit, say
from ...dumps.pack.redact import Redactor
from ...dumps.wording import counted, shown_path, size_text
from ...toolkit.isolation import programs
from ...toolkit.isolation.fresh import BUG
from ...toolkit.program.concluding import ProgramTriage, Repro, shown
from ...toolkit.program.run import triage_program
from ...toolkit.verdicts import verdict_words
from ..report.bundle import ISSUES, phrase
from ..report.environment import versions_text
from ..report.issue import ISSUE, framed, inline, logged, quoted

DEFAULT_TIME_S, CUTTING = 600.0, 0.75
"""Seconds for cutting a repro, and the part of them for cutting statements; the rest is for tensors that can stand in
the text."""
FINDING = 0.5
"""The part of a time limit after which triage looks for nothing more; judging graphs may go on a little."""


def graph_of(
    command: list[str], out: str | None, max_time_s: float | None, *, as_json: bool
) -> tuple[str, str, float | None]:
    """Triages the program. Returns its failing graph, the folder to minify that into, and the seconds that are left.
    Where the fault is outside its graphs, cuts the repro and ends the process; the files are in OUT."""
    folder = Path(out) if out else free_path("minified-program", first=2)
    finding_s = FINDING * max_time_s if max_time_s is not None else None
    triaged = triage_program(command, output=folder, max_time_s=finding_s, quiet=as_json, report=say)
    left_s = None if max_time_s is None else max(float(round(max_time_s - triaged.seconds)), 1.0)
    graph = failing_graph(triaged)
    if not graph:
        raise SystemExit(cut_repro(triaged, left_s, as_json))
    say(f"a graph of it fails: {triaged.verdict.reason}")
    return graph, str(Path(triaged.folder) / "minified"), left_s


def failing_graph(triaged: ProgramTriage) -> str:
    """The graph that fails, where one does and Dynamo alone does not depart; else ""."""
    by_dynamo = triaged.at is not None and triaged.at.failed is not None and triaged.at.failed.rung == "dynamo"
    where = triaged.verdict.where
    return where.graph if triaged.verdict.failed and where is not None and not by_dynamo else ""


def cut_repro(triaged: ProgramTriage, max_time_s: float | None, as_json: bool) -> int:
    """Cuts the repro of the departure, and runs it 3 times; returns the exit code."""
    repro, began, asked = triaged.repro, time.monotonic(), 0
    if triaged.verdict.failed and repro.says == "shows":
        from .cutting import ProgramCutting  # late: it imports torch, which no program needs here before one fails

        say(f"no graph of it was seen to fail; cutting {shown_path(Path(repro.path))}")
        seconds = max_time_s or DEFAULT_TIME_S
        with programs() as bare:
            cutting = ProgramCutting(Path(repro.path), began + CUTTING * seconds, bare)
            lines, interrupted = len(cutting.text.splitlines()), False
            try:
                cutting.straighten()
                cutting.run()
                cutting.deadline = began + seconds
                cutting.inline()
            except KeyboardInterrupt:
                interrupted = True
        asked = cutting.asked
        left = counted(len(cutting.text.splitlines()), "line")
        over = "" if asked else "; the time was over before it was cut (--max-time)"
        say(f"{counted(asked, 'candidate')} run: of {counted(lines, 'line')} {left} left{over}")
        written.remember(Path(repro.path))
        if interrupted:
            say(f"interrupted; what was cut so far is kept: {shown_path(Path(repro.path))}")
            return 130
        repro = shown(Path(repro.path), sys.executable)
    failed = triaged.verdict.failed
    code = (0 if repro.says == "shows" else 1) if failed or triaged.verdict.verdict in ("ok", "rounding") else 4
    tried = shlex.join(["python", shown_path(Path(repro.path))]) if repro.says == "shows" else ""
    following = [tried] if tried else triaged.verdict.next if failed else []
    issue = write_issue(triaged, repro, Path(triaged.folder)) if tried else None
    if as_json:
        done = {"event": "done", **triaged.verdict.flat(), **repro.plain(), "queries": asked}
        done |= {"issue": str(issue) if issue else None}
        emit(done | ({"next": following} if following else {}), as_json=True)
        return code
    say(triaged.verdict.reason or triaged.summary)
    if failed:
        say(repro.sentence)
    if issue:
        say(f"issue: {shown_path(issue)}")
        say(f"try it: {tried}")
        emit(repro.path, as_json=False)
    elif following:
        say(f"next: {following[0]}")
    return code


def write_issue(triaged: ProgramTriage, repro: Repro, out: Path) -> Path:
    """Writes the issue of a repro that shows the failure; returns its path."""
    verdict, call, program = triaged.verdict, triaged.at, Path(repro.path)
    redactor = Redactor()
    raised = verdict.reason.partition(" raises ")[2].partition("; eager ")[0] if verdict.kind == "crash" else ""
    words = phrase(redactor.text(raised))
    kind = verdict_words.searched("", verdict.kind or "")
    asked = f'is:issue "{words}"' if words else f"is:issue {verdict.layer or 'torch.compile'} {kind}".strip()
    beside = [part.name for part in (program.with_suffix(".pt"), program.with_name("modules")) if part.exists()]
    rate = f"{repro.codes.count(BUG)} of {counted(len(repro.codes), 'fresh process')}"
    lines = [
        inline(verdict.reason, 600),
        "",
        "- Expected: what eager does.",
        f"- First failing layer: {verdict.layer or 'torch.compile'}.",
        f"- Seen in {call.place if call is not None else 'a call'} of a program, beside eager from the same start.",
        f"- The program below shows it in {rate}, each without compile caches; without torch.compile it passes.",
    ]
    if beside:
        sizes = [f"{name} ({size_text(_size(program.with_name(name)))})" for name in beside]
        lines.append(f"- It reads {' and '.join(sizes)}, which must be attached.")
    parts = ["### 🐛 Describe the bug", "\n".join(lines), quoted(program), *logged(repro.printed, versions_text())]
    title = f"[{verdict.layer or 'torch.compile'}] {verdict_words.does(verdict)}: {call.function if call else ''}()"
    title += f" ({raised.partition(':')[0]})" if raised else ""
    write_file(out / ISSUE, framed(title, parts, f"{ISSUES}?q={quote_plus(asked)}", redactor).encode())
    return out / ISSUE


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(part.stat().st_size for part in path.iterdir())
