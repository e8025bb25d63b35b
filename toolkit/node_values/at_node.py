"""Asks a child what is at one node of a graph, eagerly and under a rung, and lets a person stand there. Imports no
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

from ...dumps.browse.naming import no_node
from ..isolation import ForkServer, ask, opened
from ..isolation.terminal import TERMINAL, Terminal
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
    """`outcome`: that of the whole graph. `at`: what `standing.task` tells; empty, with `stopped`, where nothing could
    be read. `alone`: why there are eager's values alone."""

    outcome: Outcome
    line: str
    at: Plain = field(default_factory=dict[str, Any])
    stopped: str = ""
    alone: str = ""

    @property
    def exit_code(self) -> int:
        """As `replay` exits; 1 for a value that is wrong on right inputs, 4 where nothing could be read."""
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
    tell: Callable[[AtNode], object] = lambda found: None,
    terminal: tuple[int, int] | None = None,
) -> AtNode:
    """What is at a node. With `terminal` (descriptors to read and to write) a prompt there, once `tell` got what was
    found.

    Raises UsageError for a node that the graph does not have.
    """
    table = saved.table
    row = next((one for one in table.rows() if one.name == node), None)
    if row is None:
        raise no_node(saved, table.name, node)
    how = How(seed, device, limit_s, imports, known=True)
    with opened(server, warmth(rung), TASK) as used:
        outcome = replay(saved, rung, **how._asdict(), check=check, outputs=False, server=used)
        found = AtNode(outcome, row.where)
        if rung != "eager":
            signature = outcome.signature
            gone = signature is not None and signature.kind in NO_PROGRAM
            why = (
                signature.text() if signature is not None and gone else outcome.text if outcome.verdict.skipped else ""
            )
            found.alone = partitioned(saved, rung) or why
        payload = {**how.payload(saved), "node": node, "rung": "eager" if found.alone else rung}
        _ask(found, payload, limit_s, used, tell, terminal)
        if found.stopped and payload["rung"] != "eager":  # with the values as outputs it may fail otherwise
            found.alone, found.stopped = found.stopped, ""
            _ask(found, payload | {"rung": "eager"}, limit_s, used, tell, terminal)
    if not found.at:
        tell(found)
    return found


def _ask(
    found: AtNode,
    payload: Plain,
    limit_s: float,
    server: ForkServer,
    tell: Callable[[AtNode], object],
    terminal: tuple[int, int] | None,
) -> None:
    if terminal is None:
        _take(found, ask(TASK, payload, limit_s, server=server))
        if found.at:
            tell(found)
        return
    with Terminal() as given:
        asked = ask(
            TASK, payload | {TERMINAL: given.name, "term": os.environ.get("TERM", "")}, _FOREVER_S, server=server
        )
        found.at = next((one for one in asked if "value" in one), {})
        if found.at:
            tell(found)
            given.join(asked, *terminal)
        else:
            _take(found, asked)


def _take(found: AtNode, asked: Any) -> None:
    answer = asked.end()
    if answer.status != "done":
        signature = from_answer(answer)
        found.stopped = signature.text() if signature is not None else answer.status
    elif "refused" in answer.value:
        found.stopped = answer.value["refused"]
    else:
        found.at = answer.value


def lines(found: AtNode, node: str, graph: str, rung: str) -> list[str]:
    """What is at the node, for people."""
    at = found.at
    if not at:
        return [f"{node} of {graph}: nothing could be read: {found.stopped}"]
    made = [f"{node}  {at['target']}" + (f"  {found.line}" if found.line else "") + f"  of {graph}"]
    for title, one in [*(("input", one) for one in at["inputs"]), ("value", at["value"])]:
        made += _block(title, one, "" if at["value"] is not one else found.alone, rung)
    if wrong := at.get("wrong"):
        made.append(f"\nwrong here, on right inputs: {wrong['text']}")
    made += [f"note: {note}" for note in at["notes"]]
    return made


def _block(title: str, one: Plain, alone: str, rung: str) -> list[str]:
    """A value: its form once, a line of numbers for each way in which it was computed; their own form where that
    differs."""
    values: Plain = one["values"]
    made: list[str] = []
    width = max(len("eager"), len(rung))
    for part in range(len(values["eager"])):
        forms = {way: _form(rows[part]) for way, rows in values.items() if part < len(rows)}
        name = one["name"] + (f"[{part}]" if len(values["eager"]) > 1 else "")
        made.append(f"\n{title} {name}  {forms['eager']}")
        for way in forms:
            key = "eager_error" if way == "eager" and len(values) > 1 else "error"
            error = one.get(key) if part == 0 else None
            told = _numbers(values[way][part])
            told += f"  error to float64 {size_text(error)}" if error is not None else ""
            other = f"  {forms[way]}" if forms[way] != forms["eager"] else ""
            made += [f"  {way:<{width}}  {told}{other}".rstrip()] if told.strip() else []
            if first := values[way][part].get("first"):
                made.append(f"  {'':<{width}}  {' '.join(map(_short, first))}")
    if title == "value" and len(values) == 1 and rung != "eager" and (why := alone or one.get("reason", "")):
        made.append(f"  {rung:<{width}}  no value: {why}")
    return made


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
