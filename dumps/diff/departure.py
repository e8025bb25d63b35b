"""What a comparison finds: one departure is a pair of nodes that differs, or neighbouring nodes that only one graph has.

>>> Departure("changed", [3], [4], [Change("argument", "0.5", "0.25", "argument 1")])
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .values import Change

Kind = Literal["changed", "removed", "added", "replaced"]


class Departure(msgspec.Struct):
    """A pair that differs, or neighbouring nodes of one graph, or both, that have no partner in the other.

    `follows` is the position of the departure that this one merely follows from; None: it departs by itself.
    """

    kind: Kind
    a: list[int]
    b: list[int]
    changes: list[Change] = []
    follows: int | None = None
