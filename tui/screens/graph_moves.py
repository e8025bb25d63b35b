"""Moving the cursor of the node table by keys.

>>> room.do_graph_page_down()
"""

from __future__ import annotations

from .graph_rows import GraphRows


class GraphMoves(GraphRows):
    """The part of the graph screen that moves the cursor."""

    def do_graph_down(self) -> None:
        """One row down."""
        self.table.move(1)

    def do_graph_up(self) -> None:
        """One row up."""
        self.table.move(-1)

    def do_graph_page_down(self) -> None:
        """One page down."""
        self.table.move(self.table.page)

    def do_graph_page_up(self) -> None:
        """One page up."""
        self.table.move(-self.table.page)

    def do_graph_top(self) -> None:
        """To the first row."""
        self.table.move_to(0)

    def do_graph_end(self) -> None:
        """To the last row."""
        self.table.move(self.table.virtual_size.height)
