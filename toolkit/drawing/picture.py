"""Makes a finished picture of a graph: chooses the view that the user wants, renders it, and says what it drew.

Also: DOT into svg, png or pdf: by `dot` where it is on PATH, else by the Graphviz that pygraphviz's wheel brings
along.

Also: forward and backward side by side, joined by the tensors that one saves for the other.

For example:

    drawn = draw(saved, Path("forward.svg"), around="mm_3")
    drawn.view, drawn.boxes  # -> ('around', 17)
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...dumps.atomic import write_file
from ...dumps.browse.captured_backward import facts
from ...dumps.browse.partner import JOINT, graph_of
from ...dumps.deaths import signal_name
from ...dumps.errors import BadValueError, EnvironmentLackError, ExistsAlreadyError, NoPartnerError, PackageMissingError
from ...dumps.schema import GraphRecord
from ...dumps.short import shorten
from ...dumps.store import SavedGraph
from ...dumps.tables import one_line, plain
from ...dumps.wording import counted
from . import LARGE, dot, nodes
from . import overview as overviews
from .dot import Cluster, Edge, View, family, heaviest
from .nodes import GraphShare, whole
from .nodes import around as neighbourhood
from .overview import overview
from .source import DrawnGraph, DrawnNode, of_saved

FORMATS = ("svg", "png", "pdf", "dot")
LIMIT_S = 60.0
_PNG_DPI = "110"
_MOST_PIXELS = 32767
"""Cairo's limit for a side of a bitmap."""


class LayoutTimeoutError(EnvironmentLackError):
    """Graphviz does not end in time."""

    code = "GD76"


def format_of(path: Path) -> str:
    """The format that a file name asks for. Raises UsageError for any other suffix."""
    wanted = path.suffix.lower().removeprefix(".")
    if wanted not in FORMATS:
        why = f"its suffix is {path.suffix!r}" if path.suffix else "it has no suffix"
        suffixes = ", ".join("." + name for name in FORMATS)
        raise BadValueError(f"cannot tell the format of {path}", why, f"end the name in one of {suffixes}")
    return wanted


def refuse_existing(path: Path) -> None:
    """Raises UsageError when there is something of that name."""
    if os.path.lexists(path):
        raise ExistsAlreadyError(f"cannot write {path}", "it exists already", "choose another name or delete it")


def renderers() -> list[str]:
    """The renderers that are installed, the first choice first: "dot", "pygraphviz"."""
    available = ["dot"] if shutil.which("dot") else []
    return available + (["pygraphviz"] if importlib.util.find_spec("pygraphviz") else [])


def refuse_without_renderer(wanted: str) -> None:
    """Raises EnvironmentLackError when nothing here can make that format."""
    if wanted != "dot" and not renderers():
        why = "there is no `dot` on PATH and pygraphviz is not installed"
        fix = "install Graphviz, or run pip install pygraphviz, which includes it, or ask for a .dot file"
        raise PackageMissingError(f"cannot draw a {wanted}", why, fix)


def write(text: str, path: Path, *, limit_s: float = LIMIT_S) -> str:
    """Writes a picture of a DOT text and returns what rendered it. Raises UsageError for an existing path or an unknown
    suffix, EnvironmentLackError when there is no renderer, none of them manages, or the disk refuses."""
    wanted = format_of(path)
    refuse_existing(path)
    if wanted == "dot":
        data, renderer = text.encode(), "pydot"
    else:
        data, renderer = rendered(text, wanted, limit_s)
    if not write_file(path, data, exclusive=True):
        refuse_existing(path)
    return renderer


def rendered(text: str, wanted: str, limit_s: float = LIMIT_S) -> tuple[bytes, str]:
    """The bytes of a picture and what rendered it; raises EnvironmentLackError."""
    refuse_without_renderer(wanted)
    failures: list[str] = []
    for renderer in renderers():
        command = _command(renderer, wanted)
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as error:
            why = f"{renderer} needs more than {limit_s:g} s"
            fix = "draw less (--by-module, or --around NODE with fewer --hops), or give it longer with --limit"
            raise LayoutTimeoutError("the picture could not be laid out", why, fix) from error
        except OSError as error:
            failures.append(f"{renderer} could not be started: {error}")
            continue
        if done.returncode == 0 and done.stdout:
            return centred(done.stdout) if wanted == "svg" else done.stdout, renderer
        failures.append(f"{renderer} {_end(done)}")
    fix = "ask for a .dot file, which needs no Graphviz"
    raise PackageMissingError(f"cannot draw a {wanted}", "; ".join(failures), fix)


def was_scaled(path: Path) -> bool:
    """Whether a picture was too large for its format, so that Graphviz made everything in it smaller."""
    if format_of(path) != "png":
        return False
    with path.open("rb") as file:
        head = file.read(24)
    return max(int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) >= _MOST_PIXELS


def _command(renderer: str, wanted: str) -> list[str]:
    if renderer == "dot":
        return ["dot", f"-T{wanted}", *([f"-Gdpi={_PNG_DPI}"] if wanted == "png" else [])]
    return [sys.executable, "-m", f"{__package__}.layout_child", wanted, _PNG_DPI if wanted == "png" else "0"]


def _end(done: subprocess.CompletedProcess[bytes]) -> str:
    words = [line for line in done.stderr.decode(errors="replace").splitlines() if line and "Fontconfig" not in line]
    said = f" ({one_line(words[-1], 200)})" if words else ""
    if done.returncode < 0:
        return f"was killed by {signal_name(-done.returncode)}{said}"
    return f"ended with code {done.returncode}{said}" if done.returncode else f"wrote nothing{said}"


_NODE = re.compile(rb'<g id="[^"]*" class="node">.*?</g>\s*(?=<!--|<g |</g>)', re.DOTALL)
_OUTLINE = re.compile(rb'<(?:path|polygon)\b[^>]*?\b(?:d|points)="([^"]+)"')
_START = re.compile(rb'(<text\b[^>]*?)text-anchor="start" x="[^"]*"')
_PAIR = re.compile(rb"(-?\d+(?:\.\d+)?),(-?\d+(?:\.\d+)?)")


def centred(svg: bytes) -> bytes:
    """The same picture with every text of a box in the middle of its box, across, so that it fits whatever font the
    reader has.

    Graphviz writes where a text starts, counted from the middle by the width that the text has in the font of the
    machine that drew it. Where a wider font shows it, it would leave its box on the right. Every text of our boxes is
    centred.
    """
    return _NODE.sub(lambda match: _with_middle(match.group(0)), svg)


def _with_middle(node: bytes) -> bytes:
    outline = _OUTLINE.search(node)
    xs = [float(x) for x, _ in _PAIR.findall(outline.group(1))] if outline else []
    if not xs:
        return node
    middle = f"{(min(xs) + max(xs)) / 2:.2f}".encode()
    return _START.sub(rb'\1text-anchor="middle" x="' + middle + rb'"', node)


_SIDES = (("f", "forward"), ("b", "backward"))


@dataclass
class PictureHalf:
    """One half of the picture: a graph, and which of its nodes."""

    graph: DrawnGraph
    chosen: Collection[int]


Link = tuple[int, int]
"""Positions of a forward node and of the backward node that stands for it or uses it."""


def of(saved: SavedGraph) -> tuple[PictureHalf, PictureHalf, list[Link]]:
    """The two halves of a saved graph and its partner, whichever of them is given, or of a joint graph.

    Raises UsageError for a graph of another stage, or whose partner was not recorded.
    """
    if saved.stage in JOINT:
        return halves(of_saved(saved))
    if saved.stage == "compiled_autograd":
        backward = of_saved(saved)
        forward, joined = _autograd_forward(saved.record, backward)
        if not forward.nodes:
            why = "the recording of this backward does not say what its forward was"
            raise NoPartnerError(f"{saved.id} has no forward graph", why, "draw it alone")
    else:
        other = graph_of(saved)
        pair = {saved.stage: of_saved(saved), other.stage: of_saved(other)}
        forward = next(graph for stage, graph in pair.items() if "forward" in stage)
        backward = next(graph for stage, graph in pair.items() if "backward" in stage)
        joined = links(forward, backward)
    return PictureHalf(forward, range(len(forward.nodes))), PictureHalf(backward, range(len(backward.nodes))), joined


def halves(joint: DrawnGraph) -> tuple[PictureHalf, PictureHalf, list[Link]]:
    """The two halves of a joint graph."""
    kept = [node for node in joint.nodes if node.op != "output"]
    forward = [node.index for node in kept if not node.backward]
    backward = [node.index for node in kept if node.backward]
    wires = ((used, index) for index in backward for used in joint.nodes[index].inputs)
    crossing = [(used, index) for used, index in wires if not joint.nodes[used].backward]
    return PictureHalf(joint, forward), PictureHalf(joint, backward), crossing


def links(forward: DrawnGraph, backward: DrawnGraph) -> list[Link]:
    """The forward node behind each saved input of the backward graph."""
    inputs = [node for node in backward.nodes if node.op == "placeholder" and node.family != "tangent"]
    index_of = {node.name: node.index for node in forward.nodes if node.op != "output"}
    sources = {node.index: index_of[node.name] for node in inputs if node.name in index_of}
    saved = [item.node for item in forward.outputs if item.saved]
    if len(sources) < len(inputs) == len(saved):
        for node, index in zip(inputs, saved, strict=True):
            sources.setdefault(node.index, index)
    return [(index, position) for position, index in sources.items()]


def side_by_side(
    forward: PictureHalf,
    backward: PictureHalf,
    joined: list[Link],
    *,
    by_module: bool = False,
    depth: int | None = None,
) -> View:
    """Both halves in one picture, the backward one upside down, so that partners lie at the same height."""
    collapsed = by_module or depth is not None or len(forward.chosen) + len(backward.chosen) > LARGE
    parts = [_part(side, prefix, depth, collapsed=collapsed) for side, prefix in ((forward, "f"), (backward, "b"))]
    _name_gradients(forward, backward, parts[1])
    for edge in parts[1].edges:
        edge.against = True
    saved: dict[tuple[str, str], set[int]] = {}
    for maker, user in joined:
        if maker in parts[0].home and user in parts[1].home:
            saved.setdefault((parts[0].home[maker], parts[1].home[user]), set()).add(maker)
    edges = [Edge(*ends, f"{len(pairs)} saved" if len(pairs) > 1 else "", saved=True) for ends, pairs in saved.items()]
    frames = [Cluster(f"{prefix}side", name, kind="side") for prefix, name in _SIDES]
    count = len({maker for maker, _ in joined})
    what = f"{counted(count, 'tensor')} of the forward graph used by the backward graph: dashed"
    both = forward.graph.id
    if forward.graph is not backward.graph:
        both += f" and {backward.graph.id.rpartition('/')[2]}"
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    total = len(forward.chosen) + len(backward.chosen)
    return View(
        f"{both}: {counted(total, 'node')}" + (" by module" if collapsed else ""),
        "by-module" if collapsed else "nodes",
        [box for part in parts for box in part.boxes],
        frames + [cluster for part in parts for cluster in part.clusters],
        [edge for part in parts for edge in part.edges] + edges,
        [what, *notes],
    )


def _part(side: PictureHalf, prefix: str, depth: int | None, *, collapsed: bool) -> GraphShare:
    if not collapsed:
        return nodes.part_of(side.graph, side.chosen, prefix=prefix, side=f"{prefix}side")
    groups = overviews.plan_of(side.graph, depth, only=side.chosen, wanted=overviews.WANTED // 2)
    return overviews.part_of(side.graph, groups, prefix=prefix, side=f"{prefix}side", only=side.chosen)


def _name_gradients(forward: PictureHalf, backward: PictureHalf, part: GraphShare) -> None:
    """Adds to each box of a backward node which forward op it is a gradient of."""
    parts: dict[int, list[DrawnNode]] = {}  # the nodes of each op that autograd saw: it may have been decomposed
    for index in forward.chosen:
        node = forward.graph.nodes[index]
        if node.seq_nr >= 0 and not node.is_input and node.base != "copy_":
            parts.setdefault(node.seq_nr, []).append(node)
    names = {
        number: next(node.name for node in members if node.family == heaviest([node.family for node in members]))
        for number, members in parts.items()
    }
    homes = {f"bn{index}": backward.graph.nodes[index] for index in backward.chosen}
    for box in part.boxes:
        node = homes.get(box.id)
        if node is None or node.is_input:
            continue
        if node.recomputed:
            box.lines.append("recomputed")
        elif node.summed:
            box.lines.append("sum of gradients")
        elif node.seq_nr in names:
            box.lines.append(f"gradient of {shorten(names[node.seq_nr], 28)}")


_NUMBER = re.compile(r"\(NodeCall (\d+)\)")


def _autograd_forward(record: GraphRecord, backward: DrawnGraph) -> tuple[DrawnGraph, list[tuple[int, int]]]:
    """The forward of a backward that compiled autograd recorded, as its autograd nodes record it (no graph of the
    forward exists): one node for each operation that autograd saw and each parameter, in the forward's order; and which
    of them each saved input of the backward graph is, by the number of its autograd node ("MulBackward0 (NodeCall 3)").
    Empty where the record does not contain it."""
    places: dict[int, int] = {}
    nodes: list[DrawnNode] = []
    for row in facts(record).get("forward", []):
        name, number, made_from, sizes = row
        index = places[number] = len(nodes)
        parameter = not made_from and not _is_operator(name)
        base = name if parameter else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        op, target = ("placeholder", name) if parameter else ("call_function", f"aten.{base}.default")
        inputs = [places[other] for other in made_from if other in places]
        kind = family(op, target, "parameter" if parameter else "")
        value, source = f"[{', '.join(map(str, sizes))}]", plain(name) if parameter else ""
        named = plain(f"{base}_{number}"), op, plain(target), plain(base)
        nodes.append(DrawnNode(index, *named, kind, value, inputs, source=source))
        for used in inputs:
            nodes[used].users.append(index)
    _lend(record, backward, nodes, places)
    linked = [
        (places[number], node.index)
        for node in backward.nodes
        if node.op == "placeholder" and (number := _number(node.source)) in places
    ]
    return DrawnGraph(f"the forward of {record.id}", "forward", nodes), linked


def _lend(record: GraphRecord, backward: DrawnGraph, nodes: list[DrawnNode], places: dict[int, int]) -> None:
    """Copies the user's lines to the backward's nodes, with a common number by which a box says whose gradient it
    is."""
    for node, recorded in zip(backward.nodes, record.graph.nodes, strict=True):
        index = places.get(_number(str(recorded.meta.get("autograd_node", ""))))
        if index is not None:
            nodes[index].where, nodes[index].code, nodes[index].frames = node.where, node.code, node.frames
            nodes[index].seq_nr = node.seq_nr = 1 + index


def _is_operator(name: str) -> bool:
    return name[:1].isupper() and "." not in name and name.isidentifier()


def _number(text: str) -> int:
    match = _NUMBER.search(text)
    return int(match[1]) if match else -1


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
    limit_s: float = LIMIT_S,
    report: Callable[[str], None] | None = None,
) -> Drawn:
    """Draws a saved graph into a new file whose suffix says the format; `report` is called with sentences about choices
    made.

    Raises UsageError for an unknown node, suffix or existing file, EnvironmentLackError when nothing here can render
    it.
    """
    started = time.perf_counter()
    wanted = wanted or Wanted()
    refuse_existing(path)
    refuse_without_renderer(format_of(path))
    if wanted.with_backward:
        view = side_by_side(*of(saved), by_module=wanted.by_module, depth=wanted.depth)
    else:
        view = view_of(of_saved(saved), wanted)
    if report is not None and view.kind == "by-module" and not wanted.by_module:
        large = f"{saved.id} is too large to be drawn node by node"
        report(f"{large}: this is its overview (--around NODE draws a neighbourhood)")
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
            return side_by_side(*halves(graph), by_module=True, depth=wanted.depth)
        return overview(graph, wanted.depth)
    return whole(graph)


def finish(view: View, path: Path, started: float, limit_s: float = LIMIT_S) -> Drawn:
    """Renders a view into a new file; `started` is when the work on it began."""
    renderer = write(dot.source(view), path, limit_s=limit_s)
    notes = [*view.notes, *(["it was too large for a .png and was made smaller: try .svg"] if was_scaled(path) else [])]
    counts = sum(len(box.nodes) for box in view.boxes), len(view.boxes), len(view.edges), len(view.clusters)
    return Drawn(str(path), view.kind, renderer, *counts, round(time.perf_counter() - started, 3), notes)
