"""Home: its digit, what it is about, and its actions with their keys, in the order in which help lists them."""

from __future__ import annotations

from ...actions import Action, Screen

SCREEN = Screen(
    digit="1", label="home", help="The runs here, their processes and graphs.", words="ls", also="runs list",
    of="nothing", opens="app_home",
    about=("runs › compiles › graphs, a row for each compile with function, line, status and seconds; opens on the "
        "graph that failed; a run's searches and jobs stand under it. Below the list what is known of the line: "
        "the error with its source, the last verdict, why it exists, what to do (`z` larger, `J` `K` scroll)"),
    actions=(
    Action("home.open", "enter", "open",
           "A graph: its nodes. A compile: its graphs. A minification or a job: how it goes. A run: its compiles.",
           "show RUN/ID", footer=True),
    Action("home.filter", "f", "filter", "Show what has these words in run, id, stage, status or error; -word hides.",
           "ls RUN --filter TEXT", footer=True, also="find search"),
    Action("home.triage", "t", "triage", "Judge every graph of the run, or this one: which are wrong, at which rung.",
           "triage RUN", footer=True, also="check wrong numbers accuracy compare rungs ladder"),
    Action("home.why", "w", "why", "Why this graph exists: graph breaks, failed guards, dynamic sizes.", "ls RUN --why",
           footer=True, also="recompiles guards breaks"),
    Action("home.failed", "exclamation_mark", "next bad", "To the next graph that failed or was judged wrong.",
           does=("home_failed", 1), footer=True, also="error failed"),
    Action("home.unfold", "right l", "unfold", "Unfold the run, process or compile under the cursor.",
           does=("home_fold", False)),
    Action("home.fold", "left h", "fold", "Fold the run, process or compile; from inside of one, go to it.",
           does=("home_fold", True)),
    Action("home.toggle", "space", "toggle", "Fold or unfold a run, process or compile.", does=("home_fold",)),
    Action("home.zoom", "z", "zoom", "More of what is known of the line under the cursor; the list alone; both.",
           also="maximise preview"),
    Action("home.scroll_down", "J", "tab down", "Scroll what is known of the line.", does=("home_scroll", 3)),
    Action("home.scroll_up", "K", "tab up", "Scroll it back.", does=("home_scroll", -3)),
    Action("home.stop", "x", "stop", "Stop the job under the cursor, and all that it started.", also="kill cancel"),
    Action("home.pin", "F", "pin", "While following: the cursor stays on the newest graph.", "ls RUN --follow",
           also="follow"),
    Action("home.again", "ctrl+r", "read again", "Look again now; every second it is looked at anyhow.", "ls",
           also="refresh reload"),
    ),
)  # fmt: skip
