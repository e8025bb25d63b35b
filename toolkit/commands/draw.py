"""`graphdbg draw`: a picture of a graph, or of a part of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import msgspec

from ...dumps.atomic import free_path
from ...dumps.commands.options import json_option
from ...dumps.errors import CommandLineError, OptionsExcludeError
from ...dumps.output import emit, say
from ...dumps.store import resolve_graph
from ...dumps.wording import counted
from ..drawing.picture import HOPS, LIMIT_S, Wanted
from .options import limit_option


@click.command()
@click.argument("graph", metavar="RUN/ID")
@click.option(
    "-o", "--output", metavar="FILE", help="New file; .svg, .png, .pdf or .dot. Default: graphdbg-<id>.svg, numbered."
)
@click.option("--around", metavar="NODE", default="", help="Only that node and what lies near it.")
@click.option(
    "--hops", type=click.IntRange(min=0), help=f"With --around: how many steps away, both ways.  [default: {HOPS}]"
)
@click.option("--by-module", is_flag=True, help="One box for each module; large graphs are always drawn so.")
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --by-module: how many levels of modules to open. Default: as many as stay readable.",
)
@click.option("--with-backward", is_flag=True, help="Forward and backward side by side, joined by the saved tensors.")
@limit_option("Seconds that Graphviz may take.", LIMIT_S)
@json_option()
def draw(
    graph: str,
    output: str | None,
    around: str,
    hops: int | None,
    by_module: bool,
    depth: int | None,
    with_backward: bool,
    limit_s: float,
    as_json: bool,
) -> None:
    """Draw a graph: boxes by op family, frames by module, edges with dtype and shape.

    A graph of more than 300 nodes is drawn by module; to look into it, draw the neighbourhood of one node with
    --around. Needs no Graphviz on PATH: pygraphviz brings one. Nothing is overwritten. An .svg shows details of a
    box under the mouse; stdout is the path of the picture.
    """
    if hops is not None and not around:
        raise CommandLineError("--hops needs --around", "it counts steps from that node", "add --around NODE")
    if around and (by_module or with_backward):
        what = "--around cannot be used with --by-module or --with-backward"
        raise OptionsExcludeError(what, "each is a view of its own", "leave one out")
    from ..drawing import picture

    saved = resolve_graph(graph)
    wanted = Wanted(around, HOPS if hops is None else hops, by_module or depth is not None, depth, with_backward)
    out = Path(output) if output else free_path("graphdbg-" + saved.id.replace("/", "-").replace(":", "-"), ".svg")
    drawn = picture.draw(saved, out, wanted, limit_s=limit_s, report=say)
    if as_json:
        emit(msgspec.to_builtins(drawn), as_json=True, next=[shlex.join(["graphdbg", "show", graph])])
        return
    nodes = counted(drawn.nodes, "node")
    boxes = f"{counted(drawn.boxes, 'box')} for {nodes}" if drawn.boxes != drawn.nodes else nodes
    for note in drawn.notes:
        say(note)
    say(f"{saved.id}: {boxes}, {counted(drawn.edges, 'edge')}, {drawn.seconds:.1f} s")
    emit(drawn.path, as_json=False)
