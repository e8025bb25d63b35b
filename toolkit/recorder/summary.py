"""The summary printed on stderr when a recording ends: counts, failures, what was missed and why, and the commands to
try next.

Reads the run from disk, like any reader; never prints itself and never imports torch.

>>> lines(Path("myrun"))[0]
'graphdbg: recorded 16 graphs of 1 process in myrun: dynamo 2, pre_grad 2, joint 2, ...'
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...dumps import deaths, index, journal, why
from ...dumps.graph_folder import JOURNAL_FILE
from ...dumps.journal import BACKEND, DECOMPOSITION, LOWERING
from ...dumps.lines import append, objects
from ...dumps.process import start_ticks
from ...dumps.schema import STAGES
from ...dumps.store import SavedGraph
from ...dumps.wording import counted, listed, shown_path, size_text, without_excerpt
from ..live.process_groups import groups_of


def unsaved_lines(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each of these notes about unsaved settings, over all processes of a run."""
    sentences = dict.fromkeys(_sentence(note) for note in notes if "unsaved" in note)
    return _first(sentences, lambda more: f"{more} more that cannot be saved; each replay lists its own")


def _first(sentences: Iterable[str], others: Callable[[int], str], most: int = 5) -> list[str]:
    """Lines for the first `most` sentences, and one that counts the rest, if any."""
    known = list(sentences)
    rest = [f"and {others(len(known) - most)}"] if len(known) > most else []
    return [f"graphdbg: {text}" for text in (*known[:most], *rest)]


def _sentence(note: Mapping[str, Any]) -> str:
    file, line = str(note.get("file") or ""), note.get("line")
    place = f", {Path(file).name}" + (f":{line}" if line else "") if file else ""
    named = f"{note['unsaved']} ({str(note.get('what', '')).removeprefix('__main__.')}{place})"
    if note["unsaved"] == BACKEND:
        return f"{named} cannot be saved: a replay runs Inductor, or another rung, in its place"
    module = str(note.get("module") or "")
    if note["unsaved"].startswith((DECOMPOSITION, LOWERING)):
        but = "" if module in ("", "__main__") else f", unless --import {module} registers it"
        return f"{named} cannot be saved: replays run torch's own{but}"
    imported = "" if module in ("", "__main__") else f" or --import {module} sets it"
    return f"{named} cannot be saved: replays run without it, unless --trust runs its recorded source{imported}"


COST = "cost"
SETTINGS = "settings"
"""Messages of two notes that every process writes: its cost, and its versions and settings."""
HELD_COST = "held inputs"
"""Message of the note about the cost of holding inputs."""

_MOST_FOUND = 3
_LONGEST = 160

Events = Sequence[tuple[str, Sequence[journal.Event]]]
"""(process, what its journal says)."""


def lines(
    run: Path,
    *,
    in_block: bool = False,
    errors: Mapping[str, int] | None = None,
    reason: str = "",
    created: bool = True,
    typed: Callable[[str], str] = str,
) -> list[str]:
    """The summary of a run, as lines. `reason`: why it may be empty; `errors`: those of processes; `created`: whether
    the run folder existed; `typed`: how commands are written in it."""
    processes = index.processes(run) if run.is_dir() else []
    rows, left_out = index.rows(processes), index.left_out_text(index.left_out(processes))
    journals = [(process.name, journal.read(process.path / JOURNAL_FILE).events) for process in processes]
    notes = [event.fields for _, events in journals for event in events if event.kind == "note"]
    name = shown_path(run)
    if created and not run.is_dir():
        return [f"graphdbg: the run folder {name} is gone: it was deleted while it was recorded into"]
    if rows:
        sentences = [_headline(rows, len(processes), name)]
    elif errors or any(note.get("error") for note in notes):
        sentences = [f"graphdbg: nothing could be recorded in {name}, though something was compiled"]
    elif left_out:
        sentences = [f"graphdbg: no graph was kept: all were left out; to see why: graphdbg ls {name} --why"]
    elif any(event.kind == "why" for _, events in journals for event in events):
        sentences = [f"graphdbg: no graph was compiled; to see why: graphdbg ls {name} --why"]
    else:
        sentences = [f"graphdbg: nothing was compiled. {reason or _why_empty(in_block)}"]
    sentences += [f"graphdbg: {line}" for line in deaths.lines(processes)]
    if left_out:
        sentences.append(f"graphdbg: {left_out}")
    sentences += _failures(rows)
    if rows and (hint := why.hint(name, processes)):
        sentences.append(f"graphdbg: {hint}")
    sentences += _held(journals, rows, name)
    sentences += unsaved_lines(notes)
    sentences += _notes(notes, errors or {})
    sentences += _cost(notes) if rows else []
    if rows:
        sentences.append("graphdbg: next, try")
        sentences += [f"  {typed(command)}" for command in _commands(rows, name, notes)]
    return sentences


def settings(run: Path) -> tuple[dict[str, str], dict[str, Any]] | None:
    """The versions and settings that the first process of a run recorded; None when none compiled anything."""
    for process in index.processes(run):
        for event in journal.read(process.path / JOURNAL_FILE).events:
            if event.kind == "note" and event.fields.get("message") == SETTINGS:
                return event.fields.get("versions") or {}, event.fields.get("config") or {}
    return None


def _headline(rows: list[index.ListedGraph], processes: int, name: str) -> str:
    counts = Counter(row.stage for row in rows)
    stages = ", ".join(f"{stage} {counts[stage]}" for stage in STAGES if counts[stage])
    return f"graphdbg: recorded {counted(len(rows), 'graph')} of {counted(processes, 'process')} in {name}: {stages}"


def _failures(rows: list[index.ListedGraph]) -> list[str]:
    alike: dict[tuple[str, str, bool, str | None], list[index.ListedGraph]] = {}
    for row in rows:
        if row.status == "failed" or row.lost:
            alike.setdefault((row.process, row.local.partition("/")[0], row.lost, row.error), []).append(row)
    sentences: list[str] = []
    for (_, _, lost, error), bad in alike.items():
        others = f" (as {', '.join(row.stage for row in bad if row is not best(bad))})" if len(bad) > 1 else ""
        sentences.append(f"{best(bad).id} {'was in flight' if lost else 'failed'}: {_first_line(error)}{others}")
    return _first(sentences, lambda more: f"{more} more failed")


def _first_line(text: str | None) -> str:
    lines = without_excerpt(text or "").splitlines()
    line = next((line.strip() for line in lines if line.strip()), "no reason was recorded")
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"


def _notes(notes: list[dict[str, Any]], errors: Mapping[str, int]) -> list[str]:
    messages = list(dict.fromkeys(str(note.get("message")) for note in notes if _is_remark(note)))
    messages += [f"not recorded, {text}" for text in errors if f"not recorded, {text}" not in messages]
    remarks = map(_first_line, _by_reason(messages))
    return _first(remarks, lambda more: f"{counted(more, 'more remark')} in the journal")


def _is_remark(note: Mapping[str, Any]) -> bool:
    elsewhere = any(key in note for key in ("found", "kept", "unsaved", "at"))
    return note.get("message") not in (COST, SETTINGS, HELD_COST) and not elsewhere and not note.get("uncaught")


def _by_reason(messages: list[str]) -> list[str]:
    """Merges messages `not recorded, <what>: <reason>` with the same reason into one with a count."""
    reasons: dict[str, list[str]] = {}
    known: dict[str, str] = {}  # a reason without the id in its path -> the first such reason
    for message in messages:
        what, _, reason = message.removeprefix("not recorded, ").partition(": ")
        reason = known.setdefault(reason.replace(what, ""), reason)
        reasons.setdefault(reason if message.startswith("not recorded, ") else message, []).append(what)
    return [
        reason
        if what[0] == reason.partition(": ")[0]
        else f"not recorded, {what[0]}{f' and {len(what) - 1} more' if len(what) > 1 else ''}: {reason}"
        for reason, what in reasons.items()
    ]


def _cost(notes: list[dict[str, Any]]) -> list[str]:
    costs = [note for note in notes if note.get("message") == COST]
    if not costs:
        return []
    compiling, recording = _total(costs, "compile_seconds"), _total(costs, "recording_seconds")
    text = f"graphdbg: compiling took {compiling:.1f} s, recording it {recording:.1f} s"
    if any(note.get("caches_were_on") for note in costs):
        text += "; compiler caches were off, because they hide graphs (--keep-cache keeps them on)"
    return [text]


def _total(notes: Iterable[Mapping[str, Any]], field: str) -> float:
    return sum(float(note.get(field) or 0) for note in notes)


def _held(events: Events, rows: Sequence[index.ListedGraph], run: str) -> list[str]:
    """The sentences on held inputs: which step went wrong, what was kept of it, and the cost of holding."""
    sentences: list[str] = []
    for process, of_process in events:
        names = {row.local: row.id for row in rows if row.process == process}
        for event in of_process:
            if "found" in event.fields:
                kept = [
                    row.graph for row in of_process if row.graph and row.fields.get("kept") == event.fields["found"]
                ]
                sentences.append(_finding(event, kept, names, run))
    where = "went wrong; their inputs are in inputs.<execution>.json"
    wrong_steps = _first(sentences, lambda more: f"{counted(more, 'more step')} {where}", _MOST_FOUND)
    return wrong_steps + _held_cost([event.fields for _, of_process in events for event in of_process])


def _finding(event: journal.Event, kept: Sequence[str], names: Mapping[str, str], run: str) -> str:
    graph = event.graph or ""
    text = str(event.fields.get("message", "")).replace(graph, names.get(graph, graph))
    if not kept:
        return f"{text}; its inputs are not kept, they exceed the limit for held inputs"
    others = sorted((local for local in kept if local != graph), key=lambda local: _distance(local, graph))
    shown = listed((names.get(local, local) for local in others), _MOST_FOUND)
    these = " and ".join((["its inputs"] if graph in kept else []) + ([f"those of {shown}"] if others else []))
    start = graph if graph in kept else kept[0]
    return f"{text}; {these} are kept: graphdbg replay {run}/{names.get(start, start)}"


def _distance(local: str, graph: str) -> tuple[bool, bool]:
    """Sort key of graphs relative to a given graph: those of the same compile first, Dynamo's graphs last."""
    compile_name, _, stage = local.partition("/")
    return stage.startswith("dynamo"), compile_name != graph.partition("/")[0]


def _held_cost(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    costs = [note for note in notes if note.get("message") == HELD_COST]
    if not costs:
        return []
    executions = counted(int(_total(costs, "executions")), "execution")
    most = size_text(_total(costs, "most_bytes"))
    sentences = [f"graphdbg: holding inputs took {_total(costs, 'seconds'):.1f} s over {executions} and {most}"]
    if testing := _total(costs, "testing_seconds"):
        sentences[0] += f"; {testing:.1f} s of them looking for NaN"
    if left_out := int(_total(costs, "left_out")):
        sentences.append(f"graphdbg: {counted(left_out, 'more step')} went wrong, without their inputs kept")
    return sentences


def _commands(rows: list[index.ListedGraph], name: str, notes: Sequence[Mapping[str, Any]]) -> list[str]:
    bad = [row for row in rows if row.status == "failed" or row.lost]
    chosen = best(bad or rows)
    saved = SavedGraph(chosen.path, row=chosen)
    unsaved = [(str(note.get("unsaved", "")), str(note.get("module") or "__main__")) for note in notes]
    flag = " --trust" if saved.sourced or any(what.startswith("setting ") for what, _ in unsaved) else ""
    homes = [home for what, home in unsaved if what.startswith((DECOMPOSITION, LOWERING)) and home != "__main__"]
    flag += "".join(f" --import {home}" for home in dict.fromkeys(homes))
    alone = bad and not groups_of(saved.record)
    first = f"graphdbg minify {name}/{chosen.id}" if alone else f"graphdbg triage {name}"
    return [first + flag, f"graphdbg ls {name}", f"graphdbg replay {name}/{chosen.id}{flag}"]


def best(rows: list[index.ListedGraph]) -> index.ListedGraph:
    """The graph to start from: the smallest piece that the inner compiler takes, else the earliest."""
    order = ("forward", "backward", "inference", "joint", "dynamo")
    return next((row for stage in order for row in rows if row.stage == stage), rows[0])


def _why_empty(in_block: bool) -> str:
    if disabled := _disabled():
        return f"{disabled} is set; unset it."
    if in_block:
        return (
            "Either the block calls nothing compiled, or what it calls was compiled before the recording began: "
            "move `with graphdbg.record(...)` before the first call, or call torch._dynamo.reset() in front of it."
        )
    if "torch._dynamo.output_graph" in sys.modules:
        return (
            "torch.compile was used, but every frame was skipped or ran without a graph; TORCH_LOGS=graph_breaks "
            "says where."
        )
    return "torch was imported, but nothing called torch.compile; wrap the model in torch.compile(model)."


def _disabled() -> str:
    return next((name for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE") if os.environ.get(name) == "1"), "")


def leave_trace(path: str, **fields: str) -> None:
    """Appends one line about this process to the file through which `graphdbg dump` learns that torch was imported at
    all.

    `folder` says that it records, and where; `lost` what could not be recorded nor journalled. Raises OSError.
    """
    pid = os.getpid()
    about = {"pid": pid, "ticks": start_ticks(pid) or 0, "disabled": _disabled(), **fields}
    append(path, msgspec.json.encode(about), create=False)


def read_traces(path: Path) -> list[dict[str, Any]]:
    """The lines that `leave_trace` wrote."""
    return list(objects(path.read_bytes().splitlines()))
