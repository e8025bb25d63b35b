"""The actions of a screen, from the registry; typed text filters it. Knows no action itself.

>>> [keys_text(entry) for entry in entries("home") if entry.label == "help"]
['?']
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from ..actions import Action
from ..key_line import shown
from ..registry import of_room
from ..sheet import SheetScreen

PANEL = (
    Action("errors.again", "r", "again", "With an open panel of an error: do again what failed."),
    Action("errors.copy", "y", "copy", "With an open panel of an error: its text to the clipboard and a file."),
    Action("errors.file", "Y", "to file", "With an open panel of an error: its text to a file here."),
)


LANES = (
    "Lanes: a line leads from where a value is made (●) past each use (├ ┤) to its last one (╰ ╯). ○ its "
    "last use is more than "
    "40 rows on, or no lane is free; · nobody uses it; ‹ it uses a value from so far above. ▾ ▴ users and "
    "inputs of the node "
    "under the cursor. ✗ a job found something there. Errors of float32 are yellow from 3e-5 on and red from 3e-4.\n"
)

GROUPS = {"here": "In this room", "rooms": "Rooms", "everywhere": "Everywhere", "move": "Moving", "errors": "Errors"}


def keys_text(action: Action) -> str:
    """The keys of an action, as they are printed on a keyboard."""
    return " ".join(map(shown, action.keys))


def entries(room: str) -> list[Action]:
    """All that can be done in a room, by what it is for, in the order of the registry."""
    return sorted([*of_room(room), *PANEL], key=lambda action: list(GROUPS).index(action.group))


def matching(room: str, text: str) -> list[Action]:
    """The actions that hold every word of the text."""
    words = text.lower().split()
    texts = ((entry, f"{keys_text(entry)} {entry.label} {entry.help} {entry.words}".lower()) for entry in entries(room))
    return [entry for entry, entry_text in texts if all(word in entry_text for word in words)]


def as_table(entries: Sequence[Action], wide: bool) -> Table | Text:
    """Keys, what they do, and the command that does the same, as a table."""
    if not entries:
        return Text("Nothing here has these words.")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=wide, header_style="dim", expand=True)
    table.add_column("key", style="bold", no_wrap=True)
    table.add_column("what it does", ratio=3)
    if wide:
        table.add_column("as a command", style="dim", ratio=1)
    group = ""
    for entry in entries:
        if entry.group != group:
            group = entry.group
            table.add_row(Text(""), Text(GROUPS[group], "bold"), *([Text("")] if wide else []))
        description = Text(entry.label, "bold").append("  ").append(entry.help, "not bold")
        row = [Text(keys_text(entry)), description]
        table.add_row(*row, *([Text(f"graphdbg {entry.words}" if entry.words else "")] if wide else []))
    return table


class Help(SheetScreen[None]):
    """The keys of one room."""

    DEFAULT_CSS = "Help VerticalScroll { height: auto; max-height: 100%; }"

    def __init__(self, room: str) -> None:
        super().__init__(f"help: {room}")
        self.room_name = room

    def inside(self) -> ComposeResult:
        """The line to type in, then the keys."""
        words = Input(placeholder="type to find; ↑ ↓ move", id="words", compact=True)
        words.cursor_blink = False  # a picture of it stays the same, and a slow line is not written to for nothing
        yield words
        with VerticalScroll(id="scroll", can_focus=False):
            yield Static(id="keys-table", markup=False)

    def on_resize(self) -> None:
        """Gives commands a column only where there is room."""
        self._fill(self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Shows the lines that have the typed words."""
        self._fill(event.value)

    def on_key(self, event: events.Key) -> None:
        """Moves the list while the cursor stays in the text."""
        scroll = self.query_one("#scroll", VerticalScroll)
        way = {"down": "down", "up": "up", "pagedown": "page_down", "pageup": "page_up"}.get(event.key)
        if way:
            event.stop()
            getattr(scroll, f"scroll_{way}")(animate=False)

    def _fill(self, text: str) -> None:
        table = as_table(matching(self.room_name, text), self.size.width >= 90)
        legend = LANES if self.room_name == "graph" and not text.strip() else ""
        self.query_one("#keys-table", Static).update(Group(Text(legend, "dim"), table) if legend else table)
