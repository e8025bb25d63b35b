"""Runs a saved graph again, isolated: a child of the fork server loads it, builds its inputs, judges it under a rung.

The calling process imports torch only when it wants the outputs. Loading follows the safety rules of `dumps.live`.

>>> outcome = replay(load_graph("myrun/0_0/forward"), rung="inductor")
>>> outcome.ok, outcome.text
(True, 'ok')
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...dumps.journal import DECOMPOSITION
from ...dumps.wording import counted
from ..isolation import Answer, ForkServer, ask, opened
from ..live.process_groups import peers
from ..live.rung import LADDER
from ..rungs import warmth
from ..verdicts.identity import known_id
from ..verdicts.outcome import Outcome
from ..verdicts.own_passes import Pass, decompositions, passes, without_passes
from ..verdicts.signature import from_answer
from ..verdicts.verdict import Verdict, Where, died
from . import judged
from .control import longer, slowed
from .eager_death import dies_at
from .gate import with_next

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

TASK = f"{__name__}:task"
DEFAULT_LIMIT_S = 600.0


class How(NamedTuple):
    """The settings of questions about a saved graph: `seed` for inputs that were not stored and for random ops,
    `device` to move everything to first, `limit_s` of one question, `imports` to import first for the ops that they
    register; `own_nan`: a NaN of the model's own is asked for, too; `measured`: the memory of compile and first run,
    beside eager's; `known`: what an earlier command judged need not be judged again; `anyway`: what fails is a failure,
    whether or not it is the run's program."""

    seed: int = 0
    device: str | None = None
    limit_s: float = DEFAULT_LIMIT_S
    imports: Sequence[str] = ()
    own_nan: bool = False
    measured: bool = False
    known: bool = False
    anyway: bool = False

    def payload(self, saved: SavedGraph) -> dict[str, Any]:
        """The payload that every task gets."""
        return {
            "path": str(saved.path.absolute()),
            "seed": self.seed,
            "device": self.device,
            "imports": list(self.imports),
        }


def replay(
    saved: SavedGraph,
    rung: str = "inductor",
    seed: int = 0,
    device: str | None = None,
    *,
    limit_s: float = DEFAULT_LIMIT_S,
    check: str = "auto",
    outputs: bool = True,
    imports: Sequence[str] = (),
    own_nan: bool = False,
    measured: bool = False,
    known: bool = False,
    anyway: bool = False,
    server: ForkServer | None = None,
    shared: Path | None = None,
    patient: bool = True,
    without: Sequence[str] = (),
) -> Outcome:
    """Runs a saved graph under a rung in a child with a time limit and judges it; returns an Outcome.

    `seed`: for inputs that were not stored, random ops and tangents. `device`: move everything there first.
    `limit_s`: seconds. `outputs`: also return the output tensors (imports torch here). `imports`: modules to import
    first, for the ops that they register. `own_nan`: a NaN that eager gives, too, is a failure (see `own_nan`), as it
    is with `check` "nan". `measured`: `needed_bytes`, `eager_bytes` and `control_bytes` are wanted. `known`: what an
    earlier command came to will do. `anyway`: a failure counts also where it is known that this is not the run's
    program and that the run had none (see `gate`). `without`: settings of Inductor that hold passes of the run's own,
    which are left out. `server`: a fork server to use; by default one is started and closed. `shared`: see `judge`.
    `patient`: a limit that was met on a busy machine is raised by as much as a harmless compile takes longer there, up
    to the default. A segfault, a hang or running out of memory is an Outcome like any other. Raises UsageError for an
    unknown rung, GraphdbgError for a graph that cannot be loaded.

    >>> outcome = replay(saved, rung="eager")
    >>> outcome.ok, outcome.verdict.verdict, outcome.outputs[0].shape
    (True, 'ok', torch.Size([2, 4]))
    """
    from ..rungs import rung as named

    named(rung)  # a wrong name is the caller's mistake, reported before anything starts
    plain = not (device or imports or own_nan or measured or anyway)
    if known and plain and not outputs and (before := judged.known(saved, rung, check, seed)) is not None:
        return before
    with opened(server, warmth(rung)) as used:
        kept = used.scratch_file(".pt") if outputs else None
        others = peers(saved)
        payload = {
            **How(seed, device, limit_s, imports).payload(saved),
            "rung": rung,
            "check": check,
            "own_nan": own_nan,
            "measured": measured,
            "anyway": anyway,
            "without": list(without),
            "keep": str(kept) if kept else None,
            "shared": str(shared) if shared else None,
            "meeting": str(used.scratch_file(".meeting")) if others else "",
        }
        alone = {"keep": None, "shared": None}
        beside = [
            ask(TASK, {**payload, **alone, "path": str(peer.path.absolute())}, limit_s, server=used) for peer in others
        ]
        asked = ask(TASK, payload, limit_s, server=used)
        for question in (*beside, asked):
            question.answer()
        outcome = outcome_of(asked.end(), rung)
        if outcome.verdict.kind == "hang" and patient and not others and limit_s < DEFAULT_LIMIT_S:
            fair_s = longer(limit_s, slowed(used, len(saved.record.graph.nodes)), DEFAULT_LIMIT_S)
            if fair_s > limit_s:
                outcome = outcome_of(ask(TASK, payload, fair_s, server=used).end(), rung)
                outcome.notes.append(f"the machine is busy: it was given {fair_s:.0f} s in place of {limit_s:.0f}")
        if outcome.signature is not None and (outcome.signature.kind, outcome.signature.stage) == ("signal", "eager"):
            outcome = dies_at(saved, How(seed, device, limit_s, imports), used, outcome)
        outcome.verdict = with_next(saved, outcome.verdict)
        if LADDER[rung].has_passes and not without:
            about = How(seed, device, limit_s, imports)
            lacking = without_passes(saved, outcome.notes) if outcome.verdict.verdict == "ok" else None
            outcome.verdict = lacking or own_pass(saved, outcome.verdict, rung, about, used)
        if outcome.verdict.failed:
            outcome.signature_id = known_id(outcome.signature, saved)
        if plain and not others:
            judged.remember(saved, rung, check, seed, outcome)
        outcome.notes += used.notes
        if others:
            outcome.notes.append(f"replayed together with the graphs of {counted(len(others), 'other rank')}")
        if kept is not None and kept.exists():
            outcome.outputs = _load(kept)
            kept.unlink()
    return outcome


def outcome_of(answer: Answer, rung: str) -> Outcome:
    """The outcome of an isolated judgement, however its process ended."""
    if answer.status == "done":
        outcome = msgspec.convert(answer.value, Outcome)
    else:
        signature = from_answer(answer)
        assert signature is not None
        outcome = Outcome(died(signature, rung), signature, rung=rung, seconds=answer.seconds)
    outcome.output, outcome.peak_bytes = answer.output, answer.peak_bytes
    return outcome


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: loads, judges, and compares with the recorded compile."""
    from ..isolation.child import mark
    from ..judging.judge import judge
    from ..live.case import Case
    from .control import harmless
    from .costs import PeakMemory
    from .fidelity import CompiledArtifacts
    from .gate import gated, unlike
    from .own_nan import with_own_nan

    mark("load")
    case = Case.at(payload["path"])
    meeting = payload.get("meeting", "")
    live = case.live(rung=payload["rung"], seed=payload["seed"], device=payload["device"], meeting=meeting)
    if payload["without"]:
        off = dict.fromkeys(payload["without"], None)
        live.spec.config = {**live.spec.config, "inductor": {**live.spec.config.get("inductor", {}), **off}}
    watched = CompiledArtifacts(case.saved) if payload["rung"] == "inductor" and payload["device"] is None else None
    peak, eager, control = PeakMemory(), PeakMemory(), PeakMemory()
    if payload["measured"]:
        with control.watched():
            harmless(len(live.gm.graph.nodes))
        judge(live, "eager", "crash", seed=payload["seed"], watch=eager.watched)

    @contextmanager
    def watch() -> Generator[None]:
        with (
            watched.compiling() if watched else nullcontext(),
            peak.watched() if payload["measured"] else nullcontext(),
        ):
            yield

    outcome = judge(
        live,
        payload["rung"],
        payload["check"],
        seed=payload["seed"],
        keep_outputs=payload["keep"] is not None,
        watch=watch,
        shared=Path(payload["shared"]) if payload.get("shared") else None,
    )
    outcome.needed_bytes, outcome.eager_bytes, outcome.control_bytes = peak.bytes, eager.bytes, control.bytes
    asked = payload["own_nan"] or payload["check"] == "nan"
    outcome = with_own_nan(outcome, live, case.saved, asked=asked, seed=payload["seed"])
    outcome.notes = [*live.notes, *outcome.notes]
    if watched:
        mark("fidelity")
        outcome.fidelity = watched.compare(outcome)
        outcome.unlike = unlike(case.saved, outcome, watched, live.inputs)
        if not payload["anyway"]:
            outcome.verdict = gated(case.saved, outcome, outcome.unlike, payload["imports"])
    if payload["keep"] and outcome.outputs is not None:
        import torch

        plain = (int, float, bool, type(None))
        kept = [
            output.detach()
            if isinstance(output, torch.Tensor)
            else output
            if isinstance(output, plain)
            else repr(output)
            for output in outcome.outputs
        ]
        torch.save(kept, payload["keep"])
    outcome.outputs = None
    return msgspec.to_builtins(outcome)


def _load(path: Path) -> list[Any]:
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def own_pass(
    saved: SavedGraph,
    verdict: Verdict,
    rung: str,
    how: How,
    server: ForkServer | None = None,
    users: Sequence[Pass] | None = None,
) -> Verdict:
    """The verdict on a failure under a rung: a pass of the user's is at fault where the graph is right without it, with
    the ops that `--trust` or `--import` brought in; a decomposition of the user's where it is right without the
    imports. One more replay, of a graph with such code alone. `users`: that of the graph that it was cut from, where it
    holds none itself."""
    users = own(saved) if users is None else users
    if not (users and how.imports and verdict.failed and verdict.fault == "compiler"):
        return verdict
    hooks = [user.hook for user in users if not user.hook.startswith(DECOMPOSITION)]
    plain = how._replace(anyway=True, imports=how.imports if hooks else ())._asdict()
    if replay(saved, rung, **plain, outputs=False, server=server, without=hooks).verdict.verdict != "ok":
        return verdict
    mine = " and ".join(user.text for user in users)
    reason = f"{verdict.reason}; it is right without the run's own {'pass ' * bool(hooks)}{mine}"
    where = Where(users[0].name, verdict.where.graph if verdict.where else "", users[0].place, users[0].hook)
    return msgspec.structs.replace(verdict, fault="custom_pass", layer=None, reason=reason, where=where)


def own(saved: SavedGraph) -> list[Pass]:
    """The user's passes in a graph's compile; the user's decompositions where there are none."""
    return passes(saved, all=True) or decompositions(saved)
