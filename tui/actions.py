"""What an action is, and those that every screen, or every screen with a list, has; a screen's own are in its SCREEN.

Adding one is a row and a method `do_<id>` in its screen, a part of it or the app. Keys must be plain: terminals, tmux
and ssh eat others (no ctrl+enter, no alt). `registry` has all of them. Does nothing itself.

>>> Action("graph.search", "slash", "find", "").method, Action("diff.next", "n", "next", "", does=("diff_step", 1)).call
('do_graph_search', ('diff_step', 1))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

EVERYWHERE = "*"
ROOMS_OF = {"app": (EVERYWHERE,), "tabs": ("graph",), "list": (EVERYWHERE,), "variant": ("graph", "diff", "replay")}
"""The screens of actions whose id does not begin with the name of their only one."""
MOVES = ("down", "up", "page_down", "page_up", "top", "end")
"""How keys move in the list of a screen."""


@dataclass(frozen=True)
class Action:
    """One action. `typed`: its keys as textual names them. `words`: the command that does the same, as a user would
    type it (empty: it only moves about on the screen). `does`: the method's name and its arguments, where the id does
    not say so. `footer`: whether it is one of the five of the last line. `also`: other words for it, by which the
    palette finds it.
    """

    id: str
    typed: str
    label: str
    help: str
    words: str = ""
    does: tuple[Any, ...] = ()
    footer: bool = False
    also: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys, one by one."""
        return tuple(self.typed.split())

    @property
    def group(self) -> str:
        """The heading under which help lists it."""
        if self.call[0] == "move":
            return "move"
        if self.id.startswith("app."):
            return "rooms" if self.typed.isdigit() else "everywhere"
        return "errors" if self.id.startswith("errors.") else "here"

    @property
    def rooms(self) -> tuple[str, ...]:
        """The screens that have it, or everywhere."""
        area = self.id.partition(".")[0]
        return ROOMS_OF.get(area, (area,))

    @property
    def call(self) -> tuple[Any, ...]:
        """The method's name without its `do_`, and its arguments."""
        move = self.id.partition(".")[2]
        return self.does or (("move", move) if move in MOVES else (self.id.replace(".", "_"),))

    @property
    def method(self) -> str:
        """The method of a screen, of a part of it or of the app that does it."""
        return f"do_{self.call[0]}"


@dataclass(frozen=True)
class Screen:
    """One screen, named as its file or folder in `screens`, with what `Action` says of the digit that opens it.

    `of`: what it is about: a graph, a pair of graphs, the search for a smaller case, or nothing that must be chosen.
    `opens`: the app's method behind its digit, where the usual one does not do. `about`: its row in
    docs/guides/workbench.md. `actions`: in the order of help.
    """

    digit: str
    label: str
    help: str
    words: str = ""
    also: str = ""
    of: Literal["graph", "pair", "search", "nothing"] = "graph"
    opens: str = ""
    about: str = ""
    actions: tuple[Action, ...] = ()

    def opening(self, name: str) -> Action:
        """The action of every screen that opens this one."""
        does = (self.opens,) if self.opens else ("app_show", name)
        return Action(f"app.{name}", self.digit, self.label, self.help, self.words, does=does, also=self.also)


SHARED = (
    # a graph, wherever it is looked at
    Action(
        "variant.edit",
        "V",
        "edit graph",
        "Its graph.py in your editor, at the node (in Diff: that of B): a case of what you change, judged, "
        "beside the graph.",
        "import FILE --like RUN/ID --trust -o CASE",
        also="variant change try modify graph.py",
    ),
    # lists
    Action("list.down", "down j", "down", "One line down."),
    Action("list.up", "up k", "up", "One line up."),
    Action("list.page_down", "pagedown ctrl+d", "page down", "One page down."),
    Action("list.page_up", "pageup ctrl+u", "page up", "One page up."),
    Action("list.top", "home g", "top", "To the first line."),
    Action("list.end", "end G", "end", "To the last line."),
)
"""Actions of several screens (see `ROOMS_OF`)."""
ALWAYS = (
    Action("app.help", "question_mark", "help", "What can be done here, and with which key.", also="keys"),
    Action("app.palette", "ctrl+p", "palette", "Find an action by its name."),
    Action("app.command", "at", "command", "The command line that does what this screen shows; those of its jobs.",
           also="cli"),
    Action("app.undo", "Z", "undo", "Bring back what a key took away: a filter, folds, verdicts, a search that was "
           "left."),
    Action("app.back", "escape", "back", "Close what is open in front; else go back to the screen before."),
    Action("app.errors", "E", "errors", "The errors so far, the newest first; again: the one before."),
    Action("app.theme", "f2 T", "theme", "Dark, light, or the colours of the terminal itself; it is remembered.",
           also="colours"),
    Action("app.mouse", "M", "mouse", "Give the mouse to the terminal, so that it marks text; again: take it back."),
    Action("app.trust", "U", "trust",
           "What is started here runs the source that this run holds, too (custom ops, passes); again: no more.",
           "triage RUN --trust", also="custom operators"),
    Action("app.tour", "f1", "tour", "Two minutes round the workbench.", "demo", also="tutorial"),
    Action("app.quit", "q ctrl+q", "quit",
           "Leave. Where jobs run it asks: leave them running (`graphdbg tui` finds them again) or stop them.",
           also="exit leave"),
)  # fmt: skip
"""Actions of every screen; help lists them after the digits of the screens."""
