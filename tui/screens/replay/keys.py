"""Replay: its digit, what it is about, and its actions with their keys, in the order in which help lists them."""

from __future__ import annotations

from ...actions import Action, Screen

SCREEN = Screen(
    digit="4", label="replay", help="Run the graph again under any rung.", words="triage RUN/ID",
    also="triage rungs ladder values bisect",
    about=("the ladder as its rungs end; every node's range, NaN and error to float64 as they come, the first bad one "
        "(`!` goes to it, without values in the graph); bisect"),
    actions=(
    Action("replay.run", "r", "run", "Run the ticked rungs; the others keep their verdicts.",
           "triage RUN/ID --rungs eager,inductor --all --json-lines", footer=True,
           also="triage ladder replay check wrong numbers accuracy"),
    Action("replay.tick", "space", "toggle", "Tick or untick the rung under the cursor.",
           "triage RUN/ID --rungs eager,inductor"),
    Action("replay.tick_all", "a", "all or some", "Tick all rungs, or none."),
    Action("replay.open", "enter", "open", "Of a rung what was said about it; of a value its node in the graph.",
           "show RUN/ID"),
    Action("replay.values", "v", "values", "Read each node's value under a rung: min, max, NaN, error to float64.",
           "replay RUN/ID --values --rung inductor --json-lines", footer=True,
           also="tensors statistics nan inf localize"),
    Action("replay.stop", "x", "stop", "Stop what runs here; what was found so far stays.", also="kill cancel"),
    Action("replay.bisect", "B", "bisect", "Name the node that makes it fail, or the pass, lowering or setting.",
           "bisect RUN/ID --rung inductor", footer=True, also="localize pass lowering setting guilty first wrong node"),
    Action("replay.minify", "m", "minify", "Shrink it under the rung that fails.", "minify RUN/ID --rung inductor",
           footer=True, also="shrink reduce minimise repro"),
    Action("replay.next_bad", "exclamation_mark", "next bad",
           "To the first bad node, then to the next one; where no values were read, in the graph.",
           does=("replay_bad", 1), footer=True),
    Action("replay.switch", "tab", "next view", "From the rungs to the values, and back."),
    Action("replay.next_view", "right_square_bracket", "next view", "Values, bisect, and what the ladder said.",
           does=("view", 1)),
    Action("replay.previous_view", "left_square_bracket shift+tab", "view before", "The view before.", does=("view",
           -1)),
    Action("replay.zoom", "z", "zoom", "The lower view alone, or with the rungs again.", also="maximise"),
    Action("replay.seed", "number_sign", "seed", "The seed of inputs that were not stored, and of random ops.",
           "triage RUN/ID --seed 1"),
    Action("replay.device", "D", "device", "Move graph and inputs to a device first.", "triage RUN/ID --device cpu",
           also="cuda gpu"),
    Action("replay.imports", "I", "imports", "Modules to import first, for the custom ops that they register.",
           "triage RUN/ID --import MODULE", also="custom operators"),
    Action("replay.copy", "y", "copy", "What the lower view shows, as text."),
    ),
)  # fmt: skip
