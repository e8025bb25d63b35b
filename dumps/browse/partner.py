"""Partners across autograd: the backward nodes that belong to a forward node, and the reverse. Reads tables only.

Two graphs belong together by their ids (`0_0/forward`, `0_0/backward`; a second backward is `.1`); a joint graph is its
own partner. AOTAutograd numbers the operations of the forward (`seq_nr`), and a backward node has the number of the
operation whose gradient it helps to compute, so one node has many partners; a value saved by the forward has the same
name in the backward. The graph.json of a large graph is not read.

>>> [partner.name for partner in partners(saved, view, view.position("addmm_1"))]
['mm', 'mm_1', 'sum_1', 'permute_2', 'permute_3', 'view']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import NoPartnerError
from ..short import base_name
from ..sidecar import Table
from ..store import SavedGraph
from .table import GraphView

JOINT = ("joint", "joint_passed")
"""Stages whose graphs contain both forward and backward."""

SAVED, AGAIN, NUMBER = "saved value", "computed again", "same seq_nr"
"""How two nodes belong together: the forward saves the value, the backward recomputes it, or they have the same
number."""

_VIEWS = "view _unsafe_view reshape permute t transpose expand squeeze unsqueeze slice select alias as_strided"
_LIGHT = frozenset(("getitem", "clone", *_VIEWS.split()))
_NO_SIDES = {"inference": "nothing was differentiated", "compiled_autograd": "its forward graph was not recorded"}


@dataclass(frozen=True)
class Partner:
    """A node of the graph `graph` (an id of the same run), its position there, and how it is known to belong."""

    graph: str
    index: int
    name: str
    how: str


def graph_of(saved: SavedGraph) -> SavedGraph:
    """The partner graph: the backward of a forward, the forward of a backward, a joint graph itself.

    Raises UsageError with the reason where there is none.
    """
    if saved.stage in JOINT:
        return saved
    here, there = ("forward", "backward") if "forward" in saved.stage else ("backward", "forward")
    if here not in saved.stage:
        words = _NO_SIDES.get(saved.stage.removeprefix("post_grad_"), "it is recorded before autograd splits it")
        why = f"its stage is {saved.stage}: {words}"
        raise NoPartnerError(f"{saved.id} has no partner", why, "name a forward, backward or joint graph")
    if saved.run is None:
        raise NoPartnerError(
            f"{saved.path} has no partner", "it is a case folder, which holds one graph", "name a graph of a run"
        )
    wanted = there.join(saved.id.rsplit(here, 1))
    graphs = {graph.id: graph for graph in saved.run.graphs()}
    if wanted not in graphs:  # a second backward of the same forward
        wanted = re.sub(r"\.\d+$", "", wanted)
    if wanted not in graphs:
        raise NoPartnerError(f"{saved.id} has no partner", f"its run, {saved.run.path.name}, holds no {wanted}")
    return graphs[wanted]


def partners(saved: SavedGraph, view: GraphView, index: int, other: SavedGraph | None = None) -> list[Partner]:
    """The partners of the node at that position, the most relevant first. `other` is the partner graph, if known.

    Raises UsageError with the reason where there are none.
    """
    other = other or graph_of(saved)
    table = view.table if other is saved else other.table
    name, number = view.table.name[index], view.table.seq_nr[index]
    partners_found: list[Partner] = []
    backward: set[int] = set()
    if other is saved:
        backward = set(behind_tangents(table))
        same = [at for at in numbered(table, number) if (at in backward) != (index in backward)]
    else:
        same = numbered(table, number) if _is_call(view.table, index) else []
        twin = _position(table, name)
        if twin is not None and table.strings[table.op[twin]] != "output":
            again = _is_call(table, twin) and _is_call(view.table, index)
            partners_found.append(Partner(other.id, twin, name, AGAIN if again else SAVED))
            if again and "backward" in saved.stage:
                return partners_found
        if "backward" in other.stage:  # a recomputed value is no gradient
            known = set(view.table.name)
            same = [at for at in same if table.name[at] not in known]
        else:
            same = [at for at in same if at != twin]
    later = index not in backward if backward else "backward" in other.stage
    partners_found = [
        Partner(other.id, at, table.name[at], NUMBER) for at in _main_first(table, same, backward=later)
    ] + partners_found
    if partners_found:
        return partners_found
    raise NoPartnerError(f"{name} has no partner in {other.id}", _why(view.table, index))


def numbered(table: Table, number: int) -> list[int]:
    """The positions of the calls with that seq_nr."""
    return [at for at, each in enumerate(table.seq_nr) if each == number and _is_call(table, at)] if number >= 0 else []


def behind_tangents(table: Table) -> Iterator[int]:
    """Yields the positions of tangents, and of all nodes computed from them."""
    behind: set[int] = set()
    for index, used in enumerate(table.inputs):
        tangent = not used and table.strings[table.op[index]] == "placeholder" and "tangents" in table.name[index]
        if tangent or any(at in behind for at in used):
            behind.add(index)
            yield index


def _why(table: Table, index: int) -> str:
    op = table.strings[table.op[index]]
    if op == "output":
        return "it is the output"
    if op == "placeholder":
        return "it is an input that the other side does not take"
    if table.seq_nr[index] < 0:
        return "it has no seq_nr: autograd did not number its operation"
    return "no node there has the same seq_nr"


def _position(table: Table, name: str) -> int | None:
    return table.name.index(name) if name in table.name else None


def _is_call(table: Table, index: int) -> bool:
    return table.strings[table.op[index]].startswith("call_")


def _main_first(table: Table, same: list[int], *, backward: bool) -> list[int]:
    """The partners in order: first nodes that compute, then those that only take views or parts. Those of a forward go
    from the last on, as the last returns the operation's value."""
    return sorted(same, key=lambda at: (base_name(table.strings[table.target[at]]) in _LIGHT, at if backward else -at))
