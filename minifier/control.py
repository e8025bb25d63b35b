"""OUT/control.jsonl: what the user wants of a minification that runs, one order per line; it is read between two queries.

Whoever steers (`graphdbg steer`, a screen) appends; what became of an order is a `steered` line of OUT/events.jsonl with its id.
Must not know whether anybody reads.

>>> order = Order.new("skip", step="windows")
>>> append(Path("small"), order)
"""

from __future__ import annotations

import difflib
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..dumps import lines
from ..dumps.atomic import cannot_write
from ..dumps.errors import UsageError
from .passes import NAMES as PASS_NAMES
from .search.tiers import TIERS

CONTROL_FILE = "control.jsonl"
OF_STEPS = ("disable", "enable", "raise")
"""Orders that name a step."""
WHATS = ("pause", "resume", "skip", *OF_STEPS, "cancel", "restart")
STEPS = tuple(dict.fromkeys([*(name for name, _ in TIERS), "explain", "outputs", "together", *PASS_NAMES, "needs"]))
"""The steps that can be disabled, enabled and raised."""


@dataclass(frozen=True)
class Order:
    """One order. `step`: which one it is about; of `skip`, the one that ran when it was given. `number`: of `restart`."""

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
        raise UsageError(
            f"there is no step {name!r}", f"the steps are {', '.join(STEPS)}", f"did you mean {near[0]}?" if near else ""
        )
    return name


def append(out: Path, order: Order) -> None:
    """Writes one order, with one write; raises EnvironmentLackError where the disk refuses."""
    path = out / CONTROL_FILE
    try:
        lines.append(path, msgspec.json.encode(asdict(order)))
    except OSError as error:
        raise cannot_write(path, error) from error


class Orders:
    """The reading side: orders that were given after this object was made, each once. What is no order is left out."""

    def __init__(self, out: Path) -> None:
        self._tail = lines.Tail(out / CONTROL_FILE, at=None)
        self._seen: set[str] = set()

    def new(self) -> list[Order]:
        """Those that came since the last call."""
        return [order for told in lines.objects(self._tail.read()) if (order := self._order(told)) is not None]

    def _order(self, value: dict[str, Any]) -> Order | None:
        try:
            order = msgspec.convert({name: value[name] for name in value if name in Order.__dataclass_fields__}, Order)
        except msgspec.MsgspecError:
            return None
        if order.id in self._seen or order.what not in WHATS:
            return None
        self._seen.add(order.id)
        return order
