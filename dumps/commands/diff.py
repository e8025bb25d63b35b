"""`graphdbg diff`: compares two graphs, stages, recompiles, processes or runs, and shows the first node that differs
and its line."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from ..errors import CommandLineError
from ..output import emit, say
from ..store import SavedGraph
from ..tables import on_terminal
from .options import json_option

if TYPE_CHECKING:
    from ..diff.view import GraphPairView
    from ..store import Run

DIFFERENCE_EXIT = 1


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option("--all", "everything", is_flag=True, help="List every node that departs, and every pair of graphs.")
@click.option(
    "--side-by-side", is_flag=True, help="Print both graphs beside each other; without --all only what differs."
)
@click.option("--by-seq-nr", is_flag=True, help="Put a forward beside its backward: nodes of one seq_nr in one line.")
@json_option()
def diff(a: str, b: str | None, everything: bool, side_by_side: bool, by_seq_nr: bool, as_json: bool) -> int:
    """Compare two graphs, runs, processes, recompiles or stages.

    \b
    RUN/0_0/forward RUN2/0_0/forward  two graphs
    RUN RUN2                          two runs, graph by graph
    RUN/0: RUN/1:                     two ranks; RUN alone: all with the first
    RUN/0_0 RUN/0_1                   two recompiles of one function
    RUN/0_0/joint RUN/0_0/forward     two stages

    Nodes are aligned by what they compute and where they come from, never by name: a node that was renamed or moved
    is no difference.
    """
    collecting = gc.isenabled()
    gc.disable()  # many small objects, and next to no garbage: collecting would cost more than all the rest
    try:
        if side_by_side or by_seq_nr:
            return _beside(a, b, everything, by_seq_nr, as_json)
        return _diff(a, b, everything, as_json)
    finally:
        if collecting:
            gc.enable()


def _diff(a: str, b: str | None, everything: bool, as_json: bool) -> int:
    from ..diff import view as text
    from ..diff.pair import pair_view, pairs, ranks, side

    left, sides = side(a), list[str]()
    two = None if b is None else side(b)
    if two is not None:
        pairs_left = pairs(left, two)
    elif isinstance(left, SavedGraph):
        raise CommandLineError("diff needs a second graph", f"only {a} is named", "name it: graphdbg diff A B")
    else:
        compared = ranks(left)
        sides = [f"A  {compared[0][0].text}", f"B  {', '.join(other.text for _, other in compared)}"]
        pairs_left = [pair for first, other in compared for pair in pairs(first, other)]
    single = isinstance(left, SavedGraph) or isinstance(two, SavedGraph)
    pairs_left.reverse()
    views: list[GraphPairView] = []
    while pairs_left:  # a pair keeps its graphs once they are read, so no pair is kept
        views.append(pair_view(pairs_left.pop(), everything=everything, strict=single, rank=two is None))
    _name_functions(views, [part.run for part in (left, two) if part is not None and part.run is not None])
    same = all(view.verdict == "same" for view in views)
    if as_json:
        closer = [
            shlex.join(["graphdbg", "diff", view.a, view.b, *["--side-by-side"] * single])
            for view in views
            if view.verdict == "differs" and view.a and view.b
        ]
        emit({"a": a, "b": b, "same": same, "graphs": msgspec.to_builtins(views)}, as_json=True, next=closer[:1])
        return 0 if same else DIFFERENCE_EXIT
    for view in views:
        if view.verdict == "unreadable":
            say(f"note: {view.notes[0]}")
    shown = views if single else [view for view in views if view.verdict in ("differs", "settings")][:1]
    parts = [] if single else [*sides, text.overview(views, terminal=on_terminal(), everything=everything)]
    parts += ["", "the first that differs:"] if shown and not single else []
    parts += [text.details(view, terminal=on_terminal(), everything=everything) for view in shown]
    parts += ["", f"next: {look}"] if single and (look := _look(views[0])) else []
    emit("\n".join(parts), as_json=False)
    return 0 if same else DIFFERENCE_EXIT


def _look(view: GraphPairView) -> str:
    """The command that shows the first differing node; empty where none differs."""
    graph, node = (view.b, view.first.b) if view.first and view.first.b else (view.a, view.first and view.first.a)
    return shlex.join(["graphdbg", "show", graph, "--node", node.name]) if graph and node else ""


def _name_functions(views: Sequence[GraphPairView], runs: Sequence[Run]) -> None:
    """Adds to each graph that only one side has a note with the function it was compiled from."""
    from ..why.times import of_run

    alone = [view for view in views if view.verdict in ("only_a", "only_b")]
    if not alone:
        return
    functions = {f"{run.path}/{at.id}".rpartition("/")[0]: at.function for run in runs for at in of_run(run)}
    for view in alone:
        name = functions.get(f"{view.a or view.b}".rpartition("/")[0])
        view.notes = [name] if name else []


def _beside(a: str, b: str | None, everything: bool, by_seq_nr: bool, as_json: bool) -> int:
    from ..diff.beside import beside, beside_text
    from ..store import resolve_graph

    if b is None:
        option = "--by-seq-nr" if by_seq_nr else "--side-by-side"
        raise CommandLineError(f"{option} needs two graphs", "only one is named", f"graphdbg diff A B {option}")
    lines = beside(resolve_graph(a), resolve_graph(b), by_seq_nr=by_seq_nr)
    same = by_seq_nr or lines.same
    if as_json:
        emit({"a": a, "b": b, "same": same, "side_by_side": msgspec.to_builtins(lines)}, as_json=True)
    else:
        emit(beside_text(lines, everything=everything, terminal=on_terminal()), as_json=False)
    return 0 if same else DIFFERENCE_EXIT
