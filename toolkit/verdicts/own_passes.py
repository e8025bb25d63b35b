"""The user's own passes in a graph's compile: their names and places, and what a verdict is worth that was judged
without them. No torch.

>>> Pass("post_grad_custom_post_pass", "clip", "/home/ann/team_passes.py", 3).text
'clip in team_passes.py:3 (post_grad_custom_post_pass)'
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...dumps import journal
from ...dumps.errors import GraphdbgError
from ...dumps.graph_folder import JOURNAL_FILE
from ...dumps.journal import BACKEND, DECOMPOSITION, LOWERING
from ...dumps.store import Run, SavedGraph
from .verdict import Verdict, Where, cannot_tell

HOOKS = {
    "pre_grad": ("pre_grad_custom_pass",),
    "joint_passed": ("joint_custom_pre_pass", "joint_custom_post_pass"),
    "post_grad": ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"),
    "backward": ("custom_partitioner_fn",),
}
"""Stage, or how it begins -> the settings whose passes ran last before it was recorded."""
WITHOUT = "without"
"""The detail of a `cannot_tell`: a graph is right without passes of the user's that had still to run on it."""
_ORDER = ("dynamo", "pre_grad", "joint inference", "joint_passed", "forward backward", "post_grad")
"""Stages as they follow each other."""


MOST = 20
"""So many graphs are looked at for what a run needs of the user's own."""


class OwnPass(NamedTuple):
    """A pass of the user's: the setting that it hangs on, its name, and where it was written."""

    hook: str
    name: str
    file: str = ""
    line: int = 0
    module: str = ""

    @property
    def text(self) -> str:
        """The pass as a sentence names it."""
        return f"{self.name}{' in ' * bool(self.file)}{self.place} ({self.hook})"

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        return Path(self.file).name + (f":{self.line}" if self.line else "") if self.file else ""


def passes(after: SavedGraph, *, all: bool = False) -> list[OwnPass]:
    """The user's passes that ran last before this graph was recorded, in the order of their settings; or `all` of its
    compile."""
    stage = "post_grad" if after.stage.startswith("post_grad") else after.stage
    hooks = [hook for some in HOOKS.values() for hook in some] if all else HOOKS.get(stage, ())
    settings = after.record.config.get("inductor", {})
    return [_named(after, hook, settings[hook]) for hook in hooks if settings.get(hook) is not None]


def registered(saved: SavedGraph) -> list[OwnPass]:
    """The user's own decompositions and lowerings of torch's operators, as the journal describes them, and the backend
    where the graph is none that Inductor was given by it."""
    kinds = (DECOMPOSITION, LOWERING) if _of_inductor(saved) else (DECOMPOSITION, LOWERING, BACKEND)
    named = [(str(note.get("unsaved") or ""), note) for note in _notes(saved)]
    return [_noted(unsaved, note) for unsaved, note in named if unsaved.startswith(kinds)]


def _of_inductor(saved: SavedGraph) -> bool:
    """Whether Inductor compiled the graph in the run: its own stages were recorded of the same compile."""
    return saved.stage != "dynamo" and any(saved.path.parent.glob("post_grad*"))


def not_applied(hook: str) -> str:
    """The note of a replay without what the run had registered."""
    return f"{hook} of the run is not applied"


def registered_for(saved: SavedGraph, kind: str, operators: Collection[str]) -> OwnPass | None:
    """The first of a kind (DECOMPOSITION, LOWERING) for one of these operators ("aten.gelu_backward.default")."""
    wanted = {f"{kind}{operator}" for operator in operators}
    return next((known for known in registered(saved) if known.hook in wanted), None)


def of_the_run(verdict: Verdict, own: OwnPass) -> Verdict:
    """The verdict on a failure of which something that the run registered is to blame."""
    where = Where(own.name, verdict.where.graph if verdict.where else "", own.place, own.hook)
    return msgspec.structs.replace(verdict, fault="custom_pass", layer=None, where=where)


def _named(after: SavedGraph, hook: str, value: Any) -> OwnPass:
    """The pass on a setting, as the journal and the recorded definitions describe it."""
    said = str(value)
    notes = [note for note in _notes(after) if note.get("unsaved") == f"setting inductor.{hook}"]
    notes = [note for note in notes if str(note.get("what", "")).rpartition(".")[2] in said] or notes
    if notes:
        return _noted(hook, notes[-1])
    known = next((candidate for candidate in after.record.definitions if f"inductor.{hook}" in candidate.values), None)
    if known is None:
        return OwnPass(hook, "a pass")
    return OwnPass(hook, known.values[f"inductor.{hook}"].removesuffix("()"), known.file, module=known.module)


def _noted(hook: str, note: Mapping[str, Any]) -> OwnPass:
    """What a note of the recorder says of a pass."""
    module = str(note.get("module") or "")
    name = str(note.get("what") or "").removeprefix(f"{module}.") or "a pass"
    return OwnPass(hook, name, str(note.get("file") or ""), int(note.get("line") or 0), module)


def _notes(graph: SavedGraph) -> Sequence[dict[str, Any]]:
    paths = [process.path for process in graph.run.processes if process.name == graph.process] if graph.run else []
    return [
        event.fields for path in paths[:1] for event in journal.read(path / JOURNAL_FILE).events if event.kind == "note"
    ]


def without_passes(saved: SavedGraph, notes: Sequence[str]) -> Verdict | None:
    """The verdict that a graph was compiled without passes of the user's that had still to run on it in the run, as the
    notes of a replay say, or without lowerings or a backend of the user's; None where all were applied."""
    text = "\n".join(notes)
    lost = [dropped for dropped in still_to_run(saved) if f"inductor.{dropped.hook} is not applied" in text]
    if not lost:
        return _without_registered(saved, notes)
    return _not_judged(saved, *dropped_words(saved, lost))


def _without_registered(saved: SavedGraph, notes: Sequence[str]) -> Verdict | None:
    lost = [known for known in registered(saved) if not_applied(known.hook) in notes]
    without = f"without the run's own {' and '.join(known.text for known in lost)}"
    return _not_judged(saved, without, flags_for(saved, lost)) if lost else None


def _not_judged(saved: SavedGraph, without: str, flags: str) -> Verdict:
    from .ladder_words import whole_program

    again = f"graphdbg triage {saved.name} {flags}" if flags else whole_program(saved.run) if saved.run else ""
    return cannot_tell(f"right, but {without}", WITHOUT).then(again)


def still_to_run(saved: SavedGraph) -> list[OwnPass]:
    """The user's passes that had still to run on a graph when it was recorded."""
    stage_of = {hook: stage for stage, hooks in HOOKS.items() for hook in hooks}
    return [own for own in passes(saved, all=True) if _place(stage_of[own.hook]) > _place(saved.stage)]


def dropped_words(saved: SavedGraph, lost: Sequence[OwnPass]) -> tuple[str, str]:
    """That something was done without these passes and what brings them back, in words; and the words of a command
    line that do."""
    how = flags_for(saved, lost)
    text = " and ".join(dropped.text for dropped in lost)
    only = f"which runs only with {how}" if how else "whose source is not recorded"
    return f"without the run's own pass {text}, {only}", how


def flags_for(saved: SavedGraph, lost: Sequence[OwnPass]) -> str:
    """The words of a command that bring them back: of passes `--trust` where their source is recorded; empty where only
    the program itself has them."""
    mine = [dropped.module for dropped in lost if dropped.module not in ("", "__main__")]
    recorded = {name for definition in saved.record.definitions if not definition.missing for name in definition.values}
    hooks = {f"inductor.{hook}" for some in HOOKS.values() for hook in some}
    given = all(f"inductor.{dropped.hook}" in hooks for dropped in lost)  # to a setting, as only passes are
    trusting = given and all(f"inductor.{dropped.hook}" in recorded for dropped in lost)
    return "--trust" if trusting else " ".join(f"--import {module}" for module in dict.fromkeys(mine))


def left_out(run: Run) -> tuple[str, str]:
    """What of the user's own takes no part in replays of a run by themselves, in words, and the flags that change that;
    both empty where nothing is known to be left out. Looks at Dynamo's first graphs alone.
    """
    for row in [row for row in run.rows if row.stage == "dynamo" and row.saved][:MOST]:
        saved = run.graph(row.id)
        try:
            lost = [known for known in passes(saved, all=True) if known.file]
            mine = [known for known in saved.record.definitions if known.program and not known.missing]
            ops = [space for definition in mine for space in definition.spaces]
            own = [known for known in registered(saved) if known.hook.startswith((DECOMPOSITION, LOWERING))]
        except GraphdbgError:
            continue
        if lost:
            return f"the run's own pass {' and '.join(known.text for known in lost)}", flags_for(saved, lost)
        if own and (flags := flags_for(saved, own)):
            return f"the run's own {' and '.join(known.text for known in own)}", flags
        if ops:
            return f"operators of the run's own ({', '.join(dict.fromkeys(ops))})", "--trust"
    return "", ""


def _place(stage: str) -> int:
    """Where a stage stands among them; what is not known stands first."""
    plain = "post_grad" if stage.startswith("post_grad") else stage
    return next((at for at, names in enumerate(_ORDER) if plain in names.split()), 0)
