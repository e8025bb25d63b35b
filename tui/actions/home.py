"""Actions of the home screen."""

from __future__ import annotations

from .action import Action

_ROOMS = ("home",)
_LISTS = ("home", "diff")

ACTIONS: tuple[Action, ...] = (
    Action("home.open", ("enter", "right", "l"), "open",
           "A graph: its nodes. A minification or a job: how it goes. A run: its graphs.", _ROOMS, "show RUN/ID", footer=True),
    Action("home.filter", ("f", "slash"), "filter",
           "Show what has these words in id, stage, status or error; -word hides.", _ROOMS, "ls RUN --filter TEXT", footer=True),
    Action("home.why", ("w",), "why", "Why this graph exists: graph breaks, failed guards, dynamic sizes.",
           _ROOMS, "ls RUN --why", footer=True),
    Action("home.failed", ("n",), "next failed", "To the next graph that failed or died.", _ROOMS, footer=True),
    Action("home.failed_before", ("N",), "failed before", "To the failed graph before.", _ROOMS),
    Action("home.pin", ("F",), "pin", "While following: the cursor stays on the newest graph.", _ROOMS, "ls RUN --follow"),
    Action("home.stop", ("x",), "stop", "Stop the job under the cursor, and all that it started.", _ROOMS),
    Action("home.again", ("r",), "read again", "Look again now; every second it is looked at anyhow.", _ROOMS, "ls"),
    Action("home.fold", ("left", "h", "space"), "fold", "Fold or unfold a run or process; from a graph, go to its run.", _ROOMS),
    Action("list.down", ("down", "j"), "down", "One line down.", _LISTS),
    Action("list.up", ("up", "k"), "up", "One line up.", _LISTS),
    Action("list.page_down", ("pagedown", "ctrl+d"), "page down", "One page down.", _LISTS),
    Action("list.page_up", ("pageup", "ctrl+u"), "page up", "One page up.", _LISTS),
    Action("list.top", ("home", "g"), "top", "To the first line.", _LISTS),
    Action("list.end", ("end", "G"), "end", "To the last line.", _LISTS),
)  # fmt: skip
