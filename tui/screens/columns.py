"""The sheet that asks which columns of the node table are shown.

>>> app.push_screen(ChooseColumns(COLUMNS, usual(view)), chosen)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import SelectionList
from textual.widgets.selection_list import Selection

from ...dumps.browse.columns import Column
from ..sheet import Sheet


class ChooseColumns(Sheet[list[str]]):
    """The answer is the keys that are ticked, in no order; None where nothing changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *Sheet.BINDINGS,
        Binding("j", "move('down')", show=False),
        Binding("k", "move('up')", show=False),
        Binding("v", "leave", show=False),
    ]

    def __init__(self, offered: Sequence[Column], now: Sequence[Column]) -> None:
        super().__init__()
        self.offered, self.now = offered, {column.key for column in now}

    def inside(self) -> ComposeResult:
        """One line per column."""
        yield SelectionList[str](*(
            Selection(Text.assemble((f"{column.title:<10}", "bold"), column.help), column.key, column.key in self.now)
            for column in self.offered
        ))  # fmt: skip

    def on_mount(self) -> None:
        """Writes the frame."""
        self.entitle("columns", "space ticks · esc done")

    def action_move(self, way: str) -> None:
        """As the arrows."""
        listed = self.query_one(SelectionList)
        listed.action_cursor_down() if way == "down" else listed.action_cursor_up()

    def action_leave(self) -> None:
        """Answers."""
        if self.panel is not None and self.panel.hide():
            return
        ticked = [str(key) for key in self.query_one(SelectionList).selected]
        self.dismiss(ticked if ticked and set(ticked) != self.now else None)
