"""From a graph and what the user wants to see of it to a finished picture: chooses the view, renders it, says what it
drew.

For example:

    drawn = draw(saved, Path("forward.svg"), around="mm_3")
    drawn.view, drawn.boxes  # -> ('around', 17)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...dumps.browse.partner import JOINT
from ...dumps.wording import counted
from . import LARGE, partners, render
from .dot import View
from .nodes import around as neighbourhood
from .nodes import whole
from .overview import overview
from .source import DrawnGraph, of_saved

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

HOPS = 2


class Drawn(msgspec.Struct):
    """What was drawn. `nodes` counts the graph's nodes in the picture, `boxes` its boxes."""

    path: str
    view: str
    renderer: str
    nodes: int
    boxes: int
    edges: int
    clusters: int
    seconds: float
    notes: list[str] = []


class Wanted(msgspec.Struct, frozen=True):
    """What the user wants to see: the neighbourhood of a node, boxes of modules (`depth` levels open), both sides of
    autograd."""

    around: str = ""
    hops: int = HOPS
    by_module: bool = False
    depth: int | None = None
    with_backward: bool = False


def draw(
    saved: SavedGraph,
    path: Path,
    wanted: Wanted | None = None,
    *,
    limit_s: float = render.LIMIT_S,
    report: Callable[[str], None] | None = None,
) -> Drawn:
    """Draws a saved graph into a new file whose suffix says the format; `report` is called with sentences about choices
    made.

    Raises UsageError for an unknown node, suffix or existing file, EnvironmentLackError when nothing here can render
    it.
    """
    started = time.perf_counter()
    wanted = wanted or Wanted()
    render.refuse_existing(path)
    render.refuse_without_renderer(render.format_of(path))
    if wanted.with_backward:
        view = partners.side_by_side(*partners.of(saved), by_module=wanted.by_module, depth=wanted.depth)
    else:
        view = view_of(of_saved(saved), wanted)
    if report is not None and view.kind == "by-module" and not wanted.by_module:
        report(
            f"{saved.id} is too large to be drawn node by node: this is its overview (--around NODE draws a "
            "neighbourhood)"
        )
    return finish(view, path, started, limit_s)


def view_of(graph: DrawnGraph, wanted: Wanted) -> View:
    """The wanted view of one graph; the overview of a large one, unless a neighbourhood is asked for."""
    view = _chosen(graph, wanted)
    if graph.inner:
        view.notes.append(f"its {counted(graph.inner, 'subgraph is', 'subgraphs are')} not drawn")
    return view


def _chosen(graph: DrawnGraph, wanted: Wanted) -> View:
    if wanted.around:
        return neighbourhood(graph, wanted.around, wanted.hops)
    if wanted.by_module or len(graph.nodes) > LARGE:
        if graph.stage in JOINT and any(node.backward for node in graph.nodes):
            return partners.side_by_side(*partners.halves(graph), by_module=True, depth=wanted.depth)
        return overview(graph, wanted.depth)
    return whole(graph)


def finish(view: View, path: Path, started: float, limit_s: float = render.LIMIT_S) -> Drawn:
    """Renders a view into a new file; `started` is when the work on it began."""
    from . import dot  # late: pydot

    renderer = render.write(dot.source(view), path, limit_s=limit_s)
    notes = [
        *view.notes,
        *(["it was too large for a .png and was made smaller: try .svg"] if render.was_scaled(path) else []),
    ]
    nodes = sum(len(box.nodes) for box in view.boxes)
    return Drawn(
        str(path),
        view.kind,
        renderer,
        nodes,
        len(view.boxes),
        len(view.edges),
        len(view.clusters),
        round(time.perf_counter() - started, 3),
        notes,
    )
