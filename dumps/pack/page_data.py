"""The graphs of a page as columns of numbers that point into one list of texts, so that fifty graphs fit into a megabyte.

Reads one run, which is redacted already; knows no HTML. What is cut is counted. Texts come out as they may be shown.

>>> Graphs(run, most_nodes=4000, most_code=100_000).document()
{'texts': ['', 'x', ...], 'graphs': [{'id': '0_0/forward', 'total': 2, 'name': [1, 4], ...}]}
"""

from __future__ import annotations

from typing import Any

from ..browse.columns import CELLS
from ..browse.kernels import kernel_column
from ..browse.short import row_value
from ..browse.table import GraphView
from ..errors import GraphdbgError
from ..kernels import WHOLE
from ..sidecar import Intern, dims_text
from ..store import Run, SavedGraph
from ..tables import visible

COLUMNS = ("name", "op", "value", "module", "where", "kernel", "code")


class Graphs:
    """`document` is what the page's script reads; `nodes` and `lines` (of generated code) are how many are in it and how many
    are left out."""

    def __init__(self, run: Run, *, most_nodes: int, most_code: int) -> None:
        self.most_nodes, self.most_code = most_nodes, most_code
        self.texts: Intern[str] = Intern({"": 0})
        self.nodes, self.lines = [0, 0], [0, 0]
        self.ids: set[str] = set()
        """Of the graphs that are in it."""
        self.graphs = [told for saved in run.graphs() if (told := self._graph(saved)) is not None]

    def document(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {"texts": [visible(text) for text in self.texts], "columns": COLUMNS, "graphs": self.graphs}

    def _graph(self, saved: SavedGraph) -> dict[str, Any] | None:
        try:
            view = GraphView(saved.table)
            view.kernels = kernel_column(saved, view)
            code = next((file.read_text() for file in saved.code_files() if file.name == WHOLE), "")
        except GraphdbgError:  # told by whoever redacted it
            return None
        self.ids.add(saved.id)
        shown = range(min(len(view), self.most_nodes))
        kept = code[: self.most_code].rpartition("\n")[0] if len(code) > self.most_code else code
        self.nodes[0] += len(shown)
        self.nodes[1] += len(view) - len(shown)
        self.lines[0] += kept.count("\n")
        self.lines[1] += code.count("\n") - kept.count("\n")
        rows = [self._texts(view, index) for index in shown]
        columns = {name: [self.texts(row[at]) for row in rows] for at, name in enumerate(COLUMNS)}
        return {
            "id": saved.id, "total": len(view), **{name: column for name, column in columns.items() if any(column)},
            "inputs": [view.table.inputs[index] for index in shown],
            "code_text": visible(kept), "code_left": code.count("\n") - kept.count("\n"),
        }  # fmt: skip

    def _texts(self, view: GraphView, index: int) -> tuple[str, ...]:
        row = view.table.row(index)
        value = row_value(row) + (f" stride {dims_text(row.stride)}" if view.strided(index) else "")
        return row.name, CELLS["op"](view, index), value, view.module(index), row.where, view.kernels.get(index, ""), row.code
