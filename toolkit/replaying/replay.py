"""Runs a saved graph again, isolated: a child of the fork server loads it, builds its inputs, judges it under a rung.

Also: the control of evidence by time and memory: what a harmless graph of the same size takes on this machine now.

Also: the outcome of judging a saved graph, kept in the cache folder so that the next command need not judge it again.

Also: the node that ends the process where eager itself dies, or that does not end: one more eager run in a child
reports each node before it runs.

The calling process imports torch only when it wants the outputs. Loading follows the safety rules of `dumps.live`.

>>> outcome = replay(load_graph("myrun/0_0/forward"), rung="inductor")
>>> outcome.ok, outcome.text
(True, 'ok')
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ... import __version__
from ...dumps.journal import DECOMPOSITION
from ...dumps.reading import read_bytes, stored
from ...dumps.store import SavedGraph
from ...dumps.wording import counted
from ...dumps.written import put_at, taken_at
from ..isolation import ForkServer, Servers, TaskResult, ask, opened
from ..live.how import DEFAULT_LIMIT_S, How
from ..live.process_groups import peers
from ..live.rung import LADDER
from ..rungs import known as known_rung
from ..rungs import warmth
from ..verdicts.identity import known_id
from ..verdicts.ladder_records import REAL, inputs_given
from ..verdicts.mismatches import TORCHS
from ..verdicts.outcome import Outcome
from ..verdicts.own_passes import HOOKS, WITHOUT, OwnPass, not_applied, of_the_run, passes, registered, without_passes
from ..verdicts.signature import from_answer
from ..verdicts.verdict import WHOLE, Verdict, Where, cannot_tell, died, fails
from .checked import of_operator
from .gate import with_next

CONTROL_TASK = f"{__name__}:control_task"
BUSY = 1.25
"""From this slowness factor on a machine counts as busy, and limits are extended by the factor."""
MARGIN = 1.25
"""A margin: the factor may change by so much within a minute."""
LIMIT_S = 120.0
MOST_NODES = 100


def slowed(server: Servers, nodes: int) -> float:
    """The machine's slowness factor, measured in a child; infinite where even the control does not end."""
    answer = ask(CONTROL_TASK, {"nodes": nodes}, LIMIT_S, server=server).answer()
    return answer.value["factor"] if answer.status == "done" else float("inf")


def longer(limit_s: float, factor: float, most_s: float, waited_s: float = 0.0) -> float:
    """A limit adjusted to the slowness factor. Unchanged where the machine is not busy, or where the child was given
    enough time already (`waited_s`: its server adds the time that the machine spent on other processes)."""
    fair_s = limit_s * factor * MARGIN * limit_s / max(limit_s, waited_s)
    return max(limit_s, min(most_s, fair_s)) if factor >= BUSY else limit_s


def control_task(payload: dict[str, Any]) -> dict[str, float]:
    """The body of the query: measures the slowness factor in a child."""
    return {"factor": factor(payload["nodes"])}


def factor(nodes: int) -> float:
    """Measures the slowness factor in this process: wall time of a harmless compile by its CPU time."""
    began, worked = time.perf_counter(), sum(os.times()[:4])
    harmless(nodes)
    return max(1.0, (time.perf_counter() - began) / max(0.05, sum(os.times()[:4]) - worked))


def harmless(nodes: int) -> None:
    """Compiles and runs a harmless graph with so many nodes in this process."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from .. import torch_private as t
    from ..judging.judge import judge
    from ..live.case import Live
    from ..live.spec import ReplaySpec
    from .costs import empty_code_cache

    def chain(x: Any) -> Any:
        for _ in range(max(1, min(nodes, MOST_NODES))):
            x = torch.sin(x)
        return x

    case = Live(make_fx(chain, tracing_mode="fake")(torch.ones(8, 8)), [torch.ones(8, 8)], ReplaySpec("inference"))
    with empty_code_cache(), t.inductor_config.patch(compile_threads=1):
        judge(case, "inductor", "crash")


FILE = "judged.json"
SURE = ("crash", "signal", "wrong_numbers", "nan", "metadata", "missing_error")
"""Kinds of failure that do not depend on the machine's load."""
_COMPILERS = ("_dynamo", "_functorch", "_inductor", "_decomp", "_refs", "_prims", "fx")
_READ = ("GRAPHDBG", "TORCH", "TRITON", "CUDA", "CXX", "CC", "OMP", "PYTORCH")
_MOST_NOTES = 20


def digest(saved: SavedGraph) -> str:
    """A digest of the graph and its inputs as stored on disk."""
    seen = hashlib.blake2b(digest_size=16)
    for name in ("graph.json", "inputs.json"):
        if stored(saved.path / name) is not None:
            seen.update(read_bytes(saved.path / name))
    return seen.hexdigest()


def remember(saved: SavedGraph, rung: str, check: str, seed: int, outcome: Outcome) -> None:
    """Stores an outcome that a repeated judgement would reproduce."""
    verdict = outcome.verdict
    if verdict.verdict in ("ok", "rounding") or (verdict.failed and verdict.kind in SURE):
        plain = msgspec.structs.replace(outcome, outputs=None, output="", notes=outcome.notes[:_MOST_NOTES])
        put_at(FILE, _key(saved), {f"{rung} {check} {seed}": msgspec.to_builtins(plain)})


def known_outcome(saved: SavedGraph, rung: str, check: str, seed: int) -> Outcome | None:
    """The stored outcome; None where there is none."""
    return taken_at(FILE, _key(saved), Outcome).get(f"{rung} {check} {seed}")


def _key(saved: SavedGraph) -> str:
    names = sorted(name for name in os.environ if name.startswith(_READ))
    given = "\0".join(f"{name}={os.environ[name]}" for name in names)
    seen = "\0".join([digest(saved), __version__, version("torch"), str(_changed()), given])
    return hashlib.blake2b(seen.encode(), digest_size=16).hexdigest()


@cache
def _changed() -> int:
    """The last modification time of torch's compiler sources: a development build of torch changes them in place."""
    spec = find_spec("torch")
    home = Path(spec.origin).parent if spec is not None and spec.origin else None
    if home is None:
        return 0
    files = (file for name in _COMPILERS for file in (home / name).rglob("*.py"))
    return max((file.stat().st_mtime_ns for file in files), default=0)


EAGER_TASK = f"{__name__}:eager_task"
_AGAIN_S = 60.0
"""How long the run may take that shows where eager does not end."""


def dies_at(saved: SavedGraph, how: How, server: ForkServer, outcome: Outcome) -> Outcome:
    """Adds to the outcome of a death in eager the node, the user line and the fault, to that of a run that does not end
    the node that it has reached; unchanged where no node does so."""
    assert outcome.signature is not None
    status, limit_s = "signal", how.limit_s
    if outcome.signature.kind == "hang":
        status, limit_s = "timeout", min(_AGAIN_S, limit_s)
    answer = ask(EAGER_TASK, how.payload(saved), limit_s, server=server).end()
    if answer.status != status or not answer.event:
        return outcome
    node, line, operator = (answer.event[name] for name in ("node", "line", "operator"))
    where = Where(node, line=line)
    custom = "." in operator and operator.partition(".")[0] not in TORCHS
    place = f"{operator or node}{f', {line}' if line else ''}"
    if status == "timeout":
        text = f"eager itself does not end in {outcome.seconds:.0f} s; run again it was at {place}"
        outcome.verdict = msgspec.structs.replace(cannot_tell(f"{text} after {limit_s:.0f} s"), where=where)
        return outcome
    text = f"eager itself dies of {answer.signal} at {place}"
    given = inputs_given(saved)
    if custom or given == REAL:
        verdict = fails("signal", "eager", text, where, WHOLE)
        outcome.verdict = msgspec.structs.replace(verdict, fault="custom_op" if custom else "model")
    else:
        verdict = cannot_tell(f"{text}, on {given}, which may be what kills it")
        outcome.verdict = msgspec.structs.replace(verdict, where=where)
    return outcome


def eager_task(payload: dict[str, Any]) -> None:
    """The query of `dies_at`: runs the graph in eager and reports each node before it runs, so that the last one
    reported killed the process."""
    import torch
    from torch import fx

    from ...dumps.walk import user_frame
    from .. import torch_private as t
    from ..isolation.child import report
    from ..live.case import Case
    from ..live.eager import each_node
    from ..live.spec import in_force, settings

    def announce(node: fx.Node) -> None:
        operator = str(node.target) if isinstance(node.target, (t.OpOverload, t.OpOverloadPacket)) else ""
        report({"node": node.name, "line": user_frame(node.meta.get("stack_trace") or "")[0], "operator": operator})

    case = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    with settings(case.spec.config), in_force(case.spec):
        torch.manual_seed(payload["seed"])
        announce(next(iter(case.gm.graph.nodes)))
        for node, _ in each_node(case.gm, case.inputs):
            if node.next.op != "root":
                announce(node.next)


TASK = f"{__name__}:task"


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
    known_rung(rung)  # a wrong name is the caller's mistake, reported before anything starts
    plain = not (device or imports or own_nan or measured or anyway)
    if known and plain and not outputs and (before := known_outcome(saved, rung, check, seed)) is not None:
        return before
    how = How(seed, device, limit_s, imports)
    with opened(server, warmth(rung)) as used:
        kept = used.scratch_file(".pt") if outputs else None
        others = peers(saved)
        payload = {
            **how.payload(saved),
            "rung": rung,
            "check": check,
            "own_nan": own_nan,
            "measured": measured,
            "anyway": anyway,
            "without": list(without),
            "registered": [known.hook for known in registered(saved)] if LADDER[rung].has_passes else [],
            "keep": str(kept) if kept else None,
            "shared": str(shared) if shared else None,
            "meeting": str(used.scratch_file(".meeting")) if others else "",
        }
        theirs = [{**payload, **how.payload(peer), "keep": None, "shared": None} for peer in others]
        beside = [ask(TASK, other, limit_s, server=used) for other in theirs]
        asked = ask(TASK, payload, limit_s, server=used)
        for question in (*beside, asked):
            question.answer()
        outcome = outcome_of(asked.end(), rung)
        if outcome.verdict.kind == "hang" and patient and not others and limit_s < DEFAULT_LIMIT_S:
            slow = slowed(used, len(saved.record.graph.nodes))
            fair_s = longer(limit_s, slow, DEFAULT_LIMIT_S, outcome.seconds)
            if fair_s > limit_s:
                outcome = outcome_of(ask(TASK, payload, fair_s, server=used).end(), rung)
                outcome.notes.append(f"the machine is busy: it was given {fair_s:.0f} s in place of {limit_s:.0f}")
        seen = outcome.signature
        if seen is not None and seen.kind in ("signal", "hang") and seen.stage == "eager":
            outcome = dies_at(saved, how, used, outcome)
        outcome.verdict = with_next(saved, outcome.verdict)
        if LADDER[rung].has_passes and not without:
            lacking = without_passes(saved, outcome.notes) if outcome.verdict.verdict == "ok" else None
            outcome.verdict = lacking or own_pass(saved, outcome.verdict, rung, how, used)
        outcome.verdict = of_operator(saved, outcome.verdict, how, used)
        if outcome.verdict.failed:
            outcome.signature_id = known_id(outcome.signature, saved)
        if plain and not others:
            remember(saved, rung, check, seed, outcome)
        outcome.notes += used.notes
        if others:
            outcome.notes.append(f"replayed together with the graphs of {counted(len(others), 'other rank')}")
        if kept is not None and kept.exists():
            import torch

            outcome.outputs = torch.load(kept, map_location="cpu", weights_only=True)
            kept.unlink()
    return outcome


def outcome_of(answer: TaskResult, rung: str) -> Outcome:
    """The outcome of an isolated judgement, whatever ended its process."""
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
    from ..live.spec import registered_here
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
        fidelity = watched.compiling() if watched else nullcontext()
        with fidelity, peak.watched() if payload["measured"] else nullcontext():
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
    here = {name for name, _ in registered_here()}
    away = [hook for hook in payload["registered"] if hook not in here]
    lowered = [hook for hook in away if not hook.startswith(DECOMPOSITION)]
    outcome.notes = [*live.notes, *map(not_applied, lowered), *outcome.notes]
    if watched:
        mark("fidelity")
        outcome.fidelity = watched.compare(outcome)
        outcome.unlike = unlike(case.saved, outcome, watched, live.inputs)
        if (outcome.fidelity or "").startswith("different"):  # else the run's decompositions did not matter
            outcome.notes += [not_applied(hook) for hook in away if hook not in lowered]
        if outcome.unlike and not payload["anyway"]:
            outcome.verdict = gated(case.saved, outcome, outcome.unlike, payload["imports"])
    if payload["keep"] and outcome.outputs is not None:
        import torch

        detached = [output.detach() if isinstance(output, torch.Tensor) else output for output in outcome.outputs]
        plain = (torch.Tensor, int, float, bool, type(None))
        torch.save([output if isinstance(output, plain) else repr(output) for output in detached], payload["keep"])
    outcome.outputs = None
    return msgspec.to_builtins(outcome)


def own_pass(
    saved: SavedGraph,
    verdict: Verdict,
    rung: str,
    how: How,
    server: ForkServer | None = None,
    users: Sequence[OwnPass] | None = None,
) -> Verdict:
    """The verdict on a failure under a rung, with the user's code at fault where the graph is right without it: a pass
    (other imports stay), or a decomposition (no imports). Takes one more replay, only for graphs with such code.
    `users`: the passes of the graph from which this one was cut."""
    users = own(saved) if users is None else users
    if not (users and how.imports and verdict.failed and verdict.fault == "compiler"):
        return verdict
    hooks = [user.hook for user in users if any(user.hook in some for some in HOOKS.values())]
    plain = how._replace(anyway=True, imports=how.imports if hooks else ())._asdict()
    other = replay(saved, rung, **plain, outputs=False, server=server, without=hooks).verdict
    if other.verdict != "ok" and other.detail != WITHOUT:
        return verdict
    mine = " and ".join(user.text for user in users)
    reason = f"{verdict.reason}; it is right without the run's own {'pass ' * bool(hooks)}{mine}"
    return of_the_run(msgspec.structs.replace(verdict, reason=reason), users[0])


def own(saved: SavedGraph) -> list[OwnPass]:
    """The user's passes in a graph's compile; where there are none, the user's decompositions and lowerings."""
    return passes(saved, all=True) or registered(saved)
