"""Minify: its digit, what it is about, and its actions with their keys, in the order in which help lists them."""

from __future__ import annotations

from ...actions import Action, Screen

SCREEN = Screen(
    digit="5", label="minification",
    help=("Shrink the graph to the smallest case that fails alike: the search that runs, else the form."),
    words="minify RUN/ID", also="minify shrink reduce", of="search", opens="app_minify",
    about=("two by two: numbers with % and rates, size over time, the candidate as a diff, the output of the running "
        "query; steps to skip, disable or raise, other failures, history to restart from (whatever is in front, `d` "
        "leaves out the step that runs, `r` begins again at the newest state); pause, or cancel and keep the best"),
    actions=(
    Action("minify.open", "enter", "open", "Start it from the form; later open what the cursor is on: a state, a "
           "query, a case.", "minify RUN/ID -o OUT --json", footer=True, also="start minify shrink reduce"),
    Action("minify.next_view", "right_square_bracket tab", "next view",
           "Steps, history, candidate, queries, other failures, log, result.", does=("view", 1), footer=True),
    Action("minify.previous_view", "left_square_bracket shift+tab", "view before", "The view before.", does=("view",
           -1)),
    Action("minify.pause", "space", "toggle", "Pause after this query, or go on.", "steer OUT pause", footer=True,
           also="pause resume"),
    Action("minify.skip", "S", "skip", "Leave the step that runs now as far as it is, and go on with the next one.",
           "steer OUT skip", does=("minify_steer", "skip"), footer=True),
    Action("minify.disable", "d", "disable",
           "Leave out the step that runs; in the view Steps the one under the cursor, and take it in again.",
           "steer OUT disable STEP"),
    Action("minify.raise", "P", "raise", "Do the step under the cursor next (view Steps, which comes in front first).",
           "steer OUT raise STEP", also="prioritise"),
    Action("minify.stop", "x", "stop", "End the search; the best case is checked and kept.", "steer OUT cancel",
           footer=True, also="cancel end"),
    Action("minify.restart", "r", "run",
           "Search again from the newest state, or that under the cursor (view History); what was found stays.",
           "steer OUT restart 1", also="restart again"),
    Action("minify.resume", "R", "resume", "Go on with one that died, was interrupted or stopped at a limit.",
           "minify --resume -o OUT --json", footer=True),
    Action("minify.minify", "m", "minify", "The form for another search: of this graph; in the view Other failures, of "
           "that one.", "minify RUN/ID", footer=True, also="new other failure"),
    Action("minify.copy", "y", "copy", "What this view shows, as text; of the result the repro.", footer=True),
    Action("minify.right", "right_curly_bracket", "sideways right", "See more of long lines.", does=("minify_across",
           1)),
    Action("minify.left", "left_curly_bracket", "sideways left", "Back to their beginning.", does=("minify_across",
           -1)),
    Action("minify.zoom", "z", "zoom", "The view alone, or with the plot again.", also="maximise"),
    ),
)  # fmt: skip
