"""The user's own passes in a graph's compile: their names and places, and the verdict on a graph judged without them.
No torch.

>>> OwnPass("post_grad_custom_post_pass", "clip", "/home/ann/team_passes.py", 3).text
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
"""Stage (or its prefix) -> the settings whose passes ran just before it was recorded."""
WITHOUT = "without"
"""The detail of a `cannot_tell`: the graph is right, but was judged without passes of the user's that still had to run
on it."""
_ORDER = ("dynamo", "pre_grad", "joint inference", "joint_passed", "forward backward", "post_grad")
"""Stages in the order of a compile."""


MOST = 20
"""How many graphs are searched for user code that the run needs."""


class OwnPass(NamedTuple):
    """A pass of the user's: the setting that holds it, its name, and where it was written."""

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
    """The user's passes that ran just before this graph was recorded, in the order of their settings; `all`: all those
    of its compile."""
    stage = "post_grad" if after.stage.startswith("post_grad") else after.stage
    hooks = [hook for some in HOOKS.values() for hook in some] if all else HOOKS.get(stage, ())
    settings = after.record.config.get("inductor", {})
    return [_named(after, hook, settings[hook]) for hook in hooks if settings.get(hook) is not None]


def registered(saved: SavedGraph) -> list[OwnPass]:
    """The user's own decompositions and lowerings of torch's operators, from the journal; also the user's backend,
    where the graph was not compiled by Inductor."""
    kinds = (DECOMPOSITION, LOWERING) if _of_inductor(saved) else (DECOMPOSITION, LOWERING, BACKEND)
    named = [(str(note.get("unsaved") or ""), note) for note in _notes(saved)]
    return [_noted(unsaved, note) for unsaved, note in named if unsaved.startswith(kinds)]


def _of_inductor(saved: SavedGraph) -> bool:
    """Whether Inductor compiled the graph in the run: its compile has post-grad graphs."""
    return saved.stage != "dynamo" and any(saved.path.parent.glob("post_grad*"))


def not_applied(hook: str) -> str:
    """The note of a replay that lacks something that the run had registered."""
    return f"{hook} of the run is not applied"


def registered_for(saved: SavedGraph, kind: str, operators: Collection[str]) -> OwnPass | None:
    """The user's first decomposition or lowering (`kind`) for one of these operators ("aten.gelu_backward.default")."""
    wanted = {f"{kind}{operator}" for operator in operators}
    return next((known for known in registered(saved) if known.hook in wanted), None)


def of_the_run(verdict: Verdict, own: OwnPass) -> Verdict:
    """The verdict, with something that the run itself registered at fault."""
    where = Where(own.name, verdict.where.graph if verdict.where else "", own.place, own.hook)
    return msgspec.structs.replace(verdict, fault="custom_pass", layer=None, where=where)


def _named(after: SavedGraph, hook: str, value: Any) -> OwnPass:
    """The pass that a setting holds, from the journal or the recorded definitions."""
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
    """The pass that a note of the recorder describes."""
    module = str(note.get("module") or "")
    name = str(note.get("what") or "").removeprefix(f"{module}.") or "a pass"
    return OwnPass(hook, name, str(note.get("file") or ""), int(note.get("line") or 0), module)


def _notes(graph: SavedGraph) -> Sequence[dict[str, Any]]:
    paths = [process.path for process in graph.run.processes if process.name == graph.process] if graph.run else []
    return [
        event.fields for path in paths[:1] for event in journal.read(path / JOURNAL_FILE).events if event.kind == "note"
    ]


def without_passes(saved: SavedGraph, notes: Sequence[str]) -> Verdict | None:
    """The verdict on a graph that was replayed without user passes that still had to run on it (the replay's notes say
    so), or without the user's lowerings or backend; None where all were applied."""
    text = "\n".join(notes)
    if lost := [dropped for dropped in still_to_run(saved) if f"inductor.{dropped.hook} is not applied" in text]:
        return _not_judged(saved, *dropped_words(saved, lost))
    lost = [known for known in registered(saved) if not_applied(known.hook) in notes]
    without = f"without the run's own {' and '.join(known.text for known in lost)}"
    return _not_judged(saved, without, flags_for(saved, lost)) if lost else None


def _not_judged(saved: SavedGraph, without: str, flags: str) -> Verdict:
    from .ladder_words import whole_program

    again = f"graphdbg triage {saved.name} {flags}" if flags else whole_program(saved.run) if saved.run else ""
    return cannot_tell(f"right, but {without}", WITHOUT).then(again)


def still_to_run(saved: SavedGraph) -> list[OwnPass]:
    """The user's passes that run only after the stage of this graph."""
    stage_of = {hook: stage for stage, hooks in HOOKS.items() for hook in hooks}
    return [own for own in passes(saved, all=True) if _place(stage_of[own.hook]) > _place(saved.stage)]


def dropped_words(saved: SavedGraph, lost: Sequence[OwnPass]) -> tuple[str, str]:
    """A phrase that these passes were left out and what brings them back; and the command-line flags that do."""
    how = flags_for(saved, lost)
    text = " and ".join(dropped.text for dropped in lost)
    only = f"which runs only with {how}" if how else "whose source is not recorded"
    return f"without the run's own pass {text}, {only}", how


def flags_for(saved: SavedGraph, lost: Sequence[OwnPass]) -> str:
    """The command-line flags that bring these passes back: `--trust` where their source is recorded, else `--import`;
    "" where only the program itself has them."""
    mine = [dropped.module for dropped in lost if dropped.module not in ("", "__main__")]
    recorded = {name for definition in saved.record.definitions if not definition.missing for name in definition.values}
    hooks = {f"inductor.{hook}" for some in HOOKS.values() for hook in some}
    given = all(f"inductor.{dropped.hook}" in hooks for dropped in lost)  # only passes are held by a setting
    trusting = given and all(f"inductor.{dropped.hook}" in recorded for dropped in lost)
    return "--trust" if trusting else " ".join(f"--import {module}" for module in dict.fromkeys(mine))


def left_out(run: Run) -> tuple[str, str]:
    """The user code that replays of this run leave out by default, in words, and the flags that change that; both ""
    where none is known. Searches only the first Dynamo graphs.
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
    """The position of a stage in a compile; 0 for an unknown stage."""
    plain = "post_grad" if stage.startswith("post_grad") else stage
    return next((at for at, names in enumerate(_ORDER) if plain in names.split()), 0)
