"""Actions of the replay screen."""

from __future__ import annotations

from .action import Action


def _row(name: str, keys: str, label: str, help: str, words: str = "", *, footer: bool = False) -> Action:
    return Action(f"replay.{name}", tuple(keys.split()), label, help, ("replay",), words, footer)


ACTIONS = (
    _row("run", "enter r", "run", "Run the ticked rungs; on a value: its node in the graph.",
         "triage RUN/ID --rungs eager,inductor --all --json-lines", footer=True),
    _row("tick", "space", "tick", "Tick or untick the rung under the cursor.", "triage RUN/ID --rungs eager,inductor",
         footer=True),
    _row("tick_all", "a", "all", "Tick all rungs, or none."),
    _row("values", "v", "values", "Read each node's value under the rung of the cursor: min, max, NaN, error to float64.",
         "replay RUN/ID --values --rung inductor --json-lines", footer=True),
    _row("stop", "x", "stop", "Stop what runs here; what was found so far stays.", footer=True),
    _row("localize", "L", "localize", "Name the first node whose compiled value is wrong.",
         "localize RUN/ID --rung inductor", footer=True),
    _row("bisect", "B", "bisect", "Name the pass, lowering or setting that makes it fail.", "bisect RUN/ID", footer=True),
    _row("minify", "m", "minify", "Shrink it under the rung that fails.", "minify RUN/ID --rung inductor", footer=True),
    _row("next_bad", "n b", "next bad", "To the first bad node, then to the next one."),
    _row("previous_bad", "N", "bad before", "To the bad node before."),
    _row("graph", "o", "graph", "The node under the cursor in the graph, with the values as columns.", "show RUN/ID"),
    _row("switch", "tab", "other list", "From the rungs to the values, and back."),
    _row("next_view", "right_square_bracket", "next view", "Values, localize, bisect, and what the ladder said."),
    _row("previous_view", "left_square_bracket shift+tab", "view before", "The view before."),
    _row("maximise", "z", "maximise", "The lower view alone, or with the rungs again."),
    _row("seed", "s", "seed", "The seed of inputs that were not stored, and of random ops.", "triage RUN/ID --seed 1"),
    _row("device", "d", "device", "Move graph and inputs to a device first.", "triage RUN/ID --device cpu"),
    _row("imports", "i", "imports", "Modules to import first, for the custom ops that they register.",
         "triage RUN/ID --import MODULE"),
    _row("copy", "y", "copy", "What the lower view shows, as text."),
    _row("down", "down j", "down", "One line down."),
    _row("up", "up k", "up", "One line up."),
    _row("page_down", "pagedown ctrl+d", "page down", "One page down."),
    _row("page_up", "pageup ctrl+u", "page up", "One page up."),
    _row("top", "home g", "top", "To the first line."),
    _row("end", "end G", "end", "To the last line."),
)  # fmt: skip
