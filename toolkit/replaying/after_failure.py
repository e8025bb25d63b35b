"""`graphdbg dump --on-failure minify,report`: processes a failing graph after the recorded command has ended.

Runs the commands of other rooms as child processes, since this room must not import them; both their outputs go to
stderr, so that stdout stays the recorded command's own. Never changes dump's exit code, overwrites nothing, and stops
when its time is over.

>>> steps("minify,report")
('minify', 'report')
>>> follow(Path("myrun"), ("minify", "report"), limit_s=600)      # writes myrun-minified/ and myrun-report/
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ...dumps import index, journal
from ...dumps.atomic import free_path
from ...dumps.errors import UnknownWordError
from ...dumps.graph_folder import JOURNAL_FILE
from ...dumps.output import say
from ...dumps.store import SavedGraph
from ...dumps.wording import counted, shown_path
from ..isolation.imports import option_words
from ..recorder.summary import best
from ..verdicts import signature

LIKENESS = 0.5


def suspects(
    rows: Sequence[index.ListedGraph], triggers: Mapping[tuple[str, str], str] | None = None
) -> list[index.ListedGraph]:
    """The graphs to begin with, one for each way to fail: those that failed, those where a `--when` trigger fired,
    those that were in flight when their process died.

    `triggers` says what fired, by process and graph. The stages of one compile fail together and count once, and so
    does the same error in another compile or process.
    """
    fired = triggers or {}
    bad = [row for row in rows if row.saved and row.status == "failed"]
    by_name = {(row.process, row.local): row for row in rows if row.saved}
    bad += [by_name[name] for name in fired if name in by_name and by_name[name] not in bad]
    bad += [row for row in rows if row.saved and row.lost and row not in bad]
    groups: dict[tuple[str, str], list[index.ListedGraph]] = {}
    for row in bad:
        groups.setdefault(compile_of(row), []).append(row)
    chosen: dict[str, index.ListedGraph] = {}
    for group in groups.values():
        for error in dict.fromkeys(_likeness(row, fired) for row in group):
            chosen.setdefault(error, best([row for row in group if _likeness(row, fired) == error]))
    return list(chosen.values())


def triggered(processes: Sequence[index.Process]) -> dict[tuple[str, str], str]:
    """(process, graph) -> what `--when` found there. Each trigger leaves a note with a number `found`, and `what` it
    was.

    The Dynamo graph of the same compile follows, if its inputs were kept: a NaN that is the model's own in the backward
    alone may be the compiler's in the whole.
    """
    fired: dict[tuple[str, str], str] = {}
    for process in processes:
        wholes: dict[Any, tuple[str, str]] = {}
        for event in journal.read(process.path / JOURNAL_FILE).events:
            if event.kind != "note" or event.graph is None:
                continue
            compiled, _, stage = event.graph.partition("/")
            if number := event.fields.get("found"):
                wholes[number] = (compiled, str(event.fields.get("what")))
                fired.setdefault((process.name, event.graph), wholes[number][1])
            elif stage.partition(".")[0] == "dynamo" and wholes.get(event.fields.get("kept"), ("", ""))[0] == compiled:
                fired.setdefault((process.name, event.graph), wholes[event.fields["kept"]][1])
    return fired


def saw_nan(saved: SavedGraph) -> bool:
    """Whether `--when nan` found one in the compile that the graph belongs to."""
    fired = triggered(saved.run.processes) if saved.run is not None else {}
    mine = saved.process, saved.local_id.partition("/")[0]
    return any((process, graph.partition("/")[0]) == mine and what == "nan" for (process, graph), what in fired.items())


def unlike_the_record(recorded: str | None, error: str) -> str:
    """A sentence where a graph's failure differs from that in the run; "" where it is alike, or the run had none.

    `recorded` is the journal's text of the failure, `error` the text of what happens now.
    """
    lines = [line.strip() for line in (recorded or "").splitlines() if line.strip()]
    if not lines or "KeyboardInterrupt" in lines[0]:
        return ""
    known, seen = signature.message(lines[0]), signature.message(error)
    kind, _, words = known.partition(": ")
    words = words or kind
    alike = (kind == "CppCompileError" and kind in seen) or words[:60] in seen
    alike = alike or difflib.SequenceMatcher(None, words, seen, autojunk=False).ratio() > LIKENESS
    return "" if alike else f"in the run it failed with another error: {lines[0][:160]}"


def compile_of(row: index.ListedGraph) -> tuple[str, str]:
    """The process and the compile that a graph belongs to."""
    return row.process, row.local.partition("/")[0]


def _likeness(row: index.ListedGraph, fired: Mapping[tuple[str, str], str]) -> str:
    if row.status != "failed" and not row.lost:
        return f"{fired.get((row.process, row.local))} in {row.local}"
    return f"{row.status if row.lost else 'failed'}: {signature.message(row.error or '')}"


STEPS = ("minify", "report")

LIMIT_S = 600.0
"""Default seconds for minify and report together."""

_SEARCH, _MINIFY = 0.6, 0.8
"""Shares of the limit: after _SEARCH minify stops searching by itself, after _MINIFY it is sent a signal."""
_GRACE_S = 20.0
"""Seconds that a stopped step gets to save what it has."""
_MOST_TRIED = 3

_NO_FAILURE = 1


def steps(text: str) -> tuple[str, ...]:
    """The steps that a user named, in the order of execution; raises UsageError for an unknown word."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in STEPS]
    if unknown or not words:
        what = f"--on-failure does not know {unknown[0]!r}" if unknown else "--on-failure needs a step"
        raise UnknownWordError(what, f"the steps are {' and '.join(STEPS)}", "for example --on-failure minify,report")
    return tuple(step for step in STEPS if step in words)


def follow(
    run: Path, wanted: Sequence[str], limit_s: float = LIMIT_S, signals: Sequence[int] = (), imports: Sequence[str] = ()
) -> None:
    """Does the steps for the first graph that fails again; everything is reported on stderr, and only defects of
    graphdbg are raised.

    `signals` were sent to dump while the command ran: after a request to stop, no step begins. `imports` are modules
    for the steps to import first.
    """
    asked = [signal.Signals(number).name for number in signals if number in _stopping()]
    if asked:
        say(f"graphdbg: on failure: nothing is done after {'Ctrl-C' if asked[0] == 'SIGINT' else asked[0]}")
        return
    processes = index.processes(run)
    ranked = suspects(index.rows(processes), triggered(processes))
    if not ranked:
        say(f"graphdbg: no recorded graph failed, so there is nothing to {' or '.join(wanted)}")
        return
    with _FollowUps(run, limit_s, imports).begun() as work:
        for number, row in enumerate(ranked[:_MOST_TRIED], 1):
            more = f" ({number} of {counted(len(ranked), 'suspect')})" if len(ranked) > 1 else ""
            say(f"graphdbg: on failure: {' and '.join(wanted)} {row.id}{more}, for {work.left_s():.0f} s at most")
            if work.follow(row, wanted) or work.over():
                break
        for line in work.closing(ranked):
            say(line)


class _FollowUps:
    """The steps after one recording, with one deadline for all of them."""

    def __init__(self, run: Path, limit_s: float, imports: Sequence[str] = ()) -> None:
        self.run = run
        self.imports = option_words(imports)
        self.limit_s = limit_s
        self.written: list[Path] = []
        self.done: index.ListedGraph | None = None
        self.stopped = False
        self._started = time.monotonic()
        self._child: subprocess.Popen[bytes] | None = None

    def left_s(self, share: float = 1.0) -> float:
        """Seconds until that share of the limit is over."""
        return max(0.0, self._started + share * self.limit_s - time.monotonic())

    def over(self) -> bool:
        """Whether the user interrupted, or less than a second is left."""
        return self.stopped or self.left_s() < 1.0

    @contextmanager
    def begun(self) -> Iterator[_FollowUps]:
        """Handles signals during the block: Ctrl-C reaches the child from the terminal; a stop signal to this process
        is passed on as Ctrl-C."""

        def stop(number: int, _: FrameType | None) -> None:
            self.stopped = True
            if number != signal.SIGINT and self._child is not None:
                self._child.send_signal(signal.SIGINT)

        previous = {number: signal.signal(number, stop) for number in _stopping()}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def follow(self, row: index.ListedGraph, wanted: Sequence[str]) -> bool:
        """Runs all steps for one graph; False when it no longer fails and another graph should be tried."""
        graph = f"{self.run}/{row.id}"
        subject = graph
        if "minify" in wanted:
            out = free_path(f"{self.run}-minified", first=2)
            most = f"{self.left_s(_SEARCH):.0f}"
            code = self._command(["minify", graph, "-o", str(out), "--max-time", most, *self.imports], _MINIFY)
            if code == _NO_FAILURE:
                return False
            if (out / "case").is_dir():
                subject = str(out)
                self.written.append(out)
            elif out.is_dir():
                say(f"graphdbg: minify left no case in {shown_path(out)}")
        self.done = row
        if "report" in wanted and not self.over():
            out = free_path(f"{self.run}-report", first=2)
            code = self._command(["report", subject, "-o", str(out), *self.imports], 1.0)
            if out.is_dir():
                self.written.append(out)
            elif code == _NO_FAILURE:
                self.done = None
                return False
        return True

    def closing(self, ranked: Sequence[index.ListedGraph]) -> list[str]:
        """The closing lines: what was written, and which failures were not examined."""
        lines = [f"graphdbg: on failure: wrote {' and '.join(shown_path(path) for path in self.written)}"]
        if not self.written:
            why = f"{self.limit_s:.0f} s were over" if self.over() else "see above"
            why = "it was interrupted" if self.stopped else why
            lines = [f"graphdbg: on failure: nothing was written ({why})"]
        others = [row.id for row in ranked if self.done is None or compile_of(row) != compile_of(self.done)]
        if self.written and others:
            lines.append(f"graphdbg: other failures, not looked at: {', '.join(others)}")
        return lines

    def _command(self, words: list[str], share: float) -> int:
        """Runs one graphdbg command with both outputs on stderr; past its share of the time it is interrupted, then
        killed."""
        say(f"graphdbg: $ {shlex.join(['graphdbg', *words])}")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHDBG")}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "graphdbg", *words], stdin=subprocess.DEVNULL, stdout=_stderr(), env=environment
        )
        try:
            code = _wait(self._child, self.left_s(share))
            if code is None:
                say(f"graphdbg: {words[0]} is stopped, its part of {self.limit_s:.0f} s is over (--on-failure-time)")
                self._child.send_signal(signal.SIGINT)
                code = _wait(self._child, _GRACE_S)
            if code is None:
                self._child.kill()
                code = self._child.wait()
        finally:
            self._child = None
        if code not in (0, _NO_FAILURE):
            say(f"graphdbg: {words[0]} ended with code {code}")
        return code


def _stopping() -> list[signal.Signals]:
    """The signals that ask this process to stop."""
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(limit_s)
    return None


def _stderr() -> int:
    """The file descriptor behind sys.stderr, for a child's stdout."""
    try:
        return sys.stderr.fileno()
    except (OSError, AttributeError, ValueError):  # sys.stderr is not a file here
        return 2
