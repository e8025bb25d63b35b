"""Finds text in names, targets, modules and file:line, or else in the user's lines of code, and steps from hit to hit.

One line of code makes many nodes: who searches for `relu`, and has nodes of that name, means those nodes. Case matters
only where the searched text has capital letters. `find_place` finds the one node that a user typed. Does not change
what is shown.

>>> hits = hits_of(view, "addmm")
>>> step(hits, at=6, forward=True)
Hit(node=13, number=2, wrapped=False)
"""

from __future__ import annotations

import difflib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import NoSuchNodeError
from ..wording import counted
from .table import GraphView

COLUMNS = (("target", "module", "where"), ("code",))
"""The later columns are searched only where the names and earlier columns have no hit."""


class Hit(NamedTuple):
    """A hit. `number` counts from 1; `wrapped`: the search passed the end (or the beginning)."""

    node: int
    number: int
    wrapped: bool


def hits_of(view: GraphView, text: str, nodes: Sequence[int] | None = None) -> list[int]:
    """The nodes that contain the text, in graph order; `nodes`: only among these."""
    if not text:
        return []
    exact = text != text.lower()
    names = view.table.name if exact else view.lower_names
    searched = range(len(view)) if nodes is None else nodes
    for round_, columns in enumerate(COLUMNS):
        checks: list[tuple[Sequence[int], set[int]]] = []
        for column in columns:
            texts = {at for at in view.distinct(column) if text in (view.text[at] if exact else view.text[at].lower())}
            if texts:
                checks.append((view.column(column), texts))
        hits: set[int] = set() if round_ else {node for node in searched if text in names[node]}
        for values, wanted in checks:
            hits.update(node for node in searched if values[node] in wanted)
        if hits:
            return sorted(hits)
    return []


def step(hits: Sequence[int], at: int, forward: bool) -> Hit | None:
    """The next hit after (or before) a node in graph order; None where there are no hits."""
    if not hits:
        return None
    place = bisect_right(hits, at) if forward else bisect_left(hits, at) - 1
    wrapped = not 0 <= place < len(hits)
    return Hit(hits[place % len(hits)], place % len(hits) + 1, wrapped)


NEAR = 3
_TRIED = 20_000


def find_place(view: GraphView, text: str) -> int:
    """The position of the node that a user typed; raises UsageError with the most similar names."""
    text = text.strip()
    place = view.position(text)
    if place is not None:
        return place
    number = text.removeprefix("#")
    if number.isascii() and number.isdecimal():
        if int(number) < len(view):
            return int(number)
        raise NoSuchNodeError(
            f"there is no node {number}",
            f"the last of {counted(len(view), 'node', form=',')} has number {len(view) - 1}",
        )
    if ":" in text:
        return _first_from_line(view, text)
    low = text.lower()
    begins = [name for name in view.table.name if name.lower().startswith(low)] if low else []
    if len(begins) == 1 or (begins and begins[0].lower() == low):
        return view.positions[begins[0]]
    if begins:
        raise NoSuchNodeError(
            f"no node is called {text!r}", f"{len(begins):,} names begin with it: {', '.join(begins[:NEAR])} ..."
        )
    near = alike(view.table.name, text)
    raise NoSuchNodeError(f"no node is called {text!r}", "", f"did you mean {' or '.join(near)}" if near else "")


def _first_from_line(view: GraphView, text: str) -> int:
    """The first node from a line such as `train.py:12`, given with or without folders. Raises NoSuchNodeError."""
    lines_asked = {at for at in view.distinct("where") if view.text[at] and view.text[at].endswith(text)}
    column = view.table.where
    for index in range(len(view)):
        if column[index] in lines_asked:
            return index
    lines = sorted({view.text[at] for at in view.distinct("where") if view.text[at]})
    near = difflib.get_close_matches(text, lines, n=NEAR)
    fix = f"lines with nodes are {', '.join(near or lines[:NEAR])}"
    raise NoSuchNodeError(f"no node comes from the line {text!r}", "", fix)


def alike(names: Sequence[str], text: str) -> list[str]:
    """The names that contain the text; else the most similar ones, in a large graph among its first."""
    inside = [name for name in names if text in name][:NEAR]
    return inside or difflib.get_close_matches(text, names[:_TRIED], NEAR, 0.5)
