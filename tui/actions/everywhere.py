"""Actions that every screen has."""

from __future__ import annotations

from .action import Action

ACTIONS = (
    Action("app.help", ("question_mark",), "help", "What can be done here, and with which key.", footer=True),
    Action("app.palette", ("ctrl+p",), "palette", "Find an action by its name.", footer=True),
    Action("app.command", ("at",), "command", "The command line that does what this screen shows; those of its jobs.",
           footer=True),
    Action("app.back", ("escape",), "back", "Close what is open in front; else go back to the screen before."),
    Action("app.home", ("1",), "home", "The runs here, their processes and graphs.", words="ls"),
    Action("app.graph", ("2",), "graph", "The nodes of the graph.", words="show RUN/ID"),
    Action("app.diff", ("3",), "diff", "The graph beside another one.", words="diff A B"),
    Action("app.replay", ("4",), "replay", "Run the graph again under any rung.", words="triage RUN/ID"),
    Action("app.minify", ("5",), "minify", "Shrink the graph to the smallest case that fails alike.", words="minify RUN/ID"),
    Action("app.report", ("6",), "report", "Write a repro and the text of an issue.", words="report RUN/ID"),
    Action("app.errors", ("E",), "errors", "The errors so far, the newest first; again: the one before."),
    Action("app.theme", ("f2", "T"), "theme", "Dark, light, or the colours of the terminal itself; it is remembered."),
    Action("app.mouse", ("M",), "mouse", "Give the mouse to the terminal, so that it marks text; again: take it back."),
    Action("app.tour", ("f1",), "tour", "Two minutes round the workbench.", words="demo"),
    Action("app.quit", ("q", "ctrl+q"), "quit",
           "Leave. Where jobs run it asks: leave them running (`graphdbg tui` finds them again) or stop them."),
)  # fmt: skip
