"""What Home shows about the line under the cursor: the error with its source, the last verdict, why it is there, the
next commands.

Called in a thread; reads the run's own files, journals no second time. Knows no widget and decides nothing.

For example:

    [text.plain for text in preview(line, overview, width=80)][0]
    # 'LoweringException: NotImplementedError: no erfinv on this target'
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from ....dumps import index
from ....dumps.browse.listing import GRAPHS, Following, ListingLine, aged, run_lines
from ....dumps.errors import GraphdbgError
from ....dumps.index import ListedGraph
from ....dumps.journal import IN_FLIGHT
from ....dumps.store import Run, load_graph, resolve
from ....dumps.tables import plain
from ....dumps.walk import Frame, calls
from ....dumps.why.show import of_rows
from ....dumps.why.text import of_compile
from ....dumps.wording import ago_text, counted
from ....minifier.options import MinifyOptions
from ....toolkit.rungs import NAMES
from ....toolkit.verdicts import verdict_words
from ... import job_files
from ...jobs import ending
from ...verdicts import ShownVerdict, Verdicts

if TYPE_CHECKING:
    from ...outs import Outs

PACKED = ".zip"
PUBLISH_S = 0.3
_RECENT_JOBS = 12


class Overview:
    """Everything that Home shows, as of the last `look`. The run may not exist yet."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.runs: dict[str, Following] = {}
        """The followed runs, by the name a user types."""
        self.lines: list[ListingLine] = []
        self._made: dict[str, list[ListingLine]] = {}
        self._others: list[ListingLine] = []
        """Packed runs, searches and jobs, each with the run that it is about."""
        self._outs: Outs | None = None
        self.verdicts = Verdicts()

    def look(self, publish: Callable[[], object] = lambda: None) -> bool:
        """Looks again; returns whether anything changed. `publish` is called now and then while a first look takes its
        time."""
        changed = self._find_runs()
        last = time.monotonic()
        for name, run in list(self.runs.items()):
            before = self._made.get(name)
            lines = run_lines(name, run) if run.poll() or before is None else aged(before, run)
            changed, self._made[name] = changed or lines is not before, lines
            if time.monotonic() - last > PUBLISH_S:
                self._join()
                publish()
                last = time.monotonic()
        if not self.lines:
            self._join()
            publish()
        jobs = [job for job in job_files.recent() if job.here]
        judged = self.verdicts.look(jobs)
        others = self._other_lines(jobs)
        for line in others:
            line.run = self._run_of(line.run)
        changed = changed or others != self._others or judged
        self._others = others
        if changed:
            self._join()
        return changed

    def open_packed(self, name: str) -> None:
        """Unpacks a packed run, to be looked at from now on. Raises GraphdbgError."""
        target = resolve(name)
        if isinstance(target, Run):
            self.runs[name] = Following(target.path)
            self._made.pop(name, None)

    def _join(self) -> None:
        lines = [line for name in self.runs for line in self._of_run(name)]
        others = [line for line in self._others if not line.run] if self.run is None else []
        packed = [line for line in others if line.kind == "run"]
        outs, jobs = ([line for line in others if line.kind == kind] for kind in ("out", "job"))
        self.lines = [*lines, *packed, *_section("minifications", outs), *_section("jobs", jobs)]

    def _of_run(self, name: str) -> list[ListingLine]:
        """A run with its searches and what runs, its compiles, and the jobs that ended."""
        head, *listing = self._made.get(name, [_unread(name)])
        mine = [line for line in self._others if line.run == name]
        ended = [line for line in mine if line.kind == "job" and not line.since]
        lines = [self._with_verdict(line) for line in listing]
        for place, line in enumerate(lines):
            if line.kind == "compile" and line.folds and line.compiled and not line.bad and not line.since:
                inside = range(place + 1, place + 1 + len(line.compiled.rows))
                judged = [lines[at] for at in inside if lines[at] is not listing[at]]
                for of in sorted(judged, key=lambda line: not line.bad)[:1]:
                    shown = {key: getattr(of, key) for key in ("status", "error", "bad", "target", "path")}
                    lines[place] = msgspec.structs.replace(line, judged=of.name, **shown)
        others = [line for line in mine if line not in ended]
        return [head, *others, *lines, *_section("jobs", ended, f"{head.key} jobs", 1)]

    def _with_verdict(self, line: ListingLine) -> ListingLine:
        """The line with the verdict on a graph that ran, which says more than that it ran."""
        judged = self.verdicts.of(line.target) if line.kind in GRAPHS and not line.bad and not line.since else None
        if judged is None or (line.kind == "compile" and line.folds):
            return line
        error = judged.said if judged.bad else line.error
        return msgspec.structs.replace(line, status=judged.word, error=error, bad=judged.bad)

    def _run_of(self, target: str) -> str:
        """The listed run that a graph lies in, as it was typed here; empty where it lies in none."""
        path = Path(target).absolute()
        return next((name for name in self.runs if target and path.is_relative_to(Path(name).absolute())), "")

    def sentences_of(self, out: str) -> list[str]:
        """What is known of a listed minification, in sentences."""
        return self._outs.standing_lines(out) if self._outs is not None else []

    def _find_runs(self) -> bool:
        if self.run is not None:
            if self.runs:
                return False
            if Path(self.run).is_file():
                self.open_packed(self.run)
            if not self.runs:
                self.runs[self.run] = Following(Path(self.run))
            return True
        names = [str(path) for path in index.runs(Path())]
        new = [name for name in names if name not in self.runs]
        for name in new:
            self.runs[name] = Following(Path(name))
        if new:  # those that vanished stay, and say so
            self.runs = dict(sorted(self.runs.items()))
        return bool(new)

    def _other_lines(self, jobs: list[job_files.JobFile]) -> list[ListingLine]:
        if self._outs is None:
            from ...outs import Outs  # late: the first paint does not need it

            self._outs = Outs()
        outs = self._outs.lines()
        known = {line.name for line in outs}
        more = [job for job in jobs if job_files.option(job.record.words, "-o", "--output") not in known]
        packed = _packed(set(self.runs)) if self.run is None else []
        return packed + outs + _jobs(more[:_RECENT_JOBS])


def _unread(name: str) -> ListingLine:
    return ListingLine(f"run {name}", "run", name, text="not read yet", target=name, path=Path(name))


def _section(name: str, lines: list[ListingLine], key: str = "", depth: int = 0) -> list[ListingLine]:
    if not lines:
        return []
    head = ListingLine(key or f"section {name}", "section", name, depth, text=str(len(lines)), folds=bool(depth))
    return [head, *(msgspec.structs.replace(line, depth=depth + 1) for line in lines)]


def _packed(known: set[str]) -> list[ListingLine]:
    try:
        names = sorted(path.name for path in Path().glob(f"[!.]*{PACKED}") if path.is_file())
    except OSError:
        return []
    return [
        ListingLine(f"packed {name}", "run", name, text="packed; enter opens it", target=name, path=Path(name))
        for name in names
        if name not in known
    ]


def _jobs(jobs: list[job_files.JobFile]) -> list[ListingLine]:
    lines: list[ListingLine] = []
    for kept in jobs:
        about = kept.record.words[1] if len(kept.record.words) > 1 else ""
        key = f"job {kept.folder.name}"
        line = ListingLine(key, "job", kept.line, 1, status=kept.state, path=kept.folder, run=about)
        if kept.state == "running":
            line.since = kept.record.started
        else:
            how = "" if kept.code in (*job_files.NORMAL, None) else ending(kept.code).removeprefix("it ")
            line.bad = kept.state == "gone" or bool(how)
            line.text = " · ".join(filter(None, (ago_text(kept.age_s()), how, job_files.finding(kept))))
        lines.append(line)
    return lines


AROUND = 2
"""Lines of source before and after the one to show; one less where there are few rows."""
FEW, SHORT = 12, 3
_SAID_BYTES = 4000


def preview(line: ListingLine, overview: Overview, width: int, rows: int = 20, *, trusted: bool = False) -> list[Text]:
    """The texts on a line, the most important first. What cannot be read is left out; nothing is raised. `trusted`:
    commands have `--trust`."""
    if line.kind in GRAPHS and line.compiled is not None:
        return _graph(line, overview, width, AROUND - (rows < FEW), trusted)
    if line.kind == "run" and line.target in overview.runs:
        return _run(line, overview, trusted)
    if line.kind == "out":
        return _headed(overview.sentences_of(line.name), "bold")
    if line.kind == "job" and line.path is not None:
        return _job(line)
    return [Text(plain(line.text or line.name))]


def _graph(line: ListingLine, overview: Overview, width: int, around: int, trusted: bool) -> list[Text]:
    compiled = line.compiled
    assert compiled is not None
    row = next((row for row in compiled.rows if row.id == line.graph), compiled.main)
    judged = overview.verdicts.of(line.target)
    error = (row.error or "").strip().splitlines()
    stack, short = calls(row.error or ""), len(error) <= SHORT
    texts = _headed(error if short else error[:1], "bold red")
    if row.at:
        texts.append(Text(f"last seen in {plain(row.at)}", "bold red" if row.lost else ""))
    texts += _verdict(judged) if judged else []
    todo = [_do(*text) for text in [*_minified(line, overview), *_next(line, row, judged, trusted)]]
    texts, todo = texts + todo[:1] * line.bad, todo[line.bad :]  # what to do stands where a small screen shows it
    why = of_compile(*compiled.by_dynamo, max(20, width - 7)).splitlines() if compiled.by_dynamo is not None else []
    if line.bad:  # the error is shown above
        why = list(itertools.takewhile(lambda text: not text.lstrip().startswith(("FAILED, ", "ERROR to ")), why))
    heads = ["  why  ", *["       "] * len(why)]
    reasons = [Text(head, "bold").append(plain(text), "not bold") for head, text in zip(heads, why, strict=False)]
    source = _source(row, _frame(line, stack, judged), around)
    texts += [*source, *todo, *reasons] if line.bad else [*reasons, *todo, *source]
    if not short or row.stack:
        texts += [Text("the whole of it", "bold"), *(Text(plain(text)) for text in [*error, *row.stack])]
    return texts


def _verdict(judged: ShownVerdict) -> list[Text]:
    """The last verdict, with when it was asked for."""
    style = {"bad": "bold red", "ok": "green", "doubt": "yellow"}.get(verdict_words.tone(judged.record), "")
    clock = "%H:%M" if time.time() - judged.started < 86400 else "%d %b %H:%M"
    when = time.strftime(clock, time.localtime(judged.started))
    first = verdict_words.first_line(judged.record)
    texts = [Text(f"verdict of {when}: ", "bold").append(plain(first), style)]
    said = judged.record.reason.strip()
    if said and said not in first:
        texts.append(Text(plain(said)))
    if judged.record.workaround:
        texts.append(Text("passes with ", "bold").append(plain(judged.record.workaround), "cyan"))
    return texts


def _frame(line: ListingLine, stack: list[Frame], judged: ShownVerdict | None) -> Frame | None:
    """The user's line that the failure, the verdict, or else the compile is about."""
    if mine := [frame for frame in stack if frame.user]:
        return mine[-1]
    if line.compiled is None or line.compiled.by_dynamo is None:
        return None
    function, where = line.compiled.by_dynamo[0], judged.record.where if judged else None
    if where is not None and where.line:
        name, _, number = where.line.rpartition(":")
        if Path(function.file).name == name and number.isdigit():
            return Frame(function.file, int(number), "", "")
    return Frame(function.file, function.line, function.name, "") if function.file else None


def _source(row: ListedGraph, frame: Frame | None, around: int) -> list[Text]:
    """The lines around the frame's, from the copy that the run keeps; else the quoted lines of the stack."""
    from ....dumps.sources import Sources

    if frame is None:
        return []
    quoted = [Text(plain(frame.where), "cyan"), Text(f"    {plain(frame.code)}")] if frame.code else []
    with contextlib.suppress(GraphdbgError, OSError):
        text = Sources(row.path.parents[2]).text(frame.file)
        lines = text.splitlines() if text is not None else []
        if not 0 < frame.line <= len(lines):
            return quoted
        first = max(1, frame.line - around)
        texts = [Text(plain(frame.where) + (f" in {plain(frame.function)}" if frame.function else ""), "cyan")]
        for number, code in enumerate(lines[first - 1 : frame.line + around], start=first):
            sign, style = (">", "bold") if number == frame.line else (" ", "")
            texts.append(Text(f"{sign}{number:>5}  {plain(code)}", style))
        return texts
    return quoted


def _next(
    line: ListingLine, row: ListedGraph, judged: ShownVerdict | None, trusted: bool
) -> list[tuple[str, str, str]]:
    """Next steps: key, what it does, the command that does the same."""
    target, flag = shlex.quote(line.target), " --trust" * trusted
    triage = ("t", "judge it at every rung", f"graphdbg triage {target}{flag}")
    if not row.saved:
        return [("w", "why it was compiled", f"graphdbg ls {shlex.quote(line.run)} --why")]
    if row.status in IN_FLIGHT and not row.lost:
        return []
    if judged is not None and judged.bad:
        shrink = judged.record.minify or ""
        if not shrink and judged.rung in NAMES:
            options = MinifyOptions(rung=judged.rung, imports=judged.imports).words()
            shrink = shlex.join(["graphdbg", "minify", line.target, *options])
        todo = [("5", "shrink it to a repro", shrink)] if shrink else []
        return todo + [("then", "", command) for command in judged.record.next if command != shrink]
    own = [("U", "first: run its own source, too", "")] * (not trusted and _sourced(row))
    if row.status == "failed" or row.lost:
        return [*own, triage, ("5", "shrink it to a repro", f"graphdbg minify {target}{flag}")]
    if judged is not None:
        then = [("then", "", command) for command in judged.record.next]
        return [("2", "its nodes", f"graphdbg show {target}"), *own, *then]
    return [*own, triage]


def _sourced(row: ListedGraph) -> bool:
    with contextlib.suppress(GraphdbgError):  # it may have vanished
        return load_graph(row.path).sourced
    return False


def _minified(line: ListingLine, overview: Overview) -> list[tuple[str, str, str]]:
    """The newest minification of the graph that ended."""
    for entry in overview.lines:
        ended = (entry.kind, entry.run) == ("out", line.target) and entry.status in ("finished", "stopped")
        if ended and entry.path is not None and (entry.path / "repro.py").exists():
            return [("done", f"minified in {plain(entry.name)}", f"python {shlex.quote(entry.name)}/repro.py")]
    return []


def _headed(lines: Iterable[str], style: str) -> list[Text]:
    """The lines, of which the first has a style."""
    return [Text(plain(line), "" if place else style) for place, line in enumerate(lines)]


def _do(key: str, what: str, command: str) -> Text:
    return Text(f"{key:>5}  {what}  " if what else f"{key:>5}  ", "bold").append(plain(command), "not bold cyan")


def _run(line: ListingLine, overview: Overview, trusted: bool) -> list[Text]:
    run = overview.runs[line.target]
    if run.record is None:
        return [Text(plain(line.text))]
    target, compiles = shlex.quote(line.target), of_rows(run)
    texts = [Text("$ ", "dim").append(plain(shlex.join(run.record.command)), "bold")]
    began = time.strftime("%d %b %Y %H:%M", time.localtime(run.record.started)) if run.record.started else ""
    seconds = sum(compiled.seconds or 0.0 for compiled in compiles)
    parts = [began, f"{counted(len(compiles), 'compile')} in {seconds:.1f} s", counted(len(run.processes), "process")]
    texts.append(Text(plain(" · ".join(filter(None, parts)))))
    timed = [compiled for compiled in compiles if compiled.seconds] if len(compiles) > 1 else []
    for compiled in sorted(timed, key=lambda compiled: -(compiled.seconds or 0.0))[:3]:
        texts.append(Text(f"{compiled.seconds:>8.2f} s  {plain(compiled.id)}  {plain(compiled.function(60))}"))
    texts += [Text(plain(said), "red") for compiled in compiles for said in compiled.trouble()]
    texts.append(_do("t", "judge all of its graphs", f"graphdbg triage {target}{' --trust' * trusted}"))
    texts.append(_do("w", "why each graph is there", f"graphdbg ls {target} --why"))
    return texts


def _job(line: ListingLine) -> list[Text]:
    """The messages of a job, its last lines; its finding stands in front."""
    assert line.path is not None
    texts = [Text("$ ", "dim").append(plain(line.name), "bold"), *([Text(plain(line.text))] if line.text else [])]
    said = job_files.end_of(line.path / job_files.ERR_FILE, _SAID_BYTES)[-12:]
    return texts + [Text(plain(said_line.decode(errors="replace")), "dim") for said_line in said]
