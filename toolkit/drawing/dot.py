"""A view as DOT, built by pydot: fills by family, frames for clusters, labels that fit, a legend. Depends on no
renderer.

Every text of a view comes from somebody's graph and is escaped here; ids are our own. Does not decide what is shown.

>>> from graphdbg.toolkit.drawing.nodes import whole
>>> from graphdbg.toolkit.drawing.source import of_saved
>>> source(whole(of_saved(saved))).startswith("digraph")
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from ...dumps.allowlist import words
from ...dumps.errors import PackageMissingError
from ...dumps.markup import escaped
from ...dumps.short import base_name
from ...dumps.tables import plain

FAMILIES: dict[str, tuple[str, str]] = {
    "input": ("input", "#cfe8ff"),
    "parameter": ("parameter, buffer", "#dfe3ea"),
    "saved": ("saved by forward", "#e6dcf5"),
    "tangent": ("tangent", "#ffd6e7"),
    "constant": ("constant", "#ececec"),
    "matmul": ("matrix product", "#ffc9b0"),
    "convolution": ("convolution", "#ffb8b8"),
    "attention": ("attention", "#ffd98a"),
    "normalisation": ("normalisation", "#f4e3a1"),
    "pointwise": ("pointwise", "#d3f2c9"),
    "reduction": ("reduction", "#a9dfbf"),
    "pooling": ("pooling", "#b5e6e0"),
    "indexing": ("indexing", "#b9dcf2"),
    "random": ("random", "#f3c9f1"),
    "creation": ("creation", "#e9e4d4"),
    "movement": ("copy, cast, concatenation", "#d5d0ee"),
    "view": ("view", "#ffffff"),
    "scalar": ("sizes and scalars", "#f3efe6"),
    "collective": ("collective", "#c6c9ff"),
    "control": ("subgraph, module, kernel", "#c9c1b8"),
    "custom": ("custom op", "#f7b7d2"),
    "other": ("other", "#f6f6f6"),
    "output": ("output", "#bfc7d1"),
}
"""family -> (its words in the legend, the fill of its boxes). Every fill is light enough for black text."""

WEIGHT = ("convolution", "matmul", "attention", "collective", "custom", "control", "normalisation", "pooling",
          "reduction", "indexing", "random", "pointwise", "movement", "creation", "scalar", "other",
          "view")  # fmt: skip
"""The families by weight: a group of nodes gets the first of these that it contains."""


_MATMUL = words("""
    mm addmm bmm baddbmm matmul linear bilinear einsum dot vdot mv addmv addbmm inner outer ger
    tensordot""")
_CONTROL = words("cond while_loop scan map_impl invoke_subgraph")
_LISTS = {
    "random": words("""
        dropout native_dropout native_dropout_backward bernoulli normal uniform exponential multinomial
        alpha_dropout"""),
    "view": words("""
        view reshape permute transpose t swapaxes movedim expand expand_as broadcast_to squeeze unsqueeze slice
        select split chunk split_with_sizes unbind as_strided alias flatten unflatten detach getitem narrow
        diagonal view_as _unsafe_view lift_fresh_copy _reshape_alias view_dtype T mT unfold real imag
        view_as_real view_as_complex"""),
    "movement": words("""
        clone copy copy_ _to_copy to contiguous cat stack concat hstack vstack convert_element_type pad
        constant_pad_nd repeat roll flip repeat_interleave device_put slice_scatter select_scatter
        as_strided_scatter float half bfloat16 type_as tile"""),
    "indexing": words("""
        embedding embedding_dense_backward gather index index_put index_put_ index_select take take_along_dim
        masked_select masked_scatter scatter scatter_ scatter_add scatter_add_ scatter_reduce index_add nonzero
        one_hot bucketize searchsorted embedding_bag _unsafe_index _unsafe_index_put _unsafe_masked_index
        _unsafe_masked_index_put_accumulate setitem"""),
    "creation": words("""
        full full_like zeros zeros_like ones ones_like empty empty_like empty_strided new_zeros new_ones
        new_full new_empty arange iota scalar_tensor eye tensor linspace tril_indices triu_indices
        new_empty_strided empty_permuted _tensor_constant"""),
    "scalar": words("""
        size sym_size sym_stride sym_numel sym_storage_offset sym_max sym_min sym_not sym_sum sym_float item
        numel dim stride _local_scalar_dense _assert_scalar _assert_async _assert_tensor_metadata"""),
    "reduction": words("""
        sum mean var var_mean std std_mean amax amin max min aminmax argmax argmin prod norm logsumexp any all
        cumsum cumprod median softmax log_softmax _softmax _log_softmax _softmax_backward_data
        _log_softmax_backward_data sort topk cross_entropy nll_loss nll_loss_forward nll_loss_backward mse_loss
        count_nonzero vector_norm linalg_vector_norm welford"""),
}
"""family -> names of its ops, in the order in which they are looked through."""
_KNOWN = words("aten prims operator math torch _operator builtins")


def family(op: str, target: str, role: str = "", *, is_scalar: bool = False) -> str:
    """The family of a node by its FX op, its target, its role as an input, and whether its value is a symbolic
    scalar."""
    if op == "placeholder":
        if role in ("parameter", "buffer", "saved", "tangent", "constant"):
            return "parameter" if role == "buffer" else role
        return "tangent" if target.startswith("tangents_") else "input"
    if op in ("output", "get_attr", "call_module"):
        return {"output": "output", "get_attr": "constant", "call_module": "control"}[op]
    name = base_name(target)
    if is_scalar and op == "call_function":
        return "scalar"
    return _by_name(name, target.split(".")[0] if op == "call_function" else "aten")


def _by_name(name: str, space: str) -> str:
    bare = name.removesuffix("_backward").removesuffix("_") or name
    if "c10d" in space or re.match(r"(all_reduce|all_gather|reduce_scatter|all_to_all|broadcast$|wait_tensor)", name):
        return "collective"
    if space == "higher_order" or "triton_kernel" in name or name in _CONTROL:
        return "attention" if name.startswith("flex_attention") else "control"
    if "attention" in name:
        return "attention"
    if re.search(r"conv(olution|\d|_)|^conv", name) and not name.startswith("convert"):
        return "convolution"
    if name in _MATMUL or bare in _MATMUL or name.endswith(("_mm", "_bmm", "addmm", "_linear")):
        return "matmul"
    if name.endswith(("_norm", "_norm_backward")) or "_norm_legit" in name or "norm_functional" in name:
        return "reduction" if name in _LISTS["reduction"] else "normalisation"
    if "pool" in name:
        return "pooling"
    for family, names in _LISTS.items():
        if name in names or bare in names:
            return family
    if re.match(r"rand|inductor_(seed|random|lookup|randint)|philox", name):
        return "random"
    return "pointwise" if space in _KNOWN else "custom"


def heaviest(families: list[str]) -> str:
    """The family that stands for a group of nodes."""
    return next((name for name in WEIGHT if name in families), families[0] if families else "other")


Kind = Literal["nodes", "around", "by-module"]
"""Every node; the neighbourhood of one; one box for each module."""


@dataclass
class Box:
    """One box. `title` is its first line, `lines` are the others; `family` is a key of FAMILIES.

    `nodes` are the names of the graph's nodes that it stands for, `hidden` counts neighbours of theirs that were left
    out, and `detail` is a longer text for renderers that can show one on request. `focus` marks what the user asked
    for.
    """

    id: str
    title: str
    lines: list[str] = field(default_factory=list)
    family: str = "other"
    cluster: str = ""
    group: bool = False
    nodes: list[str] = field(default_factory=list)
    hidden: int = 0
    focus: bool = False
    detail: str = ""


@dataclass
class Cluster:
    """A frame around boxes and other clusters; `parent` is the id of the one around it ("": none)."""

    id: str
    label: str
    parent: str = ""
    kind: Literal["module", "side"] = "module"


@dataclass
class Edge:
    """From the box that makes a value to one that uses it. `saved` edges join a forward graph to its backward graph;
    `against` edges are laid out against their direction: the backward graph runs upwards beside its forward graph."""

    source: str
    target: str
    label: str = ""
    saved: bool = False
    against: bool = False


@dataclass
class View:
    """One picture. `notes` are sentences about what it leaves out."""

    title: str
    kind: Kind
    boxes: list[Box]
    clusters: list[Cluster]
    edges: list[Edge]
    notes: list[str] = field(default_factory=list)

    @property
    def families(self) -> list[str]:
        """The families in the picture, in order of appearance."""
        return list(dict.fromkeys(box.family for box in self.boxes))


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


FONT = "Helvetica,Arial,DejaVu Sans,sans-serif"
TITLE_PT, LINE_PT, EDGE_PT, CLUSTER_PT = 11.0, 9.0, 8.5, 10.0
_MARGIN_X, _MARGIN_Y = 14.0, 9.0
_INK, _SOFT, _LINE, _SAVED, _FOCUS = "#1a1a1a", "#444444", "#8a8f98", "#7a3fb0", "#c02020"
_LEGEND_COLUMNS = 6
_FRAMES = ("#f7f8fa", "#eef1f5")
"""Fills of nested clusters, in turn, so that a frame is visible inside another."""


def source(view: View) -> str:
    """The DOT text of a view. Raises EnvironmentLackError where pydot is not installed."""
    try:
        import pydot
    except ImportError as error:
        fix = "install it with pip install pydot"
        raise PackageMissingError("nothing can be drawn", "pydot is not installed", fix) from error
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
        f'<td border="1" color="{_LINE}" style="rounded" bgcolor="{fill}" cellpadding="4">{_escaped(said)}</td>'
        for said, fill in (FAMILIES[name] for name in FAMILIES if name in used)
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
    width = max((width_pt(text, size, bold=bold) for text, size, bold in lines), default=0.0)
    height = sum(size * LINE for _, size, _ in lines)
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
    """Whether partners on the two sides get the same height. Only overviews do; frames around single nodes would be
    stretched over the whole picture."""
    return view.kind == "by-module" and any(edge.saved for edge in view.edges)


def _edge_settings(edge: Edge, level: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if edge.label:
        # as a table of fixed width: a machine without our fonts reserves as much room as one with them
        width = width_pt(edge.label, EDGE_PT) + 4
        cell = f'<td width="{width:.0f}" bgcolor="#ffffffb0">{_escaped(edge.label)}</td>'
        table = '<table border="0" cellborder="0" cellspacing="2" cellpadding="0">'
        settings["label"] = f"<{table}<tr>{cell}</tr></table>>"
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
