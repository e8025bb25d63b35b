"""Asks a child for the inputs and the value of one node, eagerly and under a rung, and opens a prompt there. Imports no
torch.

The graph is judged as `replay` does it; where that leaves no program to read values out of, eager's are read alone.

For example:

    found = at_node(load_graph("myrun/0_0/forward"), "mm", "inductor")
    found.at["value"]["values"]["eager"][0]["shape"]  # -> [8, 32]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...dumps.browse.about import no_node
from ..isolation import ForkServer, ask, opened
from ..isolation.child import TERMINAL, Terminal
from ..replaying.replay import DEFAULT_LIMIT_S, How, replay
from ..rungs import warmth
from ..verdicts.outcome import Outcome
from ..verdicts.signature import from_answer
from .reading import partitioned
from .words import NO_PROGRAM, size_text

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

TASK = f"{__package__}.standing:task"
_FOREVER_S = 1e8

Plain = dict[str, Any]


@dataclass
class AtNode:
    """`outcome`: that of the whole graph. `at`: what `standing.task` reports; empty, with `stopped`, where nothing
    could be read. `alone`: why there are eager's values alone."""

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
    seed: int = 0,
    device: str | None = None,
    *,
    limit_s: float = DEFAULT_LIMIT_S,
    imports: Sequence[str] = (),
    check: str = "auto",
    server: ForkServer | None = None,
    report: Callable[[AtNode], object] = lambda reading: None,
    terminal: tuple[int, int] | None = None,
) -> AtNode:
    """The inputs and the value of a node. With `terminal` (descriptors to read and to write), a prompt there follows
    once `report` got them.

    Raises UsageError for a node that the graph does not have.
    """
    table = saved.table
    row = next((record for record in table.rows() if record.name == node), None)
    if row is None:
        raise no_node(saved, table.name, node)
    how = How(seed, device, limit_s, imports, known=True)
    with opened(server, warmth(rung), TASK) as used:
        outcome = replay(saved, rung, **how._asdict(), check=check, outputs=False, server=used)
        reading = AtNode(outcome, row.where)
        if rung != "eager":
            signature = outcome.signature
            gone = signature is not None and signature.kind in NO_PROGRAM
            why = (
                signature.text() if signature is not None and gone else outcome.text if outcome.verdict.skipped else ""
            )
            reading.alone = partitioned(saved, rung) or why
        payload = {**how.payload(saved), "node": node, "rung": "eager" if reading.alone else rung}
        _ask(reading, payload, limit_s, used, report, terminal)
        if reading.stopped and payload["rung"] != "eager":  # with the values as outputs it may fail otherwise
            reading.alone, reading.stopped = reading.stopped, ""
            _ask(reading, payload | {"rung": "eager"}, limit_s, used, report, terminal)
    if not reading.at:
        report(reading)
    return reading


def _ask(
    reading: AtNode,
    payload: Plain,
    limit_s: float,
    server: ForkServer,
    report: Callable[[AtNode], object],
    terminal: tuple[int, int] | None,
) -> None:
    if terminal is None:
        _take(reading, ask(TASK, payload, limit_s, server=server))
        if reading.at:
            report(reading)
        return
    with Terminal() as given:
        asked = ask(
            TASK, payload | {TERMINAL: given.name, "term": os.environ.get("TERM", "")}, _FOREVER_S, server=server
        )
        reading.at = next((message for message in asked if "value" in message), {})
        if reading.at:
            report(reading)
            given.join(asked, *terminal)
        else:
            _take(reading, asked)


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
    """What is at the node, as text for people."""
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
    """A value: its form once, a line of numbers for each way in which it was computed; their own form where that
    differs."""
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
