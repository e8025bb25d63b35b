"""Actions of the report screen."""

from __future__ import annotations

from .action import Action


def _row(name: str, keys: str, label: str, help: str, words: str = "", *, footer: bool = False) -> Action:
    return Action(f"report.{name}", tuple(keys.split()), label, help, ("report",), words, footer)


ACTIONS = (
    _row("write", "w", "write", "Write repro.py, issue.md and artifacts.zip into a new folder; nothing is overwritten or sent.",
         "report RUN/ID -o DIR --json", footer=True),
    _row("verify", "v", "verify again", "Run repro.py three times in fresh processes.", "report OUT --verify --json",
         footer=True),
    _row("next_view", "right_square_bracket tab", "next view", "What is shared, issue text, repro, artifacts, words.",
         footer=True),
    _row("previous_view", "left_square_bracket shift+tab", "previous view", "The view before."),
    _row("copy", "y", "copy", "The text of this view: the issue, the repro.", footer=True),
    _row("copy_path", "p", "copy path", "The path of the file of this view."),
    _row("edit", "e", "editor", "The file of this view in your editor.", footer=True),
    _row("graph", "g", "graph", "The nodes of the case.", "show OUT"),
    _row("stop", "c", "stop", "Stop what writes or verifies."),
    _row("down", "j down", "down", "A line on."),
    _row("up", "k up", "up", "A line back."),
    _row("page_down", "pagedown ctrl+d space", "page down", "A page on."),
    _row("page_up", "pageup ctrl+u", "page up", "A page back."),
    _row("top", "home", "top", "The first line."),
    _row("bottom", "end G", "bottom", "The last line."),
)  # fmt: skip
