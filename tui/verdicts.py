"""Findings of this folder's jobs: the newest verdict on each graph, for Home, and findings on nodes, for Graph. Read in
a thread.

For example:

    verdicts = Verdicts(); verdicts.look(recent())  # -> True
    verdicts.of("myrun/0_0/forward").word  # -> 'wrong numbers'
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..dumps.lines import Tail, objects, size_of
from ..toolkit.isolation.imports import given
from ..toolkit.node_values.seen import ValuesSeen
from ..toolkit.verdicts import verdict_words
from ..toolkit.verdicts.verdict import Verdict, read
from . import job_files
from .settings import mark

COMMANDS = ("triage", "replay", "bisect", "check")
"""The commands that judge."""


class ShownVerdict(NamedTuple):
    """A verdict in a word, its sentence, whether it is a failure, and the whole record."""

    word: str
    said: str
    bad: bool
    started: float
    """When its job was started."""
    record: Verdict
    rung: str = ""
    """The first rung that fails, where a ladder was run."""
    imports: tuple[str, ...] = ()
    """The modules that were imported first, or trusted."""
    words: tuple[str, ...] = ()
    """The command, one of those that judge, and its arguments."""


def of_graph(graph: str) -> ShownVerdict | None:
    """The newest verdict on a graph, by its name as a user would type it here."""
    verdicts = Verdicts()
    verdicts.look([job for job in job_files.recent() if job.here])
    return verdicts.of(graph)


def beside(a: str, b: str) -> str:
    """The newest verdicts on two graphs, "A x wrong numbers at relu, B + ok"; empty where nothing is known of
    either."""
    jobs, verdicts = [job for job in job_files.recent() if job.here], Verdicts()
    verdicts.look(jobs)
    running = [job.record for job in jobs if job.state == "running"]
    going = {Path(record.cwd, *record.words[1:2]): record.words[0] for record in running}
    sides = [_side_text(verdicts.of(graph), going.get(Path(graph).absolute(), "")) for graph in (a, b)]
    return f"A {sides[0] or 'not judged'}, B {sides[1] or 'not judged'}" if any(sides) else ""


def _side_text(judged: ShownVerdict | None, going: str) -> str:
    if going in COMMANDS:
        return f"{mark('runs')} {going} runs"
    if judged is None:
        return ""
    tone, place = verdict_words.tone(judged.record), verdict_words.where_text(judged.record)
    sign = mark(tone) if tone in ("bad", "ok") else "?"
    return f"{sign} {judged.word}" + (f" at {place}" if place and judged.bad else "")


def _takes_back(job: job_files.JobRecord, known: ShownVerdict) -> bool:
    """Whether a job without findings withdraws an earlier finding: it asked the same question later, or is the ladder,
    which answers all but what check asks."""
    if known.words[0] == "check" or job.words[0] != "triage":
        return job.words[0] == known.words[0] and job.started >= known.started
    return True


class Verdicts:
    """The newest verdicts, by the graph's absolute path."""

    def __init__(self) -> None:
        self._found: dict[Path, ShownVerdict] = {}
        self._tails: dict[Path, Tail] = {}

    def of(self, target: str) -> ShownVerdict | None:
        """The verdict on a graph since it was recorded, by its name as a user would type it here."""
        path = Path(target).absolute()
        judged = self._found.get(path)
        return judged if judged is not None and judged.started >= job_files.recorded_at(path) else None

    def look(self, jobs: Sequence[job_files.JobFile]) -> bool:
        """Reads what these jobs, the newest first, have said since; returns whether anything came."""
        before = dict(self._found)
        for kept in reversed(jobs):
            words = kept.record.words
            if len(words) > 1 and words[0] in COMMANDS:
                file = kept.folder / job_files.OUT_FILE
                with contextlib.suppress(OSError):
                    for line in objects(self._tails.setdefault(file, Tail(file)).read()):
                        self._take(words[1], kept.record, line)
        return self._found != before

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
        known = self._found.get(Path(job.cwd, graph))
        if known is not None and known.bad and not record.failed and not _takes_back(job, known):
            return
        said = verdict_words.said(record, record.reason)
        word = verdict_words.word(record).removeprefix("fails: ")
        self._found[Path(job.cwd, graph)] = ShownVerdict(
            word, said, record.failed, job.started, record, str(first or ""), given(job.words), tuple(job.words)
        )


@dataclass
class NodesFound:
    """Findings of jobs on the nodes of one graph. `marks`: (command, rung) -> rows of (node, the name that users know,
    sentence); the newest job of each counts, and one that finds nothing removes its mark."""

    marks: dict[tuple[str, str], list[tuple[str, str, str]]] = field(default_factory=dict)
    values: dict[str, ValuesSeen] = field(default_factory=dict)
    """The values by rung, the newest last."""
    seen: object = None
    """The jobs that this was read from and how far, to compare: where it is equal, nothing came."""

    def rungs(self) -> tuple[ValuesSeen, ValuesSeen | None, tuple[str, str]] | None:
        """The values to show, those of another rung beside them (None: those of eager, of the same reading), and both
        rungs."""
        names = list(self.values)
        if not names:
            return None
        last, other = names[-1], names[-2] if len(names) > 1 else ""
        return self.values[last], self.values.get(other), (last, other or "eager")


def nodes_of(graph: str, before: object = None) -> NodesFound | None:
    """The findings on the nodes of a graph, as commands name it; None where nothing came since `before`."""
    wanted = Path(graph).absolute()
    since = job_files.recorded_at(wanted)
    jobs = [kept for kept in reversed(job_files.recent()) if kept.record.started >= since and _reaches(kept, wanted)]
    sizes = [(str(kept.folder), size_of(kept.folder / job_files.OUT_FILE)) for kept in jobs]
    if sizes == before:
        return None
    nodes = NodesFound(seen=sizes)
    for kept in jobs:
        _take_job(nodes, kept, wanted)
    split = nodes.rungs()
    if split is not None and (at := split[0].split(split[1])) is not None:
        node, error, other = at
        said = f"here {split[2][0]} and {split[2][1]} split: error {error:.1e} and {other:.1e}"
        nodes.marks["first split", ""] = [(node, "", said)]
    return nodes


def _reaches(kept: job_files.JobFile, wanted: Path) -> bool:
    words, target = kept.record.words, Path(kept.record.cwd, *kept.record.words[1:2])
    return len(words) > 1 and words[0] != "minify" and (target == wanted or target in wanted.parents)


def _take_job(nodes: NodesFound, kept: job_files.JobFile, wanted: Path) -> None:
    command, *words = kept.record.words
    values = ValuesSeen() if "--values" in words else None
    for line in job_files.printed(kept):
        if values is not None:
            values.take(line)
            continue
        event, name = line.get("event", "end"), str(line.get("address") or words[0])
        try:
            record = read(line)
        except msgspec.ValidationError:  # of another version
            continue
        about = name == str(wanted) or Path(kept.record.cwd, name) == wanted
        if not about or record is None or record.skipped or event not in ("graph", "rung", "end"):
            continue
        rung = str(line.get("rung") or "") if command != "triage" or event == "rung" else ""
        key = command, rung
        nodes.marks.pop(key, None)
        if record.failed:
            where = record.where
            said = str(line.get("sentence") or f"{verdict_words.word(record).removeprefix('fails: ')}: {record.reason}")
            node, known = (where.node, where.name) if where is not None else ("", "")
            nodes.marks[key] = [(node, known, said)]
            nodes.marks[key] += [
                (str(other["node"]), "", str(other["sentence"]))
                for other in line.get("findings") or ()
                if command == "check"
                if other.get("origin") and other.get("node") != node and not other.get("graph")
            ]
    if values is not None and values.rows:
        nodes.values.pop(values.rung, None)
        nodes.values[values.rung] = values
        first = f"first bad node: {(values.end.get('first_bad') or {}).get('text') or ''}"
        nodes.marks["values", values.rung] = [
            (values.rows[at].name, "", first if at == values.first_bad else "bad by itself") for at in values.bad
        ]
