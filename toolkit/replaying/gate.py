"""Decides whether the run's own program was judged: says what is known to differ, in one sentence, and adapts the
verdict.

Compared are the post-grad graphs, the generated code, the inputs' memory and autograd state, and the settings. A
failure of another program is `cannot_tell`, unless the run had the same failure. A deliberately different replay (other
torch, processor or device, imported modules) is not gated. Imports torch only where the inputs are compared.

For example:

    outcome.unlike = unlike(saved, outcome, watched, live.inputs)
    gated(saved, outcome, outcome.unlike).verdict  # -> 'cannot_tell'
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from ...dumps.relocate import names_device
from ...dumps.schema import TensorValue
from ...dumps.store import SavedGraph
from ..isolation.imports import without_trust
from ..recorder.origin import processor
from ..verdicts.ladder_records import REAL, RungResult, inputs_given
from ..verdicts.outcome import Outcome
from ..verdicts.verdict import UNLIKE, Verdict, cannot_tell
from ..verdicts.verdict_words import headline
from .after_failure import saw_nan, unlike_the_record
from .fidelity import CompiledArtifacts

_LOST = "setting "
"""Prefix of a note of `spec.settings`."""
_TIMED = (
    "max_autotune",
    "coordinate_descent_tuning",
    "benchmark_",
    "triton.autotune",
    "triton.multi_kernel",
    "autotune_",
)
"""Settings under which generated code depends on timings."""


def unlike(saved: SavedGraph, outcome: Outcome, watched: CompiledArtifacts, inputs: Sequence[Any]) -> str:
    """A sentence on what is known to differ from the recorded run under the same torch; "" where nothing is."""
    torch_then, torch_now = saved.record.versions.get("torch", ""), version("torch")
    same_torch = torch_then.partition("+")[0] == torch_now.partition("+")[0]  # regardless of the build
    if saved.run is None or outcome.verdict.skipped or not same_torch:
        return ""
    if watched.apart and _same_expected(saved, watched):
        return watched.said
    seen = outcome.signature
    crashed = seen is not None and (outcome.verdict.kind, seen.stage) == ("crash", "compile")
    if crashed and saved.status in ("compiled", "ran"):
        return "it compiled in the run under the same torch"
    if watched.same:
        return ""
    lost = [note for note in outcome.notes if note.startswith(_LOST)]
    return _other_memory(saved, inputs) or (lost[0] if lost else "")


def gated(saved: SavedGraph, judged: Outcome | RungResult, unlike: str, imports: Sequence[str] = ()) -> Verdict:
    """The verdict; `cannot_tell` where the failing program is not the run's and the run is not known to have failed
    alike.

    `imports`: modules imported first, which the run's record does not have: the replay then deliberately judges what
    they change.
    """
    asked = bool(without_trust(imports)) or judged.verdict.fault == "model"
    if not unlike or not judged.verdict.failed or asked or runs_own(saved, judged):
        return judged.verdict
    return cannot_tell(f"{headline(judged.verdict)}; this is not the run's program ({unlike})", UNLIKE)


def runs_own(saved: SavedGraph, judged: Outcome | RungResult) -> bool:
    """Whether the run's journal has the same failure."""
    if judged.verdict.kind == "nan" and saw_nan(saved):
        return True
    seen = judged.signature
    return saved.status == "failed" and seen is not None and not unlike_the_record(saved.error, seen.text())


def with_next(saved: SavedGraph, verdict: Verdict) -> Verdict:
    """Adds next commands to a verdict on another program than the run's: judge with its own inputs, the program itself,
    or anyway."""
    from ..verdicts.ladder_words import address, record_again

    if verdict.detail != UNLIKE or saved.run is None:
        return verdict
    command = shlex.join(saved.run.record.command)
    judge = f"graphdbg triage -- {command}"
    if inputs_given(saved) != REAL:
        judge = record_again(saved.run, "--inputs first")
    return verdict.then(judge if command else "", f"graphdbg minify {shlex.quote(address(saved))} --anyway")


def _same_expected(saved: SavedGraph, watched: CompiledArtifacts) -> bool:
    """Whether this compile should give the same graph as the run (not where Inductor pads GPU products, by timings), or
    the same code (only on the same CPU and without timings; which GPU the run had is unknown)."""
    record = saved.record
    on_gpu = any(names_device(record.graph, kind) for kind in ("cuda", "xpu"))
    if watched.apart == "graph":
        return not (on_gpu and watched.padded)
    timed = any(name.startswith(_TIMED) and value for name, value in record.config.get("inductor", {}).items())
    return not on_gpu and record.versions.get("cpu") == processor() and not timed


def _other_memory(saved: SavedGraph, inputs: Sequence[Any]) -> str:
    """A sentence about the first input whose memory or autograd state differs from the run's."""
    import torch

    from ...dumps.torchside.values import BUFFER, storage_key
    from ..live.spec import FULL_STAGES

    record = saved.inputs_record
    recorded = {row.name: row.value for row in record.inputs} if record is not None else {}
    names = [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]
    first: dict[Any, int] = {}
    for name, value in zip(names, inputs, strict=True):
        seen, strided = recorded.get(name), isinstance(value, torch.Tensor) and value.layout is torch.strided
        if not isinstance(seen, TensorValue) or not strided:
            continue
        if seen.subclass not in ("", BUFFER):
            return f"{name} was a {seen.subclass} in the run and is a plain tensor here"
        if [*seen.shape, *seen.stride, seen.offset] != [*value.shape, *value.stride(), value.storage_offset()]:
            return f"{name} has another memory layout than in the run"
        if seen.storage is not None and first.setdefault(seen.storage, storage_key(value)) != storage_key(value):
            return f"{name} does not share memory with other inputs as it did in the run"
        if saved.stage in FULL_STAGES and (seen.requires_grad, seen.leaf) != (value.requires_grad, value.is_leaf):
            return f"{name} differs from the run in requires_grad, or in being a leaf"
    return ""
