"""OUT/control.jsonl: what the user wants of a minification that runs, one order per line; it is read between two
queries.

Whoever steers (`graphdbg steer`, a screen) appends; what became of an order is a `steered` line of OUT/events.jsonl
with its id, which `outcome` waits for. No torch; needs no screen.

For example:

    given = give(Path("small"), "disable", step="dims")
    outcome(Path("small"), given, wait_s=10.0).state  # -> 'applied'
"""

from __future__ import annotations

import difflib
import json
import shlex
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..dumps import lines, opening
from ..dumps.atomic import cannot_write
from ..dumps.errors import CannotResumeError, UnknownWordError
from ..dumps.lines import Tail
from ..dumps.wording import why_not_there
from .events import EVENTS_FILE, STEPS, Steered, from_json
from .log import at_work, read
from .starting import again

CONTROL_FILE = "control.jsonl"
LOOK_S = 0.05
LAST = "report"
"""The step in which no order is read: the search is over."""
OF_STEPS = ("disable", "enable", "raise")
"""Orders that name a step."""
WHATS = ("pause", "resume", "skip", *OF_STEPS, "cancel", "restart")


@dataclass(frozen=True)
class Order:
    """One order. `step`: which one it is about; of `skip`, the one that ran when it was given. `number`: of
    `restart`."""

    id: str
    what: str
    step: str = ""
    number: int | None = None
    time: float = 0.0

    @classmethod
    def new(cls, what: str, *, step: str = "", number: int | None = None) -> Order:
        """With an id of its own."""
        return cls(uuid.uuid4().hex, what, step, number, round(time.time(), 3))

    @property
    def words(self) -> str:
        """As it is typed after `graphdbg steer OUT`."""
        more = self.step if self.what in OF_STEPS else "" if self.number is None else str(self.number)
        return f"{self.what} {more}".strip()


def known_step(name: str) -> str:
    """The name of a step; raises UsageError, with the likeliest one, where there is none of that name."""
    if name not in STEPS:
        near = difflib.get_close_matches(name, STEPS, n=1)
        raise UnknownWordError(
            f"there is no step {name!r}",
            f"the steps are {', '.join(STEPS)}",
            f"did you mean {near[0]}?" if near else "",
        )
    return name


def append(out: Path, order: Order) -> None:
    """Writes one order, with one write; raises EnvironmentLackError where the disk refuses."""
    path = out / CONTROL_FILE
    try:
        opening.refuse_links(out)
        lines.append(path, msgspec.json.encode(order))
    except OSError as error:
        raise cannot_write(path, error) from error


class Orders:
    """The reading side: orders that were given after this object was made, each once. What is no order is left out."""

    def __init__(self, out: Path) -> None:
        self._tail = lines.Tail(out / CONTROL_FILE, at=None)
        self._seen: set[str] = set()

    def new(self) -> list[Order]:
        """Those that came since the last call."""
        orders: list[Order] = []
        for fields in lines.objects(self._tail.read()):
            with suppress(msgspec.ValidationError):
                order = msgspec.convert(fields, Order)
                if order.what in WHATS and order.id not in self._seen:
                    self._seen.add(order.id)
                    orders.append(order)
        return orders


class NobodyThereError(CannotResumeError):
    """No process is at work in the folder: nobody would carry the order out."""


@dataclass(frozen=True)
class Given:
    """An order that was written, and where in OUT/events.jsonl its outcome can begin."""

    order: Order
    offset: int


def give(out: Path, what: str, *, step: str = "", number: int | None = None) -> Given:
    """Writes one order. Raises UsageError for what is no order or no step, and where nothing is minified in `out`."""
    if what not in WHATS:
        raise UnknownWordError(f"there is no order {what!r}", "", f"there are {', '.join(WHATS)}")
    if what in OF_STEPS:
        known_step(step)
    events = out / EVENTS_FILE
    if not events.is_file():
        why = why_not_there(out, "events.jsonl")
        raise CannotResumeError(
            f"{out} is no folder of a minification", why, "minify a graph: graphdbg minify RUN/ID -o OUT"
        )
    state, record = at_work(out)
    if state in ("dead", "ended"):
        who = "no process" if record is None else f"its process {record.pid}"
        why = f"{who} is running any more" if record is None else f"{who} has ended"
        raise NobodyThereError(f"nothing is minified in {out}", why, f"go on with: {again(out)}")
    offset, story = events.stat().st_size, read(out)[0]
    if story.done is not None or story.ended or story.step == LAST:
        shown = shlex.join(["graphdbg", "steer", str(out)])
        raise NobodyThereError(f"nothing is searched in {out} any more", "its search has ended", f"see {shown}")
    order = Order.new(what, step=step or (story.step if what == "skip" else ""), number=number)
    append(out, order)
    return Given(order, offset)


def outcome(out: Path, given: Given, wait_s: float) -> Steered | None:
    """What became of an order; None where nothing was heard of it for so long (a task between two queries is not
    ended)."""
    deadline = time.monotonic() + wait_s
    tail = Tail(out / EVENTS_FILE, given.offset)
    while True:
        lines = tail.read()
        if not tail.there:
            return None
        for line in lines:
            event = from_json(json.loads(line)) if b'"event":"steered"' in line else None
            if isinstance(event, Steered) and event.id == given.order.id:
                return event
        if time.monotonic() >= deadline or (not lines and at_work(out)[0] == "dead"):
            return None
        time.sleep(LOOK_S)
