"""Actions of the tabs beside the node table of the graph screen."""

from __future__ import annotations

from .action import Action

_ROOM = ("graph",)

ACTIONS: tuple[Action, ...] = (
    Action("tabs.partner", ("p",), "partner", "To the node's partner in the backward or forward graph; again: the next one.",
           _ROOM, "show RUN/ID --node NODE", footer=True),
    Action("tabs.next", ("right_square_bracket", "tab"), "next tab", "Detail, Source, Code, IR, Near.", _ROOM, footer=True),
    Action("tabs.previous", ("left_square_bracket", "shift+tab"), "tab before", "The tab to the left.", _ROOM),
    Action("tabs.more", ("full_stop",), "next of several", "The next frame or kernel; on Near: a hop more.", _ROOM,
           "show RUN/ID --node NODE --hops N"),
    Action("tabs.less", ("comma",), "the one before", "The frame or kernel before; on Near: a hop less.", _ROOM),
    Action("tabs.down", ("J",), "tab down", "Scroll the tab while the table keeps the cursor.", _ROOM),
    Action("tabs.up", ("K",), "tab up", "Scroll the tab back.", _ROOM),
    Action("tabs.editor", ("e",), "editor", "Open what the tab shows, else the user's file, in your editor at the line.", _ROOM),
    Action("tabs.export", ("o",), "export", "Draw the neighbourhood into an .svg file: .svg, .png or .txt.", _ROOM,
           "draw RUN/ID --around NODE --hops N"),
)  # fmt: skip
