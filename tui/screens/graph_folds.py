"""Folding keys of the graph screen: one module, all of them, level by level.

>>> room.do_graph_fold()      # the innermost module around the cursor becomes one row
"""

from __future__ import annotations

from ...dumps.browse.folding import Groups
from .graph_moves import GraphMoves


class GraphFolds(GraphMoves):
    """The part of the graph screen that folds."""

    def _fold(self, folded: frozenset[int], node: int) -> None:
        if self.question.sort is not None:
            self.status.show(None, "folds are off while sorted: s g is the order of the graph", alarm=True)
        self.ask(node, folded=folded)

    def do_graph_fold(self) -> None:
        """The innermost open module around the cursor."""

        def fold(groups: Groups) -> None:
            row, node = self.table.row, self.table.node
            group = groups.parents[~row] if row < 0 else groups.around(node)
            if group < 0:
                told = "the module has none around it" if row < 0 else "the node has no module with other nodes beside it"
                self.status.show(None, told, alarm=True)
                return
            self.depth = None
            self._fold(self.question.folded | {group}, groups.starts[group])

        self.grouped(fold)

    def do_graph_unfold(self) -> None:
        """The module under the cursor."""
        if self.table.row < 0:
            self.depth = None
            self._fold(self.question.folded - {~self.table.row}, self.table.node)

    def do_graph_toggle(self) -> None:
        """The one or the other."""
        if self.table.row < 0:
            self.do_graph_unfold()
        else:
            self.do_graph_fold()

    def _to_depth(self, step: int | None, to: int | None = None) -> None:
        def fold(groups: Groups) -> None:
            now = groups.deepest if self.depth is None and not self.question.folded else self.depth or 0
            depth = to if step is None else now + step
            self.depth = None if depth is None or depth >= groups.deepest else max(0, depth)
            folded = frozenset[int]() if self.depth is None else groups.to_depth(self.depth)
            self.status.show(None, "all open" if self.depth is None else f"modules open to depth {self.depth}")
            self._fold(folded, self.table.node)

        self.grouped(fold)

    def do_graph_fold_more(self) -> None:
        """All modules one level further up."""
        self._to_depth(-1)

    def do_graph_fold_less(self) -> None:
        """All modules one level further down."""
        self._to_depth(1)

    def do_graph_fold_all(self) -> None:
        """Only the outermost."""
        self._to_depth(None, 0)

    def do_graph_unfold_all(self) -> None:
        """Everything open."""
        self._to_depth(None, None)
