"""Finding text in names, targets, modules and file:line, or else in the code of user lines, and stepping from hit to hit.

One line of code makes many nodes: who looks for `relu` and has nodes of that name means these. Capital letters count only where
the text that is looked for has some. Must not change what is shown.

>>> hits = finish(hits_of(view, "attention"))
>>> step(hits, at=57, forward=True)
Hit(node=61, number=12, wrapped=False)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from .slices import Steps, pieces
from .table import GraphView

COLUMNS = (("target", "module", "where"), ("code",))
"""The later ones count only where the earlier ones, and the names, have no hit."""


class Hit(NamedTuple):
    """`number` counts from 1; `wrapped`: the end (or the beginning) was passed."""

    node: int
    number: int
    wrapped: bool


def hits_of(view: GraphView, text: str, nodes: Sequence[int] | None = None) -> Steps[list[int]]:
    """The nodes that have the text somewhere, in order of the graph; `nodes`: only among these."""
    if not text:
        return []
    exact = text != text.lower()
    names = view.table.name if exact else view.lower_names
    yield
    for round_, columns in enumerate(COLUMNS if view.whole else COLUMNS[:1]):
        checks: list[tuple[Sequence[int], set[int]]] = []
        for column in columns:
            texts = {at for at in view.distinct(column) if text in (view.text[at] if exact else view.text[at].lower())}
            if texts:
                checks.append((view.column(column), texts))
            yield
        hits: list[int] = []
        for piece in pieces(range(len(view)) if nodes is None else nodes):
            found: set[int] = set() if round_ else {node for node in piece if text in names[node]}
            for values, wanted in checks:
                found.update(node for node in piece if values[node] in wanted)
            hits.extend(sorted(found))
            yield
        if hits:
            return hits
    return []


def step(hits: Sequence[int], at: int, forward: bool) -> Hit | None:
    """The next hit behind (or before) a node in order of the graph; None where there is none at all."""
    if not hits:
        return None
    place = bisect_right(hits, at) if forward else bisect_left(hits, at) - 1
    wrapped = not 0 <= place < len(hits)
    return Hit(hits[place % len(hits)], place % len(hits) + 1, wrapped)
