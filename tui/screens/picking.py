"""Sheets in which one or several of a list are picked: nodes, columns, command lines, the other graph of a comparison.

Each shows what it is given and answers with what was picked; none knows the room behind.

For example:

    app.push_screen(PickNode("users of add_3", [("mul_4", "aten.mul.Tensor [8, 64]", 57)], 12), picked)
    app.push_screen(ChooseColumns(COLUMNS, usual(view)), chosen)
    app.push_screen(CommandLine(["graphdbg show myrun/0_0/forward"]))
    app.push_screen(PickOther("myrun/0_1/forward", others), chosen)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from rich.cells import set_cell_size
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList, SelectionList
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from ...dumps.browse.columns import NodeColumn
from ...dumps.browse.listing import matches
from ...dumps.diff.others import ComparableGraph
from ...dumps.tables import plain
from ...dumps.wording import counted
from ..sheet import SheetScreen
from ..widgets.rows import Parts, Rows
from ..widgets.trouble import escaped as printable
from ..widgets.virtual_list import VirtualList

R = TypeVar("R")


class Picking(SheetScreen[R]):
    """A list of textual's in which j and k move, too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move('down')", show=False),
        Binding("k", "move('up')", show=False),
    ]

    @property
    def listed(self) -> OptionList:
        """The list."""
        return self.query_one(OptionList)

    def action_move(self, way: str) -> None:
        """Moves as the arrows do."""
        self.listed.action_cursor_down() if way == "down" else self.listed.action_cursor_up()


class PickNode(Picking[int]):
    """A sheet to pick a node. `offered`: name, what it is, and its place; `count` is how many there are in all. The
    answer is a place."""

    def __init__(self, title: str, offered: Sequence[tuple[str, str, int]], count: int) -> None:
        more = f" · {count - len(offered):,} more are not listed" if count > len(offered) else ""
        super().__init__(title, f"enter goes there · esc{more}")
        self.offered = offered

    def inside(self) -> ComposeResult:
        """One line per node."""
        wide = max((len(name) for name, _, _ in self.offered), default=0) + 2
        lines = [
            Text.assemble((f"{place:>7}  ", "dim"), (name.ljust(wide), "bold"), what, no_wrap=True)
            for name, what, place in self.offered
        ]
        yield OptionList(*lines)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answers."""
        self.dismiss(self.offered[event.option_index][2])


class ChooseColumns(Picking[list[str]]):
    """A sheet to choose columns. The answer is the keys that are ticked, in no order; None where nothing changed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("v", "leave", show=False)]

    def __init__(self, offered: Sequence[NodeColumn], now: Sequence[NodeColumn]) -> None:
        super().__init__("columns", "space ticks · esc done")
        self.offered, self.now = offered, {column.key for column in now}

    def inside(self) -> ComposeResult:
        """One line per column."""
        lines = {column.key: Text.assemble((f"{column.title:<10}", "bold"), column.help) for column in self.offered}
        yield SelectionList[str](*(Selection(line, key, key in self.now) for key, line in lines.items()))

    def answer(self) -> list[str] | None:
        """The ticked columns, where they differ from before."""
        ticked = [str(key) for key in self.query_one(SelectionList).selected]
        return ticked if ticked and set(ticked) != self.now else None


class CommandLine(Picking[None]):
    """The command lines that do what a screen shows; y copies the one under the cursor, Y writes it to a file; none is
    run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "copy_line", show=False),
        Binding("Y", "write_line", show=False),
        Binding("at", "leave", show=False),
    ]
    DEFAULT_CSS = """
    CommandLine OptionList { height: auto; max-height: 16; background: $surface; }
    CommandLine OptionList, CommandLine OptionList:focus { border: none; }
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("the same at a prompt", "y copy · Y to file · esc close")
        self.lines = list(lines)

    def inside(self) -> ComposeResult:
        """The lines."""
        yield OptionList(*(Option(Text(printable(line))) for line in self.lines), markup=False)

    def on_mount(self) -> None:
        """Puts the cursor on the first line."""
        self.listed.highlighted = 0

    def on_option_list_option_selected(self) -> None:
        """Copies on Enter and on a click."""
        self.action_copy_line()

    @property
    def line(self) -> str:
        """The line under the cursor."""
        return self.lines[self.listed.highlighted or 0]

    def action_copy_line(self) -> None:
        """Copies the line to the clipboard and a file."""
        self.workbench.copy(self.line, "command")

    def action_write_line(self) -> None:
        """Writes the line to a file here."""
        self.workbench.export(self.line + "\n", "command")


class PickOther(SheetScreen[str]):
    """A sheet that answers with the name of a graph: one of the list, or one that is typed; None for esc."""

    DEFAULT_CSS = "PickOther Rows { height: auto; max-height: 16; min-height: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]

    def __init__(self, graph: str, others: Sequence[ComparableGraph]) -> None:
        super().__init__(f"compare {graph} with", "enter compare · esc close")
        self.others = self.shown = others

    def inside(self) -> ComposeResult:
        """The field to type into, and the graphs that fit."""
        yield Input(placeholder="words to choose by, or RUN/ID of any other graph", compact=True)
        yield Rows(self._paint, id="rows")

    def on_mount(self) -> None:
        """Fills the list."""
        self._show()

    def _show(self) -> None:
        rows = self.query_one(Rows)
        rows.show(len(self.shown), cursor=0)
        rows.styles.height = max(1, min(16, len(self.shown)))

    def _paint(self, index: int, width: int) -> Parts:
        other = self.shown[index]
        name = max(len(listed.graph) for listed in self.shown)
        nodes = "" if other.nodes is None else counted(other.nodes, "node", form=",")
        return [
            (set_cell_size(plain(other.graph), min(name, width // 2) + 2), "bold"),
            (f"{nodes:>14}  ", ""),
            (f"{other.status}  ", "red" if other.status == "failed" else ""),
            (other.why, "dim"),
        ]

    def action_move(self, by: int) -> None:
        """Moves the cursor of the list while the field has the keys."""
        self.query_one(Rows).move(by)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Shows the graphs that fit the words."""
        words = event.value.lower().split()
        self.shown = [other for other in self.others if matches(f"{other.graph} {other.why}".lower(), words)]
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answers with the graph under the cursor, else with the typed name."""
        typed = event.value.strip()
        if self.shown:
            self.dismiss(self.shown[self.query_one(Rows).cursor].graph)
        elif typed:
            self.dismiss(typed)

    def on_virtual_list_opened(self, message: VirtualList.Opened) -> None:
        """Handles a double click."""
        self.dismiss(self.shown[message.index].graph)
