"""What Home lists: the runs of a folder or one run, minifications, jobs, each read on in a thread. Knows no widget.

Nothing that is wrong with one of them stops the others: it becomes a line that says so.

>>> overview = Overview(None)
>>> overview.look()          # in a thread, again and again; the first time it reads, later only what changed
>>> overview.lines[0].name
'myrun'
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..dumps import index
from ..dumps.amounts import ago_text
from ..dumps.browse.follow import Following
from ..dumps.browse.listing import Line, aged, run_lines
from ..dumps.store import Run, resolve
from . import job_files
from .jobs import ending
from .verdicts import Verdicts

if TYPE_CHECKING:
    from .outs import Outs

PACKED = ".zip"
PUBLISH_S = 0.3
_RECENT_JOBS = 12


class Overview:
    """Everything Home shows, as of the last `look`. The one run may not be there yet."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.runs: dict[str, Following] = {}
        """By the name a user types."""
        self.lines: list[Line] = []
        self._made: dict[str, list[Line]] = {}
        self._others: list[Line] = []
        self._outs: Outs | None = None
        self.verdicts = Verdicts()

    def look(self, publish: Callable[[], object] = lambda: None) -> bool:
        """Looks again; whether anything changed. `publish` is called now and then while a first look takes its time."""
        changed = self._find_runs()
        last = time.monotonic()
        for name, run in list(self.runs.items()):
            fresh = run.poll()
            if fresh or name not in self._made:
                self._made[name] = run_lines(name, run)
                changed = True
            elif (older := aged(self._made[name], run)) is not self._made[name]:
                self._made[name] = older
                changed = True
            if time.monotonic() - last > PUBLISH_S:
                self._join()
                publish()
                last = time.monotonic()
        jobs = [one for one in job_files.recent() if one.here]
        judged = self.verdicts.look(jobs)
        others = self._other_lines(jobs)
        changed = changed or others != self._others or judged
        self._others = others
        if changed:
            self._join()
        return changed

    def open_packed(self, name: str) -> None:
        """Unpacks a packed run, to be looked at from now on. Raises GraphdbgError."""
        found = resolve(name)
        if isinstance(found, Run):
            self.runs[name] = Following(found.path)
            self._made.pop(name, None)

    def _join(self) -> None:
        lines = [line for name in self.runs for line in self._made.get(name, [_unread(name)])]
        self.lines = [self._with_verdict(line) for line in lines] + self._others

    def _with_verdict(self, line: Line) -> Line:
        """What was found of a graph that ran says more than that it ran."""
        found = self.verdicts.of(line.target) if line.kind == "graph" and not line.bad and not line.since else None
        if found is None:
            return line
        return msgspec.structs.replace(line, status=found.word, error=found.said if found.bad else line.error, bad=found.bad)

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

    def _other_lines(self, jobs: list[job_files.Kept]) -> list[Line]:
        if self.run is not None:
            return []
        if self._outs is None:
            from .outs import Outs  # late: the first paint does not need it

            self._outs = Outs()
        packed = _packed(set(self.runs))
        return packed + _section("minifications", self._outs.lines()) + _section("jobs", _jobs(jobs[:_RECENT_JOBS]))


def _unread(name: str) -> Line:
    return Line(f"run {name}", "run", name, text="not read yet", target=name, path=Path(name))


def _section(name: str, lines: list[Line]) -> list[Line]:
    return [Line(f"section {name}", "section", name), *lines] if lines else []


def _packed(known: set[str]) -> list[Line]:
    try:
        names = sorted(path.name for path in Path().glob(f"[!.]*{PACKED}") if path.is_file())
    except OSError:
        return []
    return [
        Line(f"packed {name}", "run", name, text="packed; enter opens it", target=name, path=Path(name))
        for name in names if name not in known
    ]  # fmt: skip


def _jobs(jobs: list[job_files.Kept]) -> list[Line]:
    lines: list[Line] = []
    for kept in jobs:
        line = Line(f"job {kept.folder.name}", "job", kept.line, 1, status=kept.state, path=kept.folder)
        if kept.state == "running":
            line.text, line.since = "", kept.record.started
        else:
            line.bad = kept.state == "gone" or kept.code not in (*job_files.NORMAL, None)
            how = "" if kept.code in (*job_files.NORMAL, None) else ending(kept.code).removeprefix("it ")
            line.text = " · ".join(filter(None, (ago_text(kept.age_s()), how, job_files.finding(kept))))
        lines.append(line)
    return lines
