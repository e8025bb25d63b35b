"""The columns of a node table: their cells, which of them fit into a width, and the width of each.

Texts of a dump come out without control characters. Knows nothing of colours or screens.

>>> fitted = fitting(usual(view), widths(view, usual(view)), 60)
>>> [column.key for column, _ in fitted]
['index', 'name', 'op', 'dtype', 'shape', 'users']
>>> cell(view, "shape", 6), cell(view, "bytes", 6)
('[2, 16]', '128 B')
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from ..errors import UnknownWordError
from ..sidecar import dims_text
from ..tables import cells, cut, plain
from ..wording import count_text, size_text
from .table import GraphView, strided

STRIDED = "!"
"""The sign before a stride that is not contiguous."""


class NodeColumn(NamedTuple):
    """`cut`: where a text that is too long is cut. `drop`: columns with the highest number are dropped first (0:
    never).

    `least` and `most` are widths in letters; `seen`: present once a replay has recorded values.
    """

    key: str
    title: str
    help: str
    least: int
    most: int
    right: bool = False
    cut: str = "end"
    drop: int = 0
    seen: bool = False


COLUMNS = (
    NodeColumn("index", "#", "The place in the graph.", 3, 9, right=True),
    NodeColumn("name", "name", "The name of the node.", 14, 44, cut="middle"),
    NodeColumn("op", "op", "What is called, or what kind of node it is.", 12, 36, cut="middle"),
    NodeColumn("dtype", "dtype", "The type of its elements.", 8, 16, drop=1),
    NodeColumn("shape", "shape", "Sizes; symbols by their names.", 12, 28),
    NodeColumn("stride", "stride", f"Steps in elements; {STRIDED} where it is not contiguous.", 10, 24, drop=4),
    NodeColumn("bytes", "bytes", "What the value takes.", 9, 9, right=True, drop=3),
    NodeColumn("flops", "FLOPs", "Operations of a matrix product, convolution or attention.", 6, 7, right=True, drop=7),
    NodeColumn("users", "users", "How many nodes use it.", 5, 6, right=True, drop=2),
    NodeColumn("inputs", "inputs", "The nodes that it uses; shown where it is asked for.", 12, 40, drop=8),
    NodeColumn("module", "module", "The module of the model that it comes from.", 12, 40, cut="start", drop=5),
    NodeColumn("file", "file:line", "The user's line.", 14, 24, cut="start", drop=6),
    NodeColumn("kernel", "kernel", "The generated kernel that it went into.", 16, 40, cut="middle", drop=8),
    NodeColumn("min", "min", "The smallest value that a replay saw.", 9, 9, right=True, drop=4, seen=True),
    NodeColumn("max", "max", "The largest value that a replay saw.", 9, 9, right=True, drop=4, seen=True),
    NodeColumn("nan", "nan", "How many elements were not a number.", 4, 7, right=True, drop=2, seen=True),
    NodeColumn("inf", "inf", "How many elements were infinite.", 4, 7, right=True, drop=2, seen=True),
    NodeColumn("error", "error", "How far the values are from a float64 run.", 8, 12, right=True, seen=True),
    NodeColumn("other", "other", "The same under another rung.", 8, 12, right=True, drop=1, seen=True),
)
BY_KEY: Mapping[str, NodeColumn] = {column.key: column for column in COLUMNS}
ALSO = {"#": "index", "target": "op", "line": "file", "code": "file", "size": "bytes", "number": "index"}
"""Other names of columns that people type -> the column's key."""

SAMPLE = 500
"""Widths are computed from a sample of so many nodes, spread over the graph."""
ENOUGH = 0.97
"""A column is wide enough for this share of its texts; longer ones are cut."""


def named(words: str) -> tuple[NodeColumn, ...]:
    """The columns of a list like "name,op,shape"; raises UsageError with the nearest name."""
    return tuple(one(word) for word in words.replace(",", " ").split())


def one(word: str) -> NodeColumn:
    """The column of that name."""
    key = word.strip().lower()
    key = ALSO.get(key, key)
    if key in BY_KEY:
        return BY_KEY[key]
    near = difflib.get_close_matches(key, [*BY_KEY, *ALSO], n=1)
    fix = f"did you mean {near[0]}" if near else ""
    others = ", ".join(f"{name} ({meant})" for name, meant in ALSO.items() if name.isalpha())
    raise UnknownWordError(
        f"there is no column {word!r}", f"the columns are {', '.join(BY_KEY)}; other names: {others}", fix
    )


def usual(view: GraphView) -> tuple[NodeColumn, ...]:
    """The columns shown by default: kernels and values only where there are some, errors with their rung."""
    kept = [
        column
        for column in COLUMNS
        if (not column.seen or view.values)
        and (column.key != "kernel" or view.kernels)
        and column.key not in (*view.nowhere, "inputs")
    ]
    rungs = dict(zip(("error", "other"), view.rungs, strict=False))
    named = [shown._replace(title=f"err {rungs[shown.key]}") if shown.key in rungs else shown for shown in kept]
    return tuple(shown for shown in named if shown.key != "other" or "other" in rungs)


class Widths(dict[str, int]):
    """Column -> its wanted width. `whole`: the width at which no text is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: dict[str, int] = {}


def widths(view: GraphView, columns: Sequence[NodeColumn], start: int = 0) -> Widths:
    """The wanted width of each column, from a sample of the nodes from `start` on: folded inputs need no room."""
    count = len(view)
    sample = range(start, count, max(1, count // SAMPLE))
    found_widths = Widths()
    for column in columns:
        if column.key == "index":
            found_widths["index"] = max(column.least, len(str(max(count - 1, 0))))
            continue
        lengths = sorted(len(brief(view, column.key, index)) for index in sample)
        long = lengths[ceil(ENOUGH * (len(lengths) - 1))] if lengths else 0
        found_widths[column.key] = min(max(long, len(column.title), column.least if column.right else 0), column.most)
        found_widths.whole[column.key] = max(found_widths[column.key], lengths[-1] if lengths else 0)
    return found_widths


GAP = 2
ROOMY_OP = 18
ROOMY = {"op": ROOMY_OP, "shape": 16}
"""Columns that get so many letters before later columns are kept."""
GROW = ("name", "op", "shape", "stride", "dtype", "module", "file", "kernel")
"""Columns that share the rest of the width, in turn."""


def fitting(columns: Sequence[NodeColumn], wide: Mapping[str, int], width: int) -> list[tuple[NodeColumn, int]]:
    """The columns that fit, each with its width: first columns are dropped, then long texts are cut, names last of
    all."""
    kept = [column for column in columns if column.key in wide]
    least = {
        column.key: wide[column.key] if column.right else min(wide[column.key], max(column.least, len(column.title)))
        for column in kept
    }

    def needed(sizes: Mapping[str, int]) -> int:
        return sum(sizes[column.key] + GAP for column in kept) - GAP

    roomy = {key: max(size, min(wide[key], ROOMY.get(key, 0))) for key, size in least.items()}
    for column in sorted(kept, key=lambda column: -column.drop):
        if not column.drop or needed(roomy if column.drop > 1 else least) <= width:
            break
        kept.remove(column)
    wanted = roomy if needed(roomy) <= width else least
    sizes = {column.key: wanted[column.key] for column in kept}
    spare = width - needed(sizes)
    for wish in (wide, wide.whole if isinstance(wide, Widths) else {}):
        for key in GROW:
            if key in sizes and key in wish and spare > 0:
                more = min(spare, wish[key] - sizes[key])
                sizes[key] += more
                spare -= more
    for key in ("shape", "op", "name"):
        if spare < 0 and key in sizes:
            less = min(-spare, max(0, sizes[key] - 6))
            sizes[key] -= less
            spare += less
    return [(column, sizes[column.key]) for column in kept]


# -- cells


def cell(view: GraphView, key: str, index: int) -> str:
    """The text of a cell, on one line and without control characters."""
    return CELLS[key](view, index)


def brief(view: GraphView, key: str, index: int) -> str:
    """The cell for a screen: inputs by the names that users know, targets without common namespaces."""
    if key == "name" and index in view.known:
        return plain(view.known[index])
    text = cell(view, key, index)
    if key != "op":
        return text
    before, aten, after = text.partition("aten.")
    if aten and before in ("", "torch.ops."):
        return after
    return text.rpartition(".")[2] if text.startswith(_SPACES) and not text.startswith("torch.ops.") else text


_SPACES = ("torch.", "operator.", "_operator.", "math.")
"""Namespaces that are left out before well-known functions."""


def number_text(number: float | None) -> str:
    """A value of a tensor in at most nine letters: -1.25e-05."""
    return "" if number is None else f"{number:.3g}"


def op_text(view: GraphView, index: int) -> str:
    """The target of a call (without ".default"); for any other node its op."""
    op, target = view.op(index), view.target(index)
    if op == "call_function":
        return plain(target.removesuffix(".default"))
    if op == "call_method":
        return plain(f".{target}()")
    if op in ("get_attr", "call_module"):
        return plain(f"{op} {target}")
    return plain(op)


def _stride(view: GraphView, index: int) -> str:
    shape, stride = view.table.shape[index], view.table.stride[index]
    text = plain(dims_text(view.text[stride]))
    return f"{STRIDED}{text}" if strided(view.shape_of(shape), view.shape_of(stride)) else text


def _bytes(view: GraphView, index: int) -> str:
    size = view.table.size_bytes[index]
    if size is None:
        return "?" if view.table.dtype[index] else ""
    return size_text(size) if size else ""


def _seen(name: str) -> Callable[[GraphView, int], str]:
    def text(view: GraphView, index: int) -> str:
        replayed = view.values.get(index)
        number = getattr(replayed, name) if replayed is not None else None
        return (str(number) if name in ("nan", "inf") else number_text(number)) if number is not None else ""

    return text


def _inputs(view: GraphView, index: int) -> str:
    used = view.inputs(index)
    names = [plain(view.table.name[place]) for place in used[:4]]
    return " ".join([*names, f"+{len(used) - 4}"] if len(used) > 4 else names)


CELLS: dict[str, Callable[[GraphView, int], str]] = {
    "index": lambda view, index: str(index),
    "name": lambda view, index: plain(view.table.name[index]),
    "op": op_text,
    "dtype": lambda view, index: plain(view.text[view.table.dtype[index]]),
    "shape": lambda view, index: plain(dims_text(view.text[view.table.shape[index]])),
    "stride": _stride,
    "bytes": _bytes,
    "flops": lambda view, index: "" if (count := view.flops(index)) is None else count_text(count),
    "users": lambda view, index: str(view.table.users[index]),
    "inputs": _inputs,
    "module": GraphView.module,
    "file": lambda view, index: plain(view.text[view.table.where[index]]),
    "kernel": lambda view, index: plain(view.kernels.get(index, "")),
    **{name: _seen(name) for name in ("min", "max", "nan", "inf", "error", "other")},
}


def fitted(text: str, width: int, column: NodeColumn) -> str:
    """The text in exactly `width` letters: cut where the column says, filled with blanks."""
    long = len(text) if text.isascii() else cells(text)
    if long > width:
        text = cut(text, width, column.cut)
        long = len(text) if text.isascii() else cells(text)
    blanks = " " * (width - long)
    return blanks + text if column.right else text + blanks
