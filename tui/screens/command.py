"""The command lines that do what a screen shows, and those of its jobs. Runs none of them.

>>> app.push_screen(CommandLine(["graphdbg show myrun/0_0/forward"]))
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
from ..widgets.trouble import plain


class CommandLine(Sheet[None]):
    """One line each; y copies the one under the cursor, Y writes it to a file."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "copy_line", show=False),
        Binding("Y", "write_line", show=False),
        Binding("at", "leave", show=False),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
    ]
    DEFAULT_CSS = """
    CommandLine OptionList { height: auto; max-height: 16; background: $surface; }
    CommandLine OptionList, CommandLine OptionList:focus { border: none; }
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self.lines = list(lines)

    def inside(self) -> ComposeResult:
        """The lines."""
        yield OptionList(*(Option(Text(plain(line))) for line in self.lines), markup=False)

    def on_mount(self) -> None:
        """The cursor on the first."""
        self.entitle("the same at a prompt", "y copy · Y to file · esc close")
        self.query_one(OptionList).highlighted = 0

    def on_option_list_option_selected(self) -> None:
        """Enter and a click copy."""
        self.action_copy_line()

    @property
    def line(self) -> str:
        """The one under the cursor."""
        return self.lines[self.query_one(OptionList).highlighted or 0]

    def action_copy_line(self) -> None:
        """To the clipboard and a file."""
        self.workbench.copy(self.line, "command")

    def action_write_line(self) -> None:
        """To a file here."""
        self.workbench.export(self.line + "\n", "command")

    def action_move(self, by: int) -> None:
        """Down or up."""
        lines = self.query_one(OptionList)
        lines.highlighted = ((lines.highlighted or 0) + by) % len(self.lines)
