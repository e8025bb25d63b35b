"""Giving an order to a minification that runs, and waiting for what becomes of it. No torch; needs no screen.

>>> given = give(Path("small"), "disable", step="dims")
>>> outcome(Path("small"), given, wait_s=10.0).state
'applied'
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from ..dumps.errors import UsageError
from ..dumps.lines import Tail
from .control import OF_STEPS, WHATS, Order, append, known_step
from .events import Steered, from_json
from .events_file import EVENTS_FILE
from .life import at_work
from .resuming import again

LOOK_S = 0.05


class NobodyThereError(UsageError):
    """No process is at work in the folder: nobody would carry the order out."""


@dataclass(frozen=True)
class Given:
    """An order that was written, and where in OUT/events.jsonl its outcome can begin."""

    order: Order
    offset: int


def give(out: Path, what: str, *, step: str = "", number: int | None = None) -> Given:
    """Writes one order. Raises UsageError for what is no order or no step, and where nothing is minified in `out`."""
    if what not in WHATS:
        raise UsageError(f"there is no order {what!r}", "", f"there are {', '.join(WHATS)}")
    if what in OF_STEPS:
        known_step(step)
    events = out / EVENTS_FILE
    if not events.is_file():
        why = "it has no events.jsonl" if out.is_dir() else "there is no such folder"
        raise UsageError(f"{out} is no folder of a minification", why, "minify a graph: graphdbg minify RUN/ID -o OUT")
    state, record = at_work(out)
    if state in ("dead", "ended"):
        who = "no process" if record is None else f"its process {record.pid}"
        why = f"{who} is running any more" if record is None else f"{who} has ended"
        raise NobodyThereError(f"nothing is minified in {out}", why, f"go on with: {again(out)}")
    offset = events.stat().st_size
    order = Order.new(what, step=step or (_running(events) if what == "skip" else ""), number=number)
    append(out, order)
    return Given(order, offset)


def outcome(out: Path, given: Given, wait_s: float) -> Steered | None:
    """What became of an order; None where nothing was heard of it for so long (a task between two queries is not ended)."""
    deadline = time.monotonic() + wait_s
    tail = Tail(out / EVENTS_FILE, given.offset)
    while True:
        lines = tail.read()
        if not tail.there:
            return None
        for line in lines:
            found = from_json(json.loads(line)) if b'"event":"steered"' in line else None
            if isinstance(found, Steered) and found.id == given.order.id:
                return found
        if time.monotonic() >= deadline or (not lines and at_work(out)[0] == "dead"):
            return None
        time.sleep(LOOK_S)


def _running(events: Path) -> str:
    """The step that runs now, by the last line that says so."""
    data = events.read_bytes()
    place = data.rfind(b'"event":"step"')
    line = data[place - 1 :].partition(b"\n")
    try:
        return str(json.loads(line[0])["step"]) if place > 0 and line[1] else ""
    except (ValueError, KeyError):
        return ""
