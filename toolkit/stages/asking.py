"""Asks for each pair of stages of a compile, in order, and says of the first that parts what ran between. Imports no
torch.

The verdict is on the later graph of the pair. Its fault is the user's pass where one ran between and the compiler's own
passes do not go wrong by themselves; else the compiler's.

For example:

    judge_stages(run.graphs(), How(), server)
    # (SavedGraph('myrun/0_0/post_grad_inference'), Verdict('fails', 'wrong_numbers', 'custom_pass', ...))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...dumps.errors import GraphdbgError
from ..blame.partners import compile_of
from ..isolation import Servers, ask
from ..verdicts.verdict import WHOLE, Fault, Layer, Verdict, Where, cannot_tell
from .pairs import Pair, Pass, comparable, pairs, passes

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph
    from ..replaying.replay import How

STAGES = "stages"
"""What stands in the place of a rung."""
TASK = "graphdbg.toolkit.stages.judging:task"
LIMIT_S = 60.0
"""What one pair may take: two eager runs and two in float64. One that needs longer is left to the rungs."""


def judge_stages(
    graphs: Sequence[SavedGraph], how: How, server: Servers, *, limit_s: float = LIMIT_S
) -> tuple[SavedGraph, Verdict] | None:
    """The first graph that computes something else than the one it was made of, with the verdict; None where none
    does."""
    for pair in pairs(graphs):
        if comparable(pair) and (judged := _judged(pair, how, server, min(limit_s, LIMIT_S))) is not None:
            return judged
    return None


def stages_of(saved: SavedGraph) -> list[SavedGraph]:
    """The graphs of the same compile in the order in which they were recorded."""
    return (
        [] if saved.run is None else [graph for graph in saved.run.graphs() if compile_of(graph) == compile_of(saved)]
    )


def without_passes(saved: SavedGraph, notes: Sequence[str]) -> Verdict | None:
    """The verdict that a graph was compiled without passes of the user's that were in force in the run, as the notes of
    a replay say; None where all were applied."""
    lost = [
        dropped
        for dropped in passes(saved, all=True)
        if any(f"inductor.{dropped.hook} is not applied" in note for note in notes)
    ]
    if not lost:
        return None
    mine = [dropped.module for dropped in lost if dropped.module not in ("", "__main__")]
    how = " ".join(f"--import {module}" for module in dict.fromkeys(mine)) or "--trust"
    text = " and ".join(dropped.text for dropped in lost)
    verdict = cannot_tell(f"judged without your pass {text}, which has no saved form")
    return verdict.then(f"graphdbg triage {saved.name} {how}")


def _judged(pair: Pair, how: How, server: Servers, limit_s: float) -> tuple[SavedGraph, Verdict] | None:
    users = passes(pair.after)
    paths = {"before": pair.before, "forward": pair.forward, "after": pair.after}
    payload = {name: str(graph.path.absolute()) if graph is not None else "" for name, graph in paths.items()}
    payload |= {"seed": how.seed, "device": how.device, "custom": bool(users)}
    try:
        answer = ask(TASK, payload, limit_s, server=server).answer()
        if answer.status == "lost":  # the server's end, not the task's
            answer = ask(TASK, payload, limit_s, server=server).answer()
    except GraphdbgError:
        return None
    difference: dict[str, Any] | None = answer.value if answer.status == "done" else None
    if difference is None:
        return None
    after = pair.forward if pair.forward is not None and difference["forward"] else pair.after
    where = Where(difference["node"], after.id, difference["line"], difference["name"])
    who, fault, layer = _blamed(pair, [] if difference["built_in"] else users, difference)
    reason = f"{who} changes what the graph computes: {difference['became'] or difference['name']}" + (
        f". On the same inputs {after.id} gives {difference['name'] or 'other results'} otherwise than {pair.before.id}"
        f" ({difference['reason']})."
    )
    verdict = Verdict(
        "fails",
        difference["kind"],
        fault,
        layer,
        reason,
        where,
        next=[f"graphdbg diff {pair.before.name} {after.name}"],
        detail=WHOLE,
    )
    return after, verdict


def _blamed(pair: Pair, users: Sequence[Pass], difference: dict[str, Any]) -> tuple[str, Fault, Layer | None]:
    """Who ran between the two, whose fault that is, and in which layer of the compiler."""
    if pair.traced:
        what = f"the decomposition of {difference['op']}" if difference["op"] else "AOTAutograd's tracing"
        if difference["built_in"] is False and difference["op"]:  # torch's own is right
            return f"{what}, registered by the run (torch's own is right),", "custom_pass", None
        return what, "compiler", "decomposition" if difference["op"] else "aot_autograd"
    if users:
        return " or ".join(own_pass.text for own_pass in users), "custom_pass", None
    if pair.forward is not None:
        return f"the partition of {pair.before.id} into forward and backward", "compiler", "aot_autograd"
    return f"what ran between {pair.before.stage} and {pair.after.stage}", "compiler", "inductor"
