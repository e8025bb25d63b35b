"""The panel of errors: what failed, why, what to do. Everything behind it goes on working; it never takes the focus.

Also: texts in a frame, hidden until there is something to read: why a graph exists, what a job said. Knows no screen.

For example: `panel.show(ShownError(UsageError("cannot write into out", "it is a file", "choose another -o"),
"report"))`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...dumps.errors import CannotWriteError, GraphdbgError, coded
from ...dumps.tables import plain, visible
from ...dumps.wording import counted


class Panel(VerticalScroll):
    """Hidden until something is written into it; esc closes it."""

    DEFAULT_CSS = """
    Panel { display: none; height: auto; max-height: 60%; border: round $primary; padding: 0 1; }
    Panel Static { height: auto; }
    """

    text = ""
    """The text that it shows, or showed last."""

    def compose(self):
        """One text widget."""
        yield Static(markup=False)

    @property
    def shown(self) -> bool:
        """Whether it is visible."""
        return self.display

    def write(self, title: str, below: str, text: str) -> None:
        """Shows a text, and on the frame its title and its keys."""
        self.text, self.border_title, self.border_subtitle = text, Text(title), Text(below)
        self.query_one(Static).update(Text(text))
        self.display = True

    def hide(self) -> bool:
        """Closes it; returns whether it was open."""
        was, self.display = self.display, False
        return was


class NotePanel(Panel):
    """A panel in front of a list."""

    title_text = ""

    def show(self, title: str, text: str) -> None:
        """Shows a text in place of an earlier one, and takes the keys."""
        self.put(title, text)
        self.focus()

    def put(self, title: str, text: str) -> None:
        """Replaces the text, which is being read already."""
        self.title_text = title
        self.write(plain(title), "esc closes", "\n".join(plain(line) for line in text.splitlines()))


LAST_LINES = 20
"""Lines of a failed process's narration that are shown."""


@dataclass
class ShownError:
    """One error as it was reported: `said` is the narration of the process that failed; `retry` runs again what
    failed."""

    error: BaseException
    doing: str = ""
    said: Sequence[str] = ()
    retry: Callable[[], object] | None = None
    times: int = 1

    @cached_property
    def text(self) -> str:
        """The error as people read it."""
        return described(self.error, self.said)


class ErrorPanel(Panel):
    """Hidden until there is an error."""

    can_focus = False
    DEFAULT_CSS = "ErrorPanel { dock: bottom; border: round $error; margin-bottom: 1; }"
    shown_error: ShownError | None = None

    @property
    def can_retry(self) -> bool:
        """Whether what failed can be done again from here."""
        return self.shown_error is not None and self.shown_error.retry is not None

    def show(self, shown_error: ShownError, place: str = "") -> None:
        """Shows an error in place of an earlier one; `place` says which of several it is."""
        self.shown_error = shown_error
        title = f"{shown_error.doing} failed" if shown_error.doing else "failed"
        often = f" ×{shown_error.times}" if shown_error.times > 1 else ""
        keys = " · ".join(["r again"] * (shown_error.retry is not None) + ["y copy", "Y to file", "esc close"])
        self.write(f"{title}{often} {place}".rstrip(), keys, shown_error.text)


def described(error: BaseException, said: Sequence[str] = ()) -> str:
    """An error as people read it: a sentence for what a user can mend, with a traceback for a defect of ours."""
    if isinstance(error, GraphdbgError):
        lines = [coded(error.what, error.code), error.why and f"why: {error.why}", error.fix and f"do:  {error.fix}"]
    elif isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        lines = [coded(f"the system refuses{where}: {error.strerror or error}", CannotWriteError.code)]
    else:
        lines = [
            "this is a defect of graphdbg, not of your model; everything else goes on. Please report it with "
            "this text:",
            "".join(traceback.format_exception(error)).rstrip(),
        ]
    if said:
        lines += ["", f"its last {counted(min(len(said), LAST_LINES), 'line')}:", *said[-LAST_LINES:]]
    return escaped("\n".join(line for line in lines if line or line == ""))


def escaped(text: str) -> str:
    """The text with control characters, which a dump or a process may have put in, as escapes."""
    return visible(text).expandtabs()
