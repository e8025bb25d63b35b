"""Report: its digit, what it is about, and its actions with their keys, in the order in which help lists them."""

from __future__ import annotations

from ...actions import Action, Screen

SCREEN = Screen(
    digit="6", label="report", help="Write a repro and the text of an issue.", words="report RUN/ID",
    also="repro issue bug", of="search",
    about="what would be shared, the issue text, the repro, run again",
    actions=(
    Action("report.write", "o", "export",
           "Write repro.py, issue.md and artifacts.zip into a new folder; nothing is overwritten or sent.",
           "report RUN/ID -o DIR --json", footer=True, also="write report repro issue bug"),
    Action("report.verify", "r", "run", "Run repro.py three times in fresh processes.", "verify OUT --json",
           footer=True, also="verify again repro"),
    Action("report.next_view", "right_square_bracket tab", "next view", "Privacy, issue text, repro, artifacts, log.",
           does=("view", 1), footer=True),
    Action("report.previous_view", "left_square_bracket shift+tab", "view before", "The view before.", does=("view",
           -1)),
    Action("report.copy", "y", "copy", "The text of this view: the issue, the repro.", footer=True, also="clipboard"),
    Action("report.copy_path", "ctrl+y", "copy path", "The path of the file of this view."),
    Action("report.edit", "e", "editor", "The file of this view in your editor.", footer=True),
    Action("report.stop", "x", "stop", "Stop what writes or verifies."),
    ),
)  # fmt: skip
