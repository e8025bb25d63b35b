"""The sheet that asks for one of several nodes: users or inputs of a node.

>>> app.push_screen(PickNode("users of add_3", [("mul_4", "aten.mul.Tensor [8, 64]", 57)], 12), picked)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ..sheet import Sheet


class PickNode(Sheet[int]):
    """`offered`: name, what it is, and its place; `count` is how many there are in all. The answer is a place."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *Sheet.BINDINGS,
        Binding("j", "move('down')", show=False),
        Binding("k", "move('up')", show=False),
    ]

    def __init__(self, title: str, offered: Sequence[tuple[str, str, int]], count: int) -> None:
        super().__init__()
        self.title_text, self.offered, self.count = title, offered, count

    def inside(self) -> ComposeResult:
        """One line per node."""
        wide = max((len(name) for name, _, _ in self.offered), default=0) + 2
        yield OptionList(*(
            Option(Text.assemble((f"{place:>7}  ", "dim"), (name.ljust(wide), "bold"), what, no_wrap=True), str(place))
            for name, what, place in self.offered
        ))  # fmt: skip

    def on_mount(self) -> None:
        """Writes the frame."""
        more = self.count - len(self.offered)
        self.entitle(self.title_text, "enter goes there · esc" + (f" · {more:,} more are not listed" if more else ""))

    def action_move(self, way: str) -> None:
        """As the arrows."""
        listed = self.query_one(OptionList)
        listed.action_cursor_down() if way == "down" else listed.action_cursor_up()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answers."""
        event.stop()
        self.dismiss(int(event.option.id or -1))
