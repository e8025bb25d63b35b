"""The list of Home: the runs of a folder or one run, minifications, jobs, each read on in a thread. Knows no widget.

Nothing that is wrong with one of them stops the others: it becomes a line that says so.

>>> overview = Overview(None)
>>> overview.look()          # in a thread, again and again; the first time it reads, later only what changed
True
>>> overview.lines[0].name
'myrun'
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....dumps import index
from ....dumps.amounts import ago_text
from ....dumps.browse.follow import Following
from ....dumps.browse.listing import GRAPHS, ListingLine, aged, run_lines
from ....dumps.store import Run, resolve
from ... import job_files
from ...jobs import ending
from ...verdicts import Verdicts

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
        """By the name a user types."""
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
                judged = [
                    at for at in range(place + 1, place + 1 + len(line.compiled.rows)) if lines[at] is not listing[at]
                ]
                for at in sorted(judged, key=lambda at: not lines[at].bad)[:1]:
                    of = lines[at]
                    lines[place] = msgspec.structs.replace(
                        line,
                        status=of.status,
                        error=of.error,
                        bad=of.bad,
                        target=of.target,
                        path=of.path,
                        judged=of.name,
                    )
        return [
            head,
            *(line for line in mine if line not in ended),
            *lines,
            *_section("jobs", ended, f"{head.key} jobs", 1),
        ]

    def _with_verdict(self, line: ListingLine) -> ListingLine:
        """The line with the verdict on a graph that ran, which says more than that it ran."""
        judged = self.verdicts.of(line.target) if line.kind in GRAPHS and not line.bad and not line.since else None
        if judged is None or (line.kind == "compile" and line.folds):
            return line
        return msgspec.structs.replace(
            line, status=judged.word, error=judged.said if judged.bad else line.error, bad=judged.bad
        )

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
        line = ListingLine(
            f"job {kept.folder.name}", "job", kept.line, 1, status=kept.state, path=kept.folder, run=about
        )
        if kept.state == "running":
            line.text, line.since = "", kept.record.started
        else:
            line.bad = kept.state == "gone" or kept.code not in (*job_files.NORMAL, None)
            how = "" if kept.code in (*job_files.NORMAL, None) else ending(kept.code).removeprefix("it ")
            line.text = " · ".join(filter(None, (ago_text(kept.age_s()), how, job_files.finding(kept))))
        lines.append(line)
    return lines
