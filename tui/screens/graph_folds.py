"""Folding keys of the graph screen: one module, all of them, level by level.

>>> room.folds.do_graph_fold()      # the innermost module around the cursor becomes one row
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...dumps.browse.folding import Groups

if TYPE_CHECKING:
    from .graph import GraphRoom
    from .graph_rows import GraphRows


@dataclass
class GraphFolds:
    """The part of the graph screen that folds."""

    room: GraphRoom
    rows: GraphRows

    def _fold(self, folded: frozenset[int], node: int) -> None:
        if self.rows.question.sort is not None:
            self.room.status.show(None, "folds are off while sorted: s g is the order of the graph", alarm=True)
        self.rows.ask(node, folded=folded)

    def do_graph_fold(self) -> None:
        """The innermost open module around the cursor."""

        def fold(groups: Groups) -> None:
            row, node = self.room.table.row, self.room.table.node
            group = groups.parents[~row] if row < 0 else groups.around(node)
            if group < 0:
                told = "the module has none around it" if row < 0 else "the node has no module with other nodes beside it"
                self.room.status.show(None, told, alarm=True)
                return
            self.rows.depth = None
            self._fold(self.rows.question.folded | {group}, groups.starts[group])

        self.rows.grouped(fold)

    def do_graph_unfold(self) -> None:
        """The module under the cursor."""
        if self.room.table.row < 0:
            self.rows.depth = None
            self._fold(self.rows.question.folded - {~self.room.table.row}, self.room.table.node)

    def do_graph_toggle(self) -> None:
        """The one or the other."""
        if self.room.table.row < 0:
            self.do_graph_unfold()
        else:
            self.do_graph_fold()

    def do_graph_depth(self, step: int | None, to: int | None = None) -> None:
        """All modules so many levels further down (below 0: up), or open to a depth; None: all of them."""

        def fold(groups: Groups) -> None:
            now = groups.deepest if self.rows.depth is None and not self.rows.question.folded else self.rows.depth or 0
            depth = to if step is None else now + step
            self.rows.depth = None if depth is None or depth >= groups.deepest else max(0, depth)
            folded = frozenset[int]() if self.rows.depth is None else groups.to_depth(self.rows.depth)
            self.room.status.show(None, "all open" if self.rows.depth is None else f"modules open to depth {self.rows.depth}")
            self._fold(folded, self.room.table.node)

        self.rows.grouped(fold)
