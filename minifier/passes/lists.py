"""Lists: operators that are given lists of tensors (`cat`, `stack`, `_foreach_add`) are given shorter ones.

The first element stays where it can. What gives a list of as many results (`EACH`) loses the result, too, which
nothing may read, and so do its other lists of that length. What eager refuses is not proposed.

>>> propose(Live(torch.fx.symbolic_trace(lambda x: torch.cat([x, x, x])), [torch.ones(2)]))
[['lists cat 0 2', 'lists cat 0 1'], ['lists cat 0 0']]
"""

from __future__ import annotations

from typing import Any, cast

from torch import fx

from ...toolkit.cutting.atoms import target_name
from ...toolkit.live.case import Live
from ...toolkit.live.eager import copy_graph
from . import Pass
from .forms import fitting
from .symbolic import fewer, renewed

EACH = ("_foreach", "meshgrid", "broadcast_tensors", "atleast_")
"""How the names of operators begin that give a result for each element."""


def propose(case: Live) -> list[list[str]]:
    """All elements but the first, from the last on, so that the others keep their numbers; then the first."""
    places = [(node, place) for node in case.gm.graph.nodes for place in _lists(node)[: 1 if _each(node) else None]]
    rounds: list[list[str]] = [[], []]
    for node, place in places:
        for at in reversed(range(len(_elements(node, place)))):
            rounds[not at].append(f"lists {node.name} {place} {at}")
    return fitting(case, rounds, apply)


def apply(case: Live, edit: str) -> Live:
    """The case with one element fewer in a list; inputs that nothing reads any more go."""
    _, name, place, number = edit.split(" ")
    gm = copy_graph(case.gm)
    node = next((node for node in gm.graph.nodes if node.name == name and int(place) in _lists(node)), None)
    at = int(number)
    if node is None or at >= len(_elements(node, int(place))):
        raise ValueError(f"there is no list of {name} with an element {at}")
    read = node.all_input_nodes
    places = [int(place)]
    if _each(node):
        places = [each for each in range(len(node.args)) if _length(node, each) == _length(node, int(place))]
        _without_result(node, at)
    for each in places:
        elements = _elements(node, each)
        node.update_arg(each, [*elements[:at], *elements[at + 1 :]])
    less = fewer(case, gm, read)
    return renewed(less, less.gm, less.inputs)


def _lists(node: fx.Node) -> list[int]:
    """The places of arguments that are lists of at least two values of the graph."""
    places = range(len(node.args)) if node.op == "call_function" else ()
    return [
        at for at in places if _length(node, at) > 1 and all(isinstance(item, fx.Node) for item in _elements(node, at))
    ]


def _each(node: fx.Node) -> bool:
    return target_name(node).startswith(EACH)


def _elements(node: fx.Node, place: int) -> list[Any]:
    return list(cast(Any, node.args[place]))


def _length(node: fx.Node, place: int) -> int:
    given = node.args[place]
    return len(given) if isinstance(given, (list, tuple)) else 0


def _without_result(node: fx.Node, at: int) -> None:
    """The results behind one that goes are read by their new number. Raises ValueError where that one is read."""
    for user in list(node.users):
        which = user.args[1] if target_name(user) == "getitem" else None
        if not isinstance(which, int) or (which == at and user.users):
            raise ValueError(f"result {at} of {node.name} is read")
        if which == at:
            user.graph.erase_node(user)
        elif which > at:
            user.args = (node, which - 1)


PASS = Pass(
    order=25,
    words="shorter lists of tensors",
    edits={"lists * * *": "{1} without element {3} of its list"},
    unneeded={"lists": "lists of so many tensors"},
    runs_eager=True,
)
