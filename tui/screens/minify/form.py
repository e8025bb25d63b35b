"""The form that begins a minification: existing options, what is wrong with them, and the command line that they make.

Shows and edits a `minifier.starting.Start`; decides nothing.

"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.reactive import reactive
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label, Static

from ....dumps.errors import GraphdbgError, NotReadyError
from ....minifier.options import CHECKS, FLAGS
from ....minifier.starting import HINTS, SHOWN, Start
from ....toolkit.rungs import NAMES

if TYPE_CHECKING:
    from ...app import Workbench

FIELDS = (*SHOWN, "out")
CHOICES = {"rung": NAMES, "check": CHECKS}


class MinifyForm(VerticalScroll):
    """One line per option; below them the command line."""

    can_focus = False
    DEFAULT_CSS = """
    MinifyForm { padding: 0 1; }
    MinifyForm Horizontal { height: 1; }
    MinifyForm Label { width: 15; color: $text-muted; }
    MinifyForm Input { width: 1fr; }
    MinifyForm > Static { height: auto; margin-top: 1; }
    """

    base: reactive[Start | None] = reactive(None, always_update=True)
    """The proposal for a graph. It may come before the form has its fields, or after it was closed."""

    def compose(self) -> ComposeResult:
        """All fields, empty."""
        yield Static("", id="form-title", markup=False)
        for name in FIELDS:
            with Horizontal():
                yield Label(FLAGS.get(name, "-o"))
                choices = CHOICES.get(name)
                suggester = SuggestFromList(choices, case_sensitive=False) if choices else None
                yield Input(
                    placeholder=HINTS[name], id=f"form-{name}", compact=True, suggester=suggester, select_on_focus=False
                )
        yield Static("", id="form-command", markup=False)
        yield Static("", id="form-help", markup=False)

    def on_mount(self) -> None:
        """Fills in a proposal that came before the fields."""
        self.watch_base(self.base)

    def watch_base(self, base: Start | None) -> None:
        """Fills the fields, as soon as they are there."""
        if base is None or not all(self.query(f"#form-{name}") for name in ("title", *FIELDS, "command", "help")):
            return
        for name, text in base.texts().items():
            self.query_one(f"#form-{name}", Input).value = text
        why = f"  ({base.why})" if base.why else ""
        self.query_one("#form-title", Static).update(Text.assemble("Minify ", (base.graph, "bold"), why))
        self._tell()

    def start(self) -> Start:
        """The start with the typed options. Raises UsageError for options that make no sense."""
        if self.base is None:
            raise NotReadyError(
                "nothing to start yet", "the graph is still being read", "press enter again in a moment"
            )
        return self.base.with_texts({name: self.query_one(f"#form-{name}", Input).value for name in FIELDS})

    def on_input_changed(self, event: Input.Changed) -> None:
        """Writes the command line again."""
        event.stop()
        if self.base is not None:
            self._tell()

    def _tell(self) -> None:
        try:
            words = cast("Workbench", self.app).as_trusted(self.start().words())
            line, wrong = shlex.join(["graphdbg", *words]), ""
        except GraphdbgError as error:
            line, wrong = "", str(error)
        command = Text.assemble(("$ ", "dim"), line) if line else Text(wrong, "bold red")
        self.query_one("#form-command", Static).update(command)
        focused = next((name for name in FIELDS if self.query_one(f"#form-{name}", Input).has_focus), None)
        hint = f"{FLAGS.get(focused, '-o')}: {HINTS[focused]}" if focused else "tab: change the options"
        begins = "enter starts it; it goes on when you leave. " if line else ""
        self.query_one("#form-help", Static).update(Text(begins + hint, "dim"))

    def on_descendant_focus(self) -> None:
        """Shows the hint of the field that is typed into."""
        if self.base is not None:
            self._tell()
