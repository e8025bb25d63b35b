"""`graphdbg show --nodes --filter --sort --columns --fold --find`: the rows of the graph screen as text or JSON.

The same modules of `dumps/browse` choose, order and write the rows here and on the screen. Imports no torch.

>>> show_rows(saved, RowOptions(filter="op:mul", sort="name"), head={}, as_json=False)
 #  name   op               dtype    shape    stride   bytes  FLOPs  users  module  file:line
 7  mul    aten.mul.Tensor  float32  [2, 16]  [16, 1]  128 B             1          train.py:11
 8  mul_1  aten.mul.Tensor  float32  [2, 16]  [16, 1]  128 B             1          train.py:11
11  mul_2  aten.mul.Tensor  float32  [2, 16]  [16, 1]  128 B             2          train.py:11
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import msgspec

from ..browse import columns as all_columns
from ..browse.about import positions
from ..browse.filter import FilterError, hint, parse, pointed
from ..browse.kernels import kernel_column
from ..browse.recorded import Recorded
from ..browse.row_texts import group_text
from ..browse.search import hits_of
from ..browse.selection import Question, Selection, Sort, grouping, selecting, usual
from ..browse.table import GraphView
from ..errors import BadValueError, OptionsExcludeError
from ..names import known_names
from ..output import emit, say
from ..sidecar import NodeRow, Table, dims_value
from ..store import SavedGraph
from ..tables import Column, on_terminal, render

STYLES = {"index": "dim", "name": "bold", "op": "cyan", "file": "green"}


@dataclass(frozen=True)
class RowOptions:
    """The options of the command; None: not given."""

    filter: str | None = None
    sort: str | None = None
    columns: str | None = None
    fold: int | None = None
    find: str | None = None
    nodes: str | None = None

    @property
    def any(self) -> bool:
        """Whether any option was given."""
        return self != RowOptions()


def show_rows(saved: SavedGraph, options: RowOptions, *, head: dict[str, Any], as_json: bool) -> None:
    """Prints the rows; raises UsageError for a filter, column or depth that does not exist."""
    chosen = all_columns.named(options.columns) if options.columns is not None else None
    if any(column.seen for column in chosen or ()):
        fix = f"graphdbg replay {shlex.quote(saved.name)} --values"
        raise BadValueError("show has no values of nodes", "only a replay computes them", fix)
    sort = sort_of(options.sort)
    if options.fold is not None and sort is not None:
        why = "folding keeps the order of the graph"
        raise OptionsExcludeError("--fold and --sort cannot be used together", why, "leave one out")
    if options.fold is not None and options.nodes is not None:
        why = "--fold shows modules in place of nodes"
        raise OptionsExcludeError("--fold and --nodes cannot be used together", why, "leave one out")
    view = GraphView(saved.table)
    if (chosen and any(column.key == "kernel" for column in chosen)) or "kernel:" in (options.filter or ""):
        view.kernels = kernel_column(saved, view)
    selection = _selected(saved, view, options, sort)
    say(f"{saved.id}: stage {saved.stage}, {selection.count_text}, {saved.status}")
    if as_json:
        emit({**head, "nodes": [_json(selection, row) for row in selection.rows]}, as_json=True)
        return
    shown = chosen or all_columns.usual(view)
    titles = [Column(c.title, right=c.right, style=STYLES.get(c.key, ""), expendable=c.drop) for c in shown]
    cells = [
        tuple(all_columns.cell(view, c.key, row) if row >= 0 else group_text(selection, c.key, ~row) for c in shown)
        for row in selection.rows
    ]
    emit(render(titles, cells, terminal=on_terminal()), as_json=False)


def sort_of(text: str | None) -> Sort | None:
    """The order for COLUMN, COLUMN:up or COLUMN:down; without direction the column's usual one, descending for most
    numbers."""
    if text is None:
        return None
    word, _, way = text.partition(":")
    key = all_columns.one(word).key
    if way not in ("", "up", "down"):
        raise BadValueError(f"cannot sort {way!r}", "the direction is up or down", f"--sort {key}:down")
    return Sort(key, way == "down") if way else usual(key)


def chosen_names(saved: SavedGraph, options: RowOptions) -> list[str]:
    """The names of the nodes that the options choose, in graph order."""
    view = GraphView(saved.table)
    if "kernel:" in (options.filter or ""):
        view.kernels = kernel_column(saved, view)
    rows = _selected(saved, view, options, None).rows
    return [view.table.name[row] for row in rows]


def _selected(saved: SavedGraph, view: GraphView, options: RowOptions, sort: Sort | None) -> Selection:
    if options.filter or options.find:
        view.take_known(known_names(Recorded(saved)))
    try:
        terms = parse(options.filter or "")
        groups = grouping(view) if options.fold is not None else None
        folded = groups.to_depth(options.fold) if groups is not None and options.fold is not None else frozenset[int]()
        selection = selecting(view, Question(terms, sort, folded), groups)
    except FilterError as error:
        say(pointed(options.filter or "", error))
        raise
    if terms and not selection.matched and (near := hint(view, terms)):
        say(near)
    if options.nodes is not None:
        wanted = set(positions(saved, options.nodes))
        nodes = [node for node in (range(len(view)) if selection.nodes is None else selection.nodes) if node in wanted]
        selection = Selection(view, selection.question, [row for row in selection.rows if row in wanted], nodes)
    if options.find is None:
        return selection
    hits = hits_of(view, options.find, selection.nodes)
    if not hits:
        say(f"no {options.find!r} in names, targets, modules and lines")
    places = sorted({place for hit in hits if (place := selection.place(hit)) >= 0})
    return Selection(view, selection.question, [selection.rows[place] for place in places], hits, selection.groups)


def _json(selection: Selection, row: int) -> dict[str, Any]:
    view = selection.view
    if row < 0:
        assert selection.groups is not None
        inside = selection.inside(~row)
        groups, size = selection.groups, sum(view.table.size_bytes[node] or 0 for node in inside)
        sums = {"nodes": len(inside), "size_bytes": size, "flops": sum(view.flops(node) or 0 for node in inside)}
        return {"module": groups.labels[~row], "first": groups.starts[~row], **sums}
    more = {"contiguous": not view.strided(row), "flops": view.flops(row), "module": view.module(row)}
    more |= {"kernel": view.kernels.get(row, "")} if view.kernels else {}
    return node_json(view.table.row(row), view.table) | more


def node_json(row: NodeRow, table: Table) -> dict[str, Any]:
    """A node as a JSON object."""
    fields = msgspec.structs.asdict(row)
    fields["line"] = fields.pop("where")
    inputs = [table.name[i] for i in row.inputs]
    return fields | {"inputs": inputs, "shape": dims_value(row.shape), "stride": dims_value(row.stride)}
