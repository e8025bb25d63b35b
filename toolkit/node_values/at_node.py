"""Asks a child for the inputs and the value of one node, in eager and under a rung, and opens a prompt there. Imports
no torch.

Also: asks children for the values of a graph's nodes and passes their rows on as they arrive. Imports no torch.

The graph is judged first, as `replay` does; where that leaves no program to read values from, only eager's are read.

For example:

    reading = at_node(load_graph("myrun/0_0/forward"), "mm", "inductor")
    reading.at["value"]["values"]["eager"][0]["shape"]  # -> [8, 32]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...dumps import temporary
from ...dumps.browse.about import no_node
from ...dumps.store import SavedGraph
from ..isolation import ForkServer, TaskResult, ask, opened
from ..isolation.child import TERMINAL, NewTerminal
from ..live.how import USUAL, How
from ..replaying.after_failure import saw_nan
from ..replaying.replay import replay
from ..rungs import WHOLE, known, warmth
from ..verdicts.ladder_words import address
from ..verdicts.outcome import Outcome
from ..verdicts.own_passes import passes
from ..verdicts.signature import Signature, from_answer
from ..verdicts.verdict import Verdict, skipped, with_flags
from ..verdicts.verdict_words import RELATIONS, headline, text
from . import seen
from .seen import NO_PROGRAM, THE_MODELS, Relation, finding, largest, relation, size_text

VALUES_TASK = f"{__package__}.standing:values_task"
BATCH_BYTES = 2 << 30
PARTITIONED = ("joint", "joint_passed")

Event = dict[str, Any]


def node_values(
    saved: SavedGraph,
    rung: str = "inductor",
    how: How = USUAL,
    *,
    server: ForkServer | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Event]:
    """The events of one reading, "start" first and "end" last; see docs/json-lines.md.

    The limit of `how` bounds each child. Raises UsageError for a rung of another name, and GraphdbgError for a graph
    that cannot be loaded or where the fork server itself ended.
    """
    known(rung)
    with ExitStack() as stack:
        used = stack.enter_context(opened(server, warmth(rung), VALUES_TASK))
        work = stack.enter_context(temporary.folder("graphdbg-values-"))
        yield from _GraphReading(saved, used, work, rung, how, batch_bytes).events()


def partitioned(saved: SavedGraph, rung: str) -> str:
    """Why no program of this rung can return a graph's values ("" where one can): a joint graph is split before it is
    compiled."""
    if saved.stage in PARTITIONED and rung not in WHOLE and "num_fwd_outputs" in saved.record.compile_kwargs:
        family = f"{saved.id.rpartition('/')[0]}/forward and /backward"
        return f"a joint graph is split in two before it is compiled: look at {family}"
    return ""


class _GraphReading:
    """The reading of one graph's values under one rung, in progress."""

    def __init__(
        self, saved: SavedGraph, server: ForkServer, work: Path, rung: str, how: How, batch_bytes: int
    ) -> None:
        self.saved, self.server, self.work, self.rung = saved, server, work, rung
        self.how, self.batch_bytes = how, batch_bytes
        self.rows: list[Event] = []
        self.wrong: list[dict[str, Any]] = []
        self.relations: list[Relation] = []
        self.plain: Signature | None = None
        self.refused: Verdict | None = None
        """Why the rung cannot run the graph."""
        self.end: Event = {"event": "end", "rung": rung, "rows": 0, "stopped": "", "no_reference": "", "outputs": 0}
        self.end["notes"] = []

    def events(self) -> Iterator[Event]:
        """Yields all events of the reading."""
        began = time.monotonic()
        table = self.saved.table
        inputs = {place for place, text in enumerate(table.strings) if text in ("placeholder", "get_attr", "output")}
        columns = zip(table.name, table.op, table.size_bytes, strict=True)
        sizes = {name: 0 if op in inputs else size or 0 for name, op, size in columns}
        how = {"seed": self.how.seed, "device": self.how.device}
        yield {"event": "start", "graph": address(self.saved), "rung": self.rung, "nodes": len(sizes), **how}
        shared = self.server.scratch_file(".pt")
        try:
            if self.rung == "eager":
                yield from self._child(None, sum(sizes.values()), shared)
            else:
                yield from self._compiled(sizes, shared)
        finally:
            shared.unlink(missing_ok=True)
        self._conclude(time.monotonic() - began)
        yield self.end

    def _compiled(self, sizes: dict[str, int], shared: Path) -> Iterator[Event]:
        if why := partitioned(self.saved, self.rung):
            self.refused = skipped(why)
            self.end["stopped"] = text(self.refused)
            return
        yield {"event": "stage", "stage": "as it is"}
        outcome = replay(self.saved, self.rung, **self.how._asdict(), outputs=False, server=self.server, shared=shared)
        self.plain = outcome.signature
        known = {"ok": outcome.ok, "signature": msgspec.to_builtins(outcome.signature), **outcome.verdict.flat()}
        yield {"event": "plain", "text": headline(outcome.verdict), "seconds": outcome.seconds, **known}
        if outcome.verdict.skipped:
            self.refused, self.end["stopped"] = outcome.verdict, outcome.text
        elif outcome.signature is not None and outcome.signature.kind in NO_PROGRAM:
            self.end["stopped"] = f"{outcome.signature.text()}: there is no program whose values could be read"
        else:
            batches = _batches(sizes, self.batch_bytes)
            for number, names in enumerate(batches, 1):
                yield {"event": "batch", "number": number, "of": len(batches), "nodes": len(names)}
                everything = None if len(batches) == 1 else names
                yield from self._child(everything, sum(sizes[name] for name in names), shared)

    def _child(self, names: list[str] | None, size: int, shared: Path) -> Iterator[Event]:
        places = {"work": str(self.work), "shared": str(shared)}
        payload = self.how.payload(self.saved) | {"rung": self.rung, "names": names, "bytes": size, **places}
        asked = ask(VALUES_TASK, payload, self.how.limit_s, server=self.server)
        for event in asked:
            if event["event"] == "value":
                self.rows.append(event)
            yield event
        self._take(asked.end())

    def _take(self, answer: TaskResult) -> None:
        end = self.end
        signature = from_answer(answer)
        if answer.status != "done":
            assert signature is not None
            end["stopped"] = f"the process that read the values ended: {signature.text()}"
            return
        value: dict[str, Any] = answer.value
        if "refused" in value:
            end["stopped"] = value["refused"]
            return
        end["no_reference"] = value.get("no_reference", "") or end["no_reference"]
        end["notes"] += [note for note in value["notes"] if note not in end["notes"]]
        if self.rung == "eager" or not value["outputs"]:
            return  # no node in this batch can be returned
        how = relation(self.plain, signature)
        self.relations.append(how)
        end["outputs"] = max(end["outputs"], value["outputs"])
        if signature is not None and signature.kind in NO_PROGRAM:
            end["stopped"] = f"with the extra outputs: {signature.text()}"
        if how not in ("gone", "unknown"):
            self.wrong += value.get("wrong") or []

    def _conclude(self, seconds: float) -> None:
        end = self.end
        end |= {"rows": len(self.rows), "seconds": seconds, "relation": None}
        if self.rung == "eager":
            end["first_bad"] = seen.first_bad_of_eager(self.rows)
        else:
            known = [how for how in RELATIONS if how in self.relations]
            end["relation"] = known[0] if known else None
            end["first_bad"] = seen.first_bad_of_rung(self.rows, self.wrong)
        end["wrong"] = [row["name"] for row in self.wrong]
        end["largest"] = largest(self.rows)
        bad = end["first_bad"]
        if bad is not None and bad["text"].endswith(THE_MODELS) and (users := passes(self.saved)):
            left = f"it is in the graph that the run's own pass {' and '.join(user.text for user in users)} left"
            bad["text"] = bad["text"].replace(THE_MODELS, left)
        own = bad is not None and bad["kind"] == "nan" and "on_right_inputs" not in bad and not saw_nan(self.saved)
        died = bool(end["stopped"]) and self.refused is None
        end["failed"] = self.plain is not None or died or (bad is not None and not own)
        end["next"] = self._next()
        end["sentence"] = finding(end)

    def _next(self) -> list[str]:
        """The next command, in a list: bisect by node, where there is a failure that values alone do not explain."""
        if self.rung == "eager" or self.plain is None or self.plain.undecided or self.plain.stage == "eager":
            return []
        under = "" if self.rung == "inductor" else f" --rung {self.rung}"
        return [with_flags(f"graphdbg bisect {address(self.saved)} --by node{under}", self.how.imports)]


def _batches(sizes: dict[str, int], most: int) -> list[list[str]]:
    """Splits the nodes, in graph order, into batches whose values have at most `most` bytes; a larger value is a batch
    of its own."""
    batches: list[list[str]] = [[]]
    held = 0
    for name, size in sizes.items():
        held += size
        if batches[-1] and held > most:
            batches.append([])
            held = size
        batches[-1].append(name)
    return batches


TASK = f"{__package__}.standing:task"
_FOREVER_S = 1e8

Plain = dict[str, Any]


@dataclass
class AtNode:
    """The values at a node. `outcome`: of the whole graph; `at`: what `standing.task` returned, empty where nothing
    could be read (`stopped` says why); `alone`: why there are only eager's values."""

    outcome: Outcome
    line: str
    at: Plain = field(default_factory=dict[str, Any])
    stopped: str = ""
    alone: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code, as of `replay`; 1 also for a value that is wrong on right inputs, 4 where nothing could be
        read."""
        if self.outcome.verdict.failed or self.at.get("wrong"):
            return 1
        return self.outcome.verdict.exit_code or (4 if self.stopped else 0)


def at_node(
    saved: SavedGraph,
    node: str,
    rung: str = "inductor",
    how: How = USUAL,
    *,
    check: str = "auto",
    server: ForkServer | None = None,
    report: Callable[[AtNode], object] = lambda reading: None,
    terminal: tuple[int, int] | None = None,
) -> AtNode:
    """Reads the inputs and the value of a node. With `terminal` (descriptors to read and write), a prompt at the node
    follows after `report` was called.

    Raises UsageError for a node that the graph does not have.
    """
    table = saved.table
    row = next((record for record in table.rows() if record.name == node), None)
    if row is None:
        raise no_node(saved, table.name, node)
    with opened(server, warmth(rung), TASK) as used:
        outcome = replay(saved, rung, **how._replace(known=True)._asdict(), check=check, outputs=False, server=used)
        reading = AtNode(outcome, row.where)
        if rung != "eager":
            failed = outcome.signature
            why = failed.text() if failed is not None and failed.kind in NO_PROGRAM else ""
            reading.alone = partitioned(saved, rung) or why or (outcome.text if outcome.verdict.skipped else "")

        def read(under: str) -> None:
            payload = {**how.payload(saved), "node": node, "rung": under}
            if terminal is None:
                _take(reading, ask(TASK, payload, how.limit_s, server=used))
                return
            with NewTerminal() as given:
                payload |= {TERMINAL: given.name, "term": os.environ.get("TERM", "")}
                asked = ask(TASK, payload, _FOREVER_S, server=used)
                reading.at = next((message for message in asked if "value" in message), {})
                if reading.at:
                    report(reading)
                    given.join(asked, *terminal)
                else:
                    _take(reading, asked)

        under = "eager" if reading.alone else rung
        read(under)
        if reading.stopped and under != "eager":  # with the values as extra outputs the rung may fail in another way
            reading.alone, reading.stopped = reading.stopped, ""
            read("eager")
    if terminal is None or not reading.at:
        report(reading)
    return reading


def _take(reading: AtNode, asked: Any) -> None:
    answer = asked.end()
    if answer.status != "done":
        signature = from_answer(answer)
        reading.stopped = signature.text() if signature is not None else answer.status
    elif "refused" in answer.value:
        reading.stopped = answer.value["refused"]
    else:
        reading.at = answer.value


def lines(reading: AtNode, node: str, graph: str, rung: str) -> list[str]:
    """What was read at the node, as text for people."""
    at = reading.at
    if not at:
        return [f"{node} of {graph}: nothing could be read: {reading.stopped}"]
    printed = [f"{node}  {at['target']}" + (f"  {reading.line}" if reading.line else "") + f"  of {graph}"]
    for title, shown in [*(("input", shown) for shown in at["inputs"]), ("value", at["value"])]:
        printed += _block(title, shown, "" if at["value"] is not shown else reading.alone, rung)
    if wrong := at.get("wrong"):
        printed.append(f"\nwrong here, on right inputs: {wrong['text']}")
    printed += [f"note: {note}" for note in at["notes"]]
    return printed


def _block(title: str, shown: Plain, alone: str, rung: str) -> list[str]:
    """A value as text: dtype and shape once, then a line of numbers for each way in which it was computed (with its own
    dtype and shape where these differ)."""
    values: Plain = shown["values"]
    printed: list[str] = []
    width = max(len("eager"), len(rung))
    for part in range(len(values["eager"])):
        forms = {way: _form(rows[part]) for way, rows in values.items() if part < len(rows)}
        name = shown["name"] + (f"[{part}]" if len(values["eager"]) > 1 else "")
        printed.append(f"\n{title} {name}  {forms['eager']}")
        for way in forms:
            key = "eager_error" if way == "eager" and len(values) > 1 else "error"
            error = shown.get(key) if part == 0 else None
            numbers = _numbers(values[way][part])
            numbers += f"  error to float64 {size_text(error)}" if error is not None else ""
            other = f"  {forms[way]}" if forms[way] != forms["eager"] else ""
            printed += [f"  {way:<{width}}  {numbers}{other}".rstrip()] if numbers.strip() else []
            if first := values[way][part].get("first"):
                printed.append(f"  {'':<{width}}  {' '.join(map(_short, first))}")
    if title == "value" and len(values) == 1 and rung != "eager" and (why := alone or shown.get("reason", "")):
        printed.append(f"  {rung:<{width}}  no value: {why}")
    return printed


def _form(row: Plain) -> str:
    if "text" in row:
        return row["text"]
    return f"{row['dtype']} {row['shape']}" + (f" stride {row['stride']}" if row["stride"] is not None else "")


def _numbers(row: Plain) -> str:
    if "text" in row:
        return ""
    parts = [f"{key} {_short(row[key])}" for key in ("min", "max", "mean") if row[key] is not None]
    return "  ".join([*parts, *(f"{row[key]} {said}" for key, said in (("nan", "NaN"), ("inf", "Inf")) if row[key])])


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
