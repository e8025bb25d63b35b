"""Which nodes a text names: one, a stretch in the order of the graph, or several of those. Reads the sidecar alone.

>>> positions(saved, "addmm..mul,mul_2")
[6, 7, 11]
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ..errors import UsageError
from ..store import SavedGraph

_TRIED = 20_000


def no_node(saved: SavedGraph, names: Sequence[str], name: str) -> UsageError:
    """The error for a node that does not exist, with similar names."""
    alike = [other for other in names if name in other][:3] or difflib.get_close_matches(name, names[:_TRIED], 3, 0.5)
    hint = f"names like it are {', '.join(alike)}" if alike else "its names are listed by graphdbg show"
    return UsageError(f"{saved.id} has no node {name!r}", "", hint)


def positions(saved: SavedGraph, text: str) -> list[int]:
    """The places of the nodes in `A`, `A..B` (both included) or `A,B..C`, in order. Raises UsageError for a name that
    the graph does not have, and for a stretch that runs backwards."""
    names = saved.table.name
    places = {name: place for place, name in enumerate(names)}
    node_places: set[int] = set()
    for part in filter(None, (term.strip() for term in text.split(","))):
        first, _, last = part.partition("..")
        ends = [first, last or first]
        if not first or part.endswith(".."):
            raise UsageError(f"--nodes {part!r} has one end", "", "name both: A..B")
        for name in ends:
            if name not in places:
                raise no_node(saved, names, name)
        start, end = (places[name] for name in ends)
        if end < start:
            raise UsageError(
                f"{last} comes before {first} in this graph", "", f"turn them round: --nodes {last}..{first}"
            )
        node_places.update(range(start, end + 1))
    if not node_places:
        raise UsageError("--nodes names no node", "", "name one, a stretch A..B, or several: A,B..C")
    return sorted(node_places)
