"""The actions of a screen, from the registry; typed text filters it. Knows no action itself.

>>> [entry.keys for entry in entries("home") if entry.label == "help"]
['?']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from ..key_line import shown
from ..registry import of_room
from ..sheet import Sheet

PANEL = (
    ("r", "again", "With an open panel of an error: do again what failed."),
    ("y", "copy", "With an open panel of an error: its text to the clipboard and a file."),
    ("Y", "to file", "With an open panel of an error: its text to a file here."),
)


LANES = (
    "Lanes: a line leads from where a value is made (●) past each use (├ ┤) to its last one (╰ ╯). ○ its "
    "last use is more than "
    "40 rows on, or no lane is free; · nobody uses it; ‹ it uses a value from so far above. ▾ ▴ users and "
    "inputs of the node "
    "under the cursor. ✗ a job found something there. Errors of float32 are yellow from 3e-5 on and red from 3e-4.\n"
)

GROUPS = {"here": "In this room", "rooms": "Rooms", "everywhere": "Everywhere", "move": "Moving", "errors": "Errors"}


@dataclass(frozen=True)
class HelpLine:
    """One line of help."""

    keys: str
    label: str
    help: str
    words: str = ""
    group: str = ""


def entries(room: str) -> list[HelpLine]:
    """All that can be done in a room, by what it is for, in the order of the registry."""
    known = sorted(of_room(room), key=lambda action: list(GROUPS).index(action.group))
    own = [
        HelpLine(" ".join(map(shown, action.keys)), action.label, action.help, action.words, action.group)
        for action in known
    ]
    return own + [HelpLine(*row, group="errors") for row in PANEL]


def matching(room: str, text: str) -> list[HelpLine]:
    """The lines that hold every word of the text."""
    words = text.lower().split()
    texts = ((entry, f"{entry.keys} {entry.label} {entry.help} {entry.words}".lower()) for entry in entries(room))
    return [entry for entry, entry_text in texts if all(word in entry_text for word in words)]


def as_table(entries: Sequence[HelpLine], wide: bool) -> Table | Text:
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
        row = [Text(entry.keys), description]
        table.add_row(*row, *([Text(f"graphdbg {entry.words}" if entry.words else "")] if wide else []))
    return table


class Help(Sheet[None]):
    """The keys of one room."""

    DEFAULT_CSS = """
    Help VerticalScroll { height: auto; max-height: 100%; }
    """

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
        moves = {
            "down": scroll.scroll_down,
            "up": scroll.scroll_up,
            "pagedown": scroll.scroll_page_down,
            "pageup": scroll.scroll_page_up,
        }
        if event.key in moves:
            event.stop()
            moves[event.key](animate=False)

    def _fill(self, text: str) -> None:
        table = as_table(matching(self.room_name, text), self.size.width >= 90)
        legend = LANES if self.room_name == "graph" and not text.strip() else ""
        self.query_one("#keys-table", Static).update(Group(Text(legend, "dim"), table) if legend else table)
