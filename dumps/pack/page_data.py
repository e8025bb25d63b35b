"""The graphs of a page as columns of numbers that point into one list of texts, so that fifty graphs fit into a
megabyte.

Reads one run, which is redacted already; knows no HTML. What is cut is counted. Texts come out as they may be shown.

>>> cut(read(run, most_nodes=6000), most_nodes=4000, most_code=100_000).document["graphs"][0]["id"]
'0_0/dynamo'
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..browse.columns import CELLS
from ..browse.kernels import kernel_column
from ..browse.table import GraphView
from ..errors import GraphdbgError
from ..kernels import WHOLE
from ..short import row_value
from ..sidecar import Intern, dims_text
from ..store import Run, SavedGraph
from ..tables import visible

COLUMNS = ("name", "op", "value", "module", "where", "kernel", "code")


class PageGraph(NamedTuple):
    """One graph: the texts of its first nodes by column, what each of them uses, its generated code."""

    id: str
    total: int
    rows: list[tuple[str, ...]]
    inputs: list[list[int]]
    code: str


class PageCut(NamedTuple):
    """`document` is what the page's script reads; `nodes` and `lines` (of generated code): how many are in it, and are
    not."""

    document: dict[str, Any]
    nodes: tuple[int, int]
    lines: tuple[int, int]


def read(run: Run, most_nodes: int) -> list[PageGraph]:
    """The graphs of a run that can be read; whoever redacted it has named the others."""
    page_graphs: list[PageGraph] = []
    for saved in run.graphs():
        with contextlib.suppress(GraphdbgError):
            page_graphs.append(graph(saved, most_nodes))
    return page_graphs


def graph(saved: SavedGraph, most_nodes: int) -> PageGraph:
    """The data of one graph. Raises GraphdbgError where it cannot be read."""
    view = GraphView(saved.table)
    view.kernels = kernel_column(saved, view)
    code = next((file.read_text() for file in saved.code_files() if file.name == WHOLE), "")
    shown = range(min(len(view), most_nodes))
    rows = [_texts(view, index) for index in shown]
    return PageGraph(saved.id, len(view), rows, [view.table.inputs[index] for index in shown], visible(code))


def _texts(view: GraphView, index: int) -> tuple[str, ...]:
    row = view.table.row(index)
    value = row_value(row) + (f" stride {dims_text(row.stride)}" if view.strided(index) else "")
    return (
        row.name,
        CELLS["op"](view, index),
        value,
        view.module(index),
        row.where,
        view.kernels.get(index, ""),
        row.code,
    )


def cut(graphs: Iterable[PageGraph], most_nodes: int, most_code: int) -> PageCut:
    """The document with at most so many nodes and letters of code of each graph."""
    texts: Intern[str] = Intern({"": 0})
    documents: list[dict[str, Any]] = []
    nodes = total = lines = left = 0
    for page_graph in graphs:
        rows = page_graph.rows[:most_nodes]
        code = page_graph.code[:most_code].rpartition("\n")[0] if len(page_graph.code) > most_code else page_graph.code
        missing = page_graph.code.count("\n") - code.count("\n")
        columns = {name: [texts(row[at]) for row in rows] for at, name in enumerate(COLUMNS)}
        documents.append(
            {
                "id": page_graph.id,
                "total": page_graph.total,
                **{name: column for name, column in columns.items() if any(column)},
                "inputs": page_graph.inputs[:most_nodes],
                "code_text": code,
                "code_left": missing,
            }
        )
        nodes, total, lines, left = (
            nodes + len(rows),
            total + page_graph.total,
            lines + code.count("\n"),
            left + missing,
        )
    document = {"texts": [visible(text) for text in texts], "columns": COLUMNS, "graphs": documents}
    return PageCut(document, (nodes, total - nodes), (lines, left))
