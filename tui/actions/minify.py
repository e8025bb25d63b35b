"""Actions of the minify screen."""

from __future__ import annotations

from .action import Action


def _row(name: str, keys: str, label: str, help: str, words: str = "", *, footer: bool = False) -> Action:
    return Action(f"minify.{name}", tuple(keys.split()), label, help, ("minify",), words, footer)


ACTIONS = (
    _row("open", "enter", "start/open", "Start it from the form; later open what the cursor is on: a state, a query, a case.",
         "minify RUN/ID -o OUT --json", footer=True),
    _row("next_view", "right_square_bracket tab", "next view",
         "Steps, history, candidate, queries, other failures, words, result.", footer=True),
    _row("previous_view", "left_square_bracket shift+tab", "previous view", "The view before."),
    _row("skip", "s", "skip", "Leave the step that runs now as far as it is, and go on with the next one.",
         "steer OUT skip", footer=True),
    _row("disable", "d", "disable", "Leave out the step under the cursor (view Steps); again: take it in.",
         "steer OUT disable STEP", footer=True),
    _row("raise", "plus equals_sign", "raise", "Do the step under the cursor next (view Steps).", "steer OUT raise STEP"),
    _row("pause", "p", "pause", "Ask nothing more until p is pressed again.", "steer OUT pause", footer=True),
    _row("cancel", "c", "cancel", "End the search; the best case is checked and kept.", "steer OUT cancel", footer=True),
    _row("restart", "r", "restart", "Search again from the state under the cursor (view History); what was found stays.",
         "steer OUT restart 1"),
    _row("resume", "R", "resume", "Go on with one that died, was interrupted or stopped at a limit.",
         "minify --resume -o OUT --json"),
    _row("shrink", "m", "minify this", "Minify the other failure under the cursor (view Others).", "minify OUT/also/1-crash"),
    _row("graph", "g", "result graph", "The nodes of the best case.", "show OUT", footer=True),
    _row("new", "n", "new", "The form for another minification of this graph.", "minify RUN/ID"),
    _row("copy", "y", "copy", "What this view shows, as text."),
    _row("down", "j down", "down", "The next line."),
    _row("up", "k up", "up", "The line before."),
    _row("page_down", "pagedown ctrl+d", "page down", "A page on."),
    _row("page_up", "pageup ctrl+u", "page up", "A page back."),
    _row("top", "home", "top", "The first line."),
    _row("bottom", "end G", "bottom", "The last line."),
    _row("right", "l right", "right", "See more of long lines."),
    _row("left", "h left", "left", "Back to their beginning."),
    _row("maximise", "z", "maximise", "The view alone, or with the plot again."),
)  # fmt: skip
