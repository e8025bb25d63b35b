"""THE registry: every action of every screen. It feeds key bindings, footer, help, palette and the tests.

Adding an action is a row in the file of its screen and a method `do_<id>` there. Keys must be plain: terminals, tmux and ssh eat
others (no ctrl+enter, no alt).

>>> [action.id for action in of_room("graph")][0]
'graph.down'
"""

from __future__ import annotations

from . import diff, everywhere, graph, home, minify, replay, report, tabs
from .action import EVERYWHERE, Action

REGISTRY: tuple[Action, ...] = (
    *home.ACTIONS, *graph.ACTIONS, *tabs.ACTIONS, *diff.ACTIONS, *replay.ACTIONS, *minify.ACTIONS, *report.ACTIONS,
    *everywhere.ACTIONS,
)  # fmt: skip
"""In the order in which help tells them: what a screen is for first."""

BY_ID = {action.id: action for action in REGISTRY}


def of_room(room: str) -> list[Action]:
    """What can be done on a screen: its own actions, then those that all have."""
    return [action for action in REGISTRY if room in action.rooms or EVERYWHERE in action.rooms]
