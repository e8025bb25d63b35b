"""The comparison of two saved graphs, and of the two graphs of a pair with what their journals say of them.

>>> found = diff(run.graph("0_0/forward"), run.graph("0_1/forward"))
>>> found.same, found.first
(False, Departure(kind='changed', a=[2], b=[3], ...))
"""

from __future__ import annotations

from ..errors import GraphdbgError
from ..store import SavedGraph
from .compare import GraphDiff, compare
from .model import GraphView, graph_view
from .pair import Pair


def diff(a: SavedGraph, b: SavedGraph) -> GraphDiff:
    """Aligns two saved graphs and says where they depart; raises UnreadableError when one of them is damaged."""
    return compare(a.record, b.record)


def pair_view(pair: Pair, *, everything: bool = False, strict: bool = False, rank: bool = False) -> GraphView:
    """The comparison of a pair as data; a damaged graph raises when `strict`, else its verdict is "unreadable". With `rank`, it
    is called by the id of B with its rank."""
    view = GraphView(_name(pair.a), _name(pair.b), "only_a" if pair.b is None else "only_b")
    if pair.a is not None and pair.b is not None:
        try:
            view = graph_view(diff(pair.a, pair.b), view.a or "", view.b or "", everything=everything)
        except GraphdbgError as error:
            if strict:
                raise
            view = GraphView(view.a, view.b, "unreadable", notes=[str(error)])
    graphs = [graph for graph in (pair.a, pair.b) if graph is not None]
    view.stage_a, view.stage_b = (graph.stage if graph else None for graph in (pair.a, pair.b))
    view.error_a, view.error_b = (graph.error if graph else None for graph in (pair.a, pair.b))
    view.id = graphs[-1].id if rank else _common([graph.local_id for graph in graphs if graph.run is not None])
    return view


def _common(ids: list[str]) -> str:
    """The one id of both graphs; of two compiles both names and the stage; empty for graphs that have nothing in common."""
    compiles, stages = [[local.partition("/")[part] for local in dict.fromkeys(ids)] for part in (0, 2)]
    if len(compiles) < 2:
        return "/".join([*compiles, *stages])
    return f"{' | '.join(compiles)} {stages[0]}" if len(set(stages)) == 1 else ""


def _name(graph: SavedGraph | None) -> str | None:
    if graph is None:
        return None
    return f"{graph.run.path}/{graph.id}" if graph.run else str(graph.path)
