"""The sheet in which the other graph of a comparison is chosen: a list, or a name that is typed.

>>> app.push_screen(PickOther("myrun/0_1/forward", others), chosen)
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import set_cell_size
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Input

from ...dumps.browse.listing import matches
from ...dumps.diff.others import Other
from ...dumps.tables import plain
from ...dumps.wording import counted
from ..sheet import Sheet
from ..widgets.rows import Parts, Rows
from ..widgets.virtual_list import VirtualList


class PickOther(Sheet[str]):
    """Answers with the name of a graph, None for esc."""

    DEFAULT_CSS = "PickOther Rows { height: auto; max-height: 16; min-height: 1; }"
    BINDINGS = [
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]

    def __init__(self, graph: str, others: Sequence[Other]) -> None:
        super().__init__()
        self.graph, self.others = graph, list(others)
        self.shown = list(others)

    def inside(self) -> ComposeResult:
        """What is typed, and what fits it."""
        yield Input(placeholder="words to choose by, or RUN/ID of any other graph", compact=True)
        yield Rows(self._paint, id="rows")

    def on_mount(self) -> None:
        """Fills the list."""
        self.entitle(f"compare {self.graph} with", "enter compare · esc close")
        self._show()

    def _show(self) -> None:
        rows = self.query_one(Rows)
        rows.show(len(self.shown), cursor=0)
        rows.styles.height = max(1, min(16, len(self.shown)))

    def _paint(self, index: int, width: int) -> Parts:
        other = self.shown[index]
        name = max(len(one.graph) for one in self.shown)
        nodes = "" if other.nodes is None else counted(other.nodes, "node", form=",")
        return [
            (set_cell_size(plain(other.graph), min(name, width // 2) + 2), "bold"), (f"{nodes:>14}  ", ""),
            (f"{other.status}  ", "red" if other.status == "failed" else ""), (other.why, "dim"),
        ]  # fmt: skip

    def action_move(self, by: int) -> None:
        """The cursor of the list, while the field has the keys."""
        self.query_one(Rows).move(by)

    def on_input_changed(self, event: Input.Changed) -> None:
        """What fits the words."""
        words = event.value.lower().split()
        self.shown = [other for other in self.others if matches(f"{other.graph} {other.why}".lower(), words)]
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The graph under the cursor, else the name that was typed."""
        typed = event.value.strip()
        if self.shown:
            self.dismiss(self.shown[self.query_one(Rows).cursor].graph)
        elif typed:
            self.dismiss(typed)

    def on_virtual_list_opened(self, message: VirtualList.Opened) -> None:
        """A double click."""
        self.dismiss(self.shown[message.index].graph)
