"""A view as DOT, built by pydot: fills by family, frames for clusters, labels that fit, a legend. Says nothing of a
renderer.

Every text of a view comes from somebody's graph and is escaped here; ids are our own. Does not decide what is shown.

>>> from graphdbg.toolkit.drawing.nodes import whole
>>> from graphdbg.toolkit.drawing.source import of_saved
>>> source(whole(of_saved(saved))).startswith("digraph")
True
"""

from __future__ import annotations

from typing import Any

from ...dumps.errors import EnvironmentLackError
from ...dumps.markup import escaped
from ...dumps.tables import plain
from .families import FAMILIES
from .model import Box, Cluster, Edge, View

_WIDTHS = (
    (0.32, "'IJijl ,./:;\\f|"),
    (0.4, "-!()[]t"),
    (0.45, "r"),
    (0.5, '"*_`'),
    (0.55, "?csz"),
    (0.6, "FPkvxyL"),
    (0.65, "$0123456789ESTYabdeghnopqu{}"),
    (0.7, "ABCRVXZK"),
    (0.75, "HNU"),
    (0.8, "&DGOQ"),
    (0.85, "#+<=>^~w×"),
    (0.9, "M"),
    (0.98, "%m…"),
    (1.0, "@W"),
)
_WIDTH = {character: width for width, characters in _WIDTHS for character in characters}
_BOLD = 1.11
LINE = 1.35
"""Height of a line in sizes of its font."""


def width_pt(text: str, size: float, *, bold: bool = False) -> float:
    """The width of one line in points, without asking a font: by the widths of DejaVu Sans, which Arial, Helvetica and
    Verdana do not exceed, so that a label fits its box on any machine. Characters beyond ASCII count as wide ones.
    """
    return sum(_WIDTH.get(character, 1.05) for character in text) * size * (_BOLD if bold else 1.0)


def block_pt(lines: list[tuple[str, float, bool]]) -> tuple[float, float]:
    """Width and height of lines one under the other, each as (text, font size, bold)."""
    return (
        max((width_pt(text, size, bold=bold) for text, size, bold in lines), default=0.0),
        sum(size * LINE for _, size, _ in lines),
    )


FONT = "Helvetica,Arial,DejaVu Sans,sans-serif"
TITLE_PT, LINE_PT, EDGE_PT, CLUSTER_PT = 11.0, 9.0, 8.5, 10.0
_MARGIN_X, _MARGIN_Y = 14.0, 9.0
_INK, _SOFT, _LINE, _SAVED, _FOCUS = "#1a1a1a", "#444444", "#8a8f98", "#7a3fb0", "#c02020"
_LEGEND_COLUMNS = 6
_FRAMES = ("#f7f8fa", "#eef1f5")
"""Fills of nested clusters by turns, so that a frame shows in its frame."""


def source(view: View) -> str:
    """The DOT text of a view. Raises EnvironmentLackError where pydot is not installed."""
    try:
        import pydot
    except ImportError as error:
        fix = "install it with pip install pydot"
        raise EnvironmentLackError("nothing can be drawn", "pydot is not installed", fix) from error
    graph = pydot.Dot("graphdbg", graph_type="digraph", **_graph_settings(view))
    graph.set_node_defaults(
        shape="box",
        style=_quoted("filled,rounded"),
        fontname=_quoted(FONT),
        fontsize=TITLE_PT,
        color=_quoted(_LINE),
        penwidth=0.8,
        margin=_quoted("0.09,0.05"),
    )
    graph.set_edge_defaults(
        fontname=_quoted(FONT),
        fontsize=EDGE_PT,
        fontcolor=_quoted(_SOFT),
        color=_quoted("#6b7280"),
        arrowsize=0.6,
        penwidth=0.9,
    )
    homes = _clusters(pydot, graph, view.clusters)
    for box in view.boxes:
        homes.get(box.cluster, graph).add_node(pydot.Node(box.id, **_box_settings(box)))
    level = _level_sides(view)
    for edge in view.edges:
        ends = (edge.target, edge.source) if edge.against else (edge.source, edge.target)
        graph.add_edge(pydot.Edge(*ends, **_edge_settings(edge, level)))
    return graph.to_string()


def lines_of(box: Box) -> list[tuple[str, float, bool]]:
    """The lines of a box as (text, font size, bold)."""
    lines = [(box.title, TITLE_PT, True)] + [(line, LINE_PT, False) for line in box.lines]
    if box.hidden:
        lines.append((f"+{box.hidden} not shown", LINE_PT, False))
    return lines


def _graph_settings(view: View) -> dict[str, Any]:
    return {
        "rankdir": "TB",
        "fontname": _quoted(FONT),
        "fontsize": CLUSTER_PT,
        "labelloc": "t",
        "label": _heading(view),
        "nodesep": 0.22,
        "ranksep": 0.32,
        "pad": 0.2,
        "bgcolor": _quoted("white"),
        "outputorder": "edgesfirst",
        "charset": _quoted("UTF-8"),
        "forcelabels": "false",
        "tooltip": _quoted(view.title),
        "newrank": str(_level_sides(view)).lower(),
    }


def _heading(view: View) -> str:
    """Title, notes and legend above the picture."""
    start = f'<tr><td colspan="{_LEGEND_COLUMNS}" align="left">'
    rows = [f'{start}<b><font point-size="14">{_escaped(view.title)}</font></b></td></tr>']
    rows += [f'{start}<font color="{_SOFT}">{_escaped(note)}</font></td></tr>' for note in view.notes]
    used = set(view.families)
    cells = [
        f'<td border="1" color="{_LINE}" style="rounded" bgcolor="{fill}" cellpadding="4">{_escaped(words)}</td>'
        for words, fill in (FAMILIES[name] for name in FAMILIES if name in used)
    ]
    rows += [
        f"<tr>{''.join(cells[start : start + _LEGEND_COLUMNS])}</tr>" for start in range(0, len(cells), _LEGEND_COLUMNS)
    ]
    return f'<<table border="0" cellborder="0" cellspacing="4">{"".join(rows)}</table>>'


def _clusters(pydot: Any, graph: Any, clusters: list[Cluster]) -> dict[str, Any]:
    homes: dict[str, Any] = {}
    depth: dict[str, int] = {}
    for cluster in clusters:  # a parent comes before what it holds
        depth[cluster.id] = depth.get(cluster.parent, -1) + 1
        fill = "white" if cluster.kind == "side" else _FRAMES[depth[cluster.id] % 2]
        homes[cluster.id] = pydot.Cluster(
            cluster.id,
            label=_quoted(cluster.label),
            style=_quoted("filled,rounded"),
            fillcolor=_quoted(fill),
            color=_quoted("#b4bac4"),
            fontname=_quoted(FONT),
            fontcolor=_quoted("#333a45"),
            labeljust="l",
            margin=10,
            fontsize=TITLE_PT + 3 if cluster.kind == "side" else CLUSTER_PT,
            tooltip=_quoted(cluster.label),
        )
        homes.get(cluster.parent, graph).add_subgraph(homes[cluster.id])
    return homes


def _box_settings(box: Box) -> dict[str, Any]:
    lines = lines_of(box)
    width, height = block_pt(lines)
    rows = [
        f'<tr><td height="{size * LINE:.0f}" width="{width:.0f}"><font point-size="{size:g}" '
        f'color="{_INK if bold else _SOFT}">'
        f"{f'<b>{_escaped(text)}</b>' if bold else _escaped(text)}</font></td></tr>"
        for text, size, bold in lines
    ]
    settings: dict[str, Any] = {
        "label": f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="0">{"".join(rows)}</table>>',
        "fillcolor": _quoted(FAMILIES.get(box.family, FAMILIES["other"])[1]),
        "width": round((width + _MARGIN_X) / 72, 3),
        "height": round((height + _MARGIN_Y) / 72, 3),
        "tooltip": _quoted(box.detail or box.title),
    }
    if box.group:
        settings["penwidth"] = 1.4
    if box.focus:
        settings |= {"penwidth": 2.6, "color": _quoted(_FOCUS)}
    if box.hidden:
        settings["style"] = _quoted("filled,rounded,dashed")
    return settings


def _level_sides(view: View) -> bool:
    """Whether partners on the two sides get the same height. Overviews afford that; frames around single nodes would be
    stretched over the whole picture."""
    return view.kind == "by-module" and any(edge.saved for edge in view.edges)


def _edge_settings(edge: Edge, level: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if edge.label:
        # as a table of fixed width: a machine without our fonts reserves as much room as one with them
        width = width_pt(edge.label, EDGE_PT) + 4
        settings["label"] = (
            f'<<table border="0" cellborder="0" cellspacing="2" cellpadding="0"><tr><td width="{width:.0f}" '
            'bgcolor="#ffffffb0">'
            f"{_escaped(edge.label)}</td></tr></table>>"
        )
    if edge.saved:
        settings |= {"style": "dashed", "color": _quoted(_SAVED), "penwidth": 1.1}
        settings |= {"minlen": 0, "weight": 2} if level else {"constraint": "false"}
    if edge.against:
        settings["dir"] = "back"
    return settings


def _escaped(text: str) -> str:
    """Text escaped for HTML-like labels."""
    return escaped(plain(text)) or " "


def _quoted(text: str) -> str:
    """Text quoted for plain attributes, where a backslash would start a DOT escape."""
    lines = [plain(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")]
    return '"' + "\\n".join(lines) + '"'
