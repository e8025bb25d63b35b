"""The graphs of a run to look into first, one for each way in which it went wrong: read from journals, no graph is
opened.

Says nothing about whether a graph fails again; only a replay can. Imports no torch.

>>> from graphdbg.dumps import index
>>> recorded = processes(Path("myrun"))
>>> len(suspects(index.rows(recorded), triggered(recorded)))
0
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...dumps import index, journal
from ...dumps.graph_folder import JOURNAL_FILE
from ..recorder.summary import best
from ..verdicts import normalise

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

LIKENESS = 0.5


def suspects(
    rows: Sequence[index.ListedGraph], triggers: Mapping[tuple[str, str], str] | None = None
) -> list[index.ListedGraph]:
    """The graphs to begin with, one for each way to fail: those that failed, those where a `--when` trigger fired,
    those in flight when their process died.

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
    """What `--when` found, by process and graph: each trigger leaves a note with a number `found`, and `what` it was.

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
    """A sentence where a graph fails otherwise than it did in the run; empty where it fails alike, or did not fail
    there.

    `recorded` is the journal's text of the failure, `error` the text of what happens now.
    """
    lines = [line.strip() for line in (recorded or "").splitlines() if line.strip()]
    if not lines or "KeyboardInterrupt" in lines[0]:
        return ""
    known, seen = normalise.message(lines[0]), normalise.message(error)
    kind, _, words = known.partition(": ")
    words = words or kind
    alike = (kind == "CppCompileError" and kind in seen) or words[:60] in seen
    alike = alike or difflib.SequenceMatcher(None, words, seen, autojunk=False).ratio() > LIKENESS
    return "" if alike else f"in the run it failed otherwise: {lines[0][:160]}"


def compile_of(row: index.ListedGraph) -> tuple[str, str]:
    """The process and the compile that a graph belongs to."""
    return row.process, row.local.partition("/")[0]


def _likeness(row: index.ListedGraph, fired: Mapping[tuple[str, str], str]) -> str:
    if row.status != "failed" and not row.lost:
        return f"{fired.get((row.process, row.local))} in {row.local}"
    return f"{row.status if row.lost else 'failed'}: {normalise.message(row.error or '')}"
