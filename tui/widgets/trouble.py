"""The panel of errors: what failed, why, what to do. Everything behind it goes on working.

>>> trouble.show(UsageError("cannot write into out", "it is a file", "choose another -o"))
"""

from __future__ import annotations

import traceback

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...dumps.errors import GraphdbgError


class Trouble(VerticalScroll):
    """Hidden until there is an error; esc closes it."""

    can_focus = False

    DEFAULT_CSS = """
    Trouble { display: none; dock: bottom; height: auto; max-height: 40%; border: round $error; padding: 0 1; margin-bottom: 1; }
    Trouble.shown { display: block; }
    Trouble Static { height: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.text = ""

    def compose(self):
        """One text."""
        yield Static(id="trouble-text", markup=False)

    def show(self, error: BaseException, doing: str = "") -> None:
        """Shows an error in place of an earlier one."""
        self.text = described(error, doing)
        self.border_title = f"{doing} failed" if doing else "failed"
        self.border_subtitle = "esc closes"
        self.query_one("#trouble-text", Static).update(Text(self.text))
        self.add_class("shown")

    def hide(self) -> bool:
        """Closes the panel; whether it was open."""
        was = self.has_class("shown")
        self.remove_class("shown")
        return was


def described(error: BaseException, doing: str = "") -> str:
    """An error as people read it: a sentence for what a user can mend, with a traceback for a defect of ours."""
    if isinstance(error, GraphdbgError):
        lines = error.what, error.why and f"why: {error.why}", error.fix and f"do: {error.fix}"
        return "\n".join(line for line in lines if line)
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return f"the system refused{where}: {error.strerror or error}"
    told = "".join(traceback.format_exception(error)).rstrip()
    return f"this is a defect of graphdbg, not of your model; everything else goes on. Please report it with this text:\n{told}"
