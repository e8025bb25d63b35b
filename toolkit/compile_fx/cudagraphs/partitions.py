"""What each part of a split graph is given: the facts about the whole graph's inputs, by the part's own input numbers.

A part may take values that another part made: these are no inputs of the graph, they have no name of the user's and
nothing is known of them. Pure: reads torch's partition maps, calls nothing.

>>> [facts.static for facts in split(whole, maps)]
[(1,), ()]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import _torch as t
from ..input_names import InputName, name_at


@dataclass(frozen=True)
class Facts:
    """What recording a call needs to know. Indices are of the call's inputs; `stacks` are of its outputs."""

    names: Sequence[Any]
    static: tuple[int, ...]
    mutated: tuple[int, ...]
    placeholders: Sequence[Any] = ()
    """Torch's own descriptions of the inputs, for its trees."""
    stacks: Sequence[str | None] = ()
    constants: dict[str, Any] | None = None


def split(whole: Facts, maps: Sequence[Any]) -> list[Facts]:
    """The facts of each partition. `maps` are torch's GraphPartitionMap."""
    return [_part(whole, one) for one in maps]


def _part(whole: Facts, one: Any) -> Facts:
    inputs: list[int | None] = list(one.input_index_mapping)
    between = [f"partition_{one.id}_placeholder_{place}" for place in range(len(inputs))]
    known = whole.constants or {}
    return Facts(
        names=[InputName(between[i]) if at is None else name_at(whole.names, at) for i, at in enumerate(inputs)],
        static=tuple(i for i, at in enumerate(inputs) if at is not None and at in whole.static),
        mutated=tuple(i for i, at in enumerate(inputs) if at is not None and at in whole.mutated),
        placeholders=[
            t.placeholder_info(between[i]) if at is None else whole.placeholders[at] for i, at in enumerate(inputs)
        ],
        stacks=[None if at is None else whole.stacks[at] for at in one.output_index_mapping],
        constants={name: known[name] for name in one.constant_names},
    )
