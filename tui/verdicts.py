"""What the jobs of this folder found of graphs, the newest of each: for Home, where graphs are listed. Read on in a thread.

>>> verdicts = Verdicts(); verdicts.look(recent())
True
>>> verdicts.of("myrun/0_0/forward").word
'wrong numbers'
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..dumps.lines import objects
from ..dumps.opening import opened
from ..toolkit import verdict_words
from ..toolkit.imports import given
from ..toolkit.verdict import Verdict, read
from . import job_files


class Judged(NamedTuple):
    """A verdict in a word, what is said of it, whether it failed, and the whole of it."""

    word: str
    said: str
    bad: bool
    started: float
    """When its job was."""
    record: Verdict
    rung: str = ""
    """The first that fails, where a ladder was asked."""
    imports: tuple[str, ...] = ()
    """What was imported first, or trusted."""
    command: str = ""
    """triage, replay or bisect."""


def of_graph(graph: str) -> Judged | None:
    """The newest verdict on a graph, by its name as a user would type it here."""
    found = Verdicts()
    found.look([job for job in job_files.recent() if job.here])
    return found.of(graph)


class Verdicts:
    """By the graph as commands name it, made absolute."""

    def __init__(self) -> None:
        self._found: dict[Path, Judged] = {}
        self._read: dict[Path, int] = {}

    def of(self, target: str) -> Judged | None:
        """What was found of a graph since it was recorded, by its name as a user would type it here."""
        path = Path(target).absolute()
        found = self._found.get(path)
        return found if found is not None and found.started >= job_files.recorded_at(path) else None

    def look(self, jobs: Sequence[job_files.Kept]) -> bool:
        """Reads what these jobs, the newest first, said since; whether anything came."""
        before = dict(self._found)
        for kept in reversed(jobs):
            words = kept.record.words
            if len(words) > 1 and words[0] in ("triage", "replay", "bisect"):
                for line in self._lines(kept.folder / job_files.OUT_FILE):
                    self._take(words[1], kept.record, line)
        return self._found != before

    def _lines(self, file: Path) -> list[dict[str, Any]]:
        """The whole lines that came since the last look."""
        with contextlib.suppress(OSError), opened(file) as out:
            out.seek(self._read.get(file, 0))
            data = out.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[file] = self._read.get(file, 0) + len(whole)
            return list(objects(whole.splitlines()))
        return []

    def _take(self, target: str, job: job_files.JobRecord, line: dict[str, Any]) -> None:
        event = line.get("event", "end")
        if isinstance(first := line.get("first_failing"), dict):  # the end of a triage of a run: of each graph its rung
            for graph, rung in first.items():
                if (known := self._found.get(Path(job.cwd, graph))) is not None and known.started == job.started:
                    self._found[Path(job.cwd, graph)] = known._replace(rung=str(rung or ""))
        if event not in ("graph", "end") or line.get("graphs") is not None or line.get("interrupted"):
            return
        record = read(line) if "verdict" in line or "record" in line else None
        if record is None or record.skipped:
            return
        graph = str(line.get("address") or target)
        said = verdict_words.said(record, record.reason)
        word = verdict_words.word(record).removeprefix("fails: ")
        self._found[Path(job.cwd, graph)] = Judged(
            word, said, record.failed, job.started, record, str(first or ""), given(job.words), job.words[0]
        )
