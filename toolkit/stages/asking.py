"""Judges each pair of stages of a compile, in order, and names what ran between the first two that differ. Imports no
torch.

The verdict is on the later graph of the pair. The fault is the user's pass where one ran between and the compiler's own
passes are right without it; else the compiler's.

For example:

    judge_stages(run.graphs(), How(), server)
    # (SavedGraph('myrun/0_0/post_grad_inference'), Verdict('fails', 'wrong_numbers', 'custom_pass', ...))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...dumps.errors import GraphdbgError
from ...dumps.ids import number_of
from ...dumps.journal import DECOMPOSITION
from ...dumps.schema import GraphRecord
from ...dumps.store import SavedGraph
from ..blame.partners import compile_of
from ..isolation import Servers, ask
from ..replaying.replay import How
from ..verdicts.own_passes import OwnPass, passes, registered_for
from ..verdicts.verdict import WHOLE, Fault, Layer, Verdict, Where, with_trust_for

BEFORE = {
    "pre_grad": ("dynamo",),
    "joint": ("pre_grad", "dynamo"),
    "inference": ("pre_grad", "dynamo"),
    "joint_passed": ("joint", "inference"),
    "post_grad_inference": ("joint_passed", "inference"),
    "backward": ("joint_passed", "joint"),
    "post_grad_forward": ("forward",),
    "post_grad_backward": ("backward",),
}
"""Stage -> the earlier stages that it is made from, with the same inputs."""


class StagePair(NamedTuple):
    """A graph and the next one made from it; `forward`: where `after` is a backward, the forward cut from the same
    joint graph."""

    before: SavedGraph
    after: SavedGraph
    forward: SavedGraph | None = None

    @property
    def traced(self) -> bool:
        """Whether the later graph was traced by AOTAutograd."""
        return self.after.stage in ("joint", "inference")


def pairs(graphs: Iterable[SavedGraph]) -> list[StagePair]:
    """Pairs each graph with the latest earlier stage of its compile, in recorded order; a graph without one has no
    pair. A backward is compiled when it is first called, for several parts of a graph the last part first, so its
    number is used to find its joint graph."""
    last: dict[Any, SavedGraph] = {}
    paired: list[StagePair] = []
    for graph in graphs:
        compiled, number = compile_of(graph), number_of(graph.local_id)
        part = number if graph.stage == "backward" else None
        earlier = [last[key] for stage in BEFORE.get(graph.stage, ()) if (key := (compiled, stage, part)) in last]
        newest = max(earlier, key=lambda candidate: list(last.values()).index(candidate), default=None)
        if newest is not None and graph.status != "skipped":
            forward = last.get((compiled, "forward", part)) if graph.stage == "backward" else None
            paired.append(StagePair(newest, graph, forward))
        for key in ((compiled, graph.stage, None), (compiled, graph.stage, number)):
            last.pop(key, None)
            last[key] = graph
    return paired


def comparable(pair: StagePair) -> bool:
    """Whether both graphs take the same inputs and are not literally the same computation."""
    try:
        first, second = pair.before.record, pair.after.record
        if pair.traced:
            return True
        if pair.after.stage == "backward":
            kept, forward = first.compile_kwargs.get("num_fwd_outputs"), pair.forward
            return forward is not None and isinstance(kept, int) and not _same(first, [forward.record, second], kept)
    except GraphdbgError:
        return False
    return _inputs(first) == _inputs(second) and not _same(first, [second])


def _inputs(record: GraphRecord) -> list[str]:
    return [node.name for node in record.graph.nodes if node.op == "placeholder"]


def _same(before: GraphRecord, after: Sequence[GraphRecord], kept: int | None = None) -> bool:
    """Whether both sides compute their results by the same calls with the same arguments, regardless of order, names
    and repetitions. Where `after` has two graphs, the second uses the first one's results, and only `kept` results of
    the first count."""
    numbers: dict[bytes, int] = {}
    results: list[list[Any]] = []
    for graphs in ([before], after):
        known: dict[str, int] = {}
        computed: list[Any] = []
        for place, record in enumerate(graphs):
            returned = _numbered(record, known, numbers)
            computed += returned if kept is None or place or len(graphs) == 1 else returned[:kept]
        results.append([computed, sorted(number for name, number in known.items() if name.startswith(_WRITES))])
    return results[0] == results[1]


_WRITES = ">"
"""Prefix of a key for a node that writes or draws: for such nodes repetitions count."""
_DRAWS = ("rand", "seed", "dropout", "bernoulli", "normal", "multinomial", "poisson")


def _numbered(record: GraphRecord, known: dict[str, int], numbers: dict[bytes, int]) -> list[Any]:
    """Numbers each node of a graph, equal calls with equal arguments alike; returns the results' numbers."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            if value and value.keys() <= {"node", "tuple"}:
                return known.get(value["node"]) if "node" in value else plain(value["tuple"])
            return {key: plain(part) for key, part in value.items()}
        return [plain(part) for part in value] if isinstance(value, list) else value

    for node in record.graph.nodes:
        if node.op == "output":
            returned = plain(node.args[0])
            return returned if isinstance(returned, list) else [returned]
        if node.op == "placeholder" and node.name in known:
            continue
        call = [node.op, node.target, plain(node.args), plain(node.kwargs)]
        counts = node.op == "call_method" or "_." in node.target or any(draw in node.target for draw in _DRAWS)
        if node.op == "get_attr":
            call += [record.graph.attrs.get(node.target), record.graph.subgraphs.get(node.target)]
        elif node.op == "placeholder" or counts:
            call.append(node.name)
        known[node.name] = numbers.setdefault(msgspec.json.encode(call), len(numbers))
        if counts:
            known[f"{_WRITES}{node.name}"] = known[node.name]
    return []


STAGES = "stages"
"""Stands in place of a rung's name."""
TASK = "graphdbg.toolkit.stages.judging:task"
LIMIT_S = 60.0
"""Seconds for one pair: two eager runs and two in float64. A pair that needs longer is left to the rungs."""


def judge_stages(
    graphs: Sequence[SavedGraph], how: How, server: Servers, *, limit_s: float = LIMIT_S
) -> tuple[SavedGraph, Verdict] | None:
    """Returns the first graph that computes something else than the graph it was made from, with the verdict; None
    where there is none, or where a pair exceeds the limit, as later pairs would."""
    judged = (_judged(pair, how, server, min(limit_s, LIMIT_S)) for pair in pairs(graphs) if comparable(pair))
    try:
        return next(filter(None, judged), None)
    except TimeoutError:
        return None


def _judged(pair: StagePair, how: How, server: Servers, limit_s: float) -> tuple[SavedGraph, Verdict] | None:
    users = passes(pair.after)
    paths = {"before": pair.before, "forward": pair.forward, "after": pair.after}
    payload = {name: str(graph.path.absolute()) if graph is not None else "" for name, graph in paths.items()}
    payload |= {"seed": how.seed, "device": how.device, "imports": list(how.imports), "custom": bool(users)}
    try:
        answer = ask(TASK, payload, limit_s, server=server).answer()
        if answer.status == "lost":  # the server died, not the task
            answer = ask(TASK, payload, limit_s, server=server).answer()
    except GraphdbgError:
        return None
    if answer.status == "timeout":
        raise TimeoutError
    if answer.status != "done" or (difference := answer.value) is None:
        return None
    after = pair.forward if pair.forward is not None and difference["forward"] else pair.after
    where = Where(difference["node"], after.id, difference["line"], difference["name"])
    who, fault, layer = _blamed(pair, [] if difference["built_in"] else users, difference)
    reason = (
        f"{who} changes what the graph computes: {difference['became'] or difference['name']}. On the same inputs "
        f"{after.id} gives {difference['name'] or 'other results'} otherwise than {pair.before.id} "
        f"({difference['reason']})."
    )
    verdict = Verdict("fails", difference["kind"], fault, layer, reason, where, detail=WHOLE)
    return after, verdict.then(*_go_on(pair, after, fault, difference))


def _go_on(pair: StagePair, after: SavedGraph, fault: Fault, difference: dict[str, Any]) -> list[str]:
    """The next commands: minify the failure (with the user's pass in force), find the node that makes a NaN, show the
    change."""
    known = registered_for(pair.after, DECOMPOSITION, [difference["op"]]) if pair.traced and difference["op"] else None
    minify, values = f"graphdbg minify {pair.before.name}", f"graphdbg replay {after.name} --values --rung eager"
    if fault == "custom_pass" and known is not None and known.module not in ("", "__main__"):
        minify += f" --import {known.module}"
    elif fault == "custom_pass":
        minify = with_trust_for(pair.before, minify)
    elif pair.traced and difference["op"] and difference["built_in"]:  # without C++: this rung already shows the fault
        minify += " --rung decomposed"
    values = values if difference["kind"] == "nan" else ""
    return [*filter(None, (minify, values)), f"graphdbg diff {pair.before.name} {after.name}"]


def _blamed(pair: StagePair, users: Sequence[OwnPass], difference: dict[str, Any]) -> tuple[str, Fault, Layer | None]:
    """What ran between the two graphs, as text, whose fault that is, and the compiler layer."""
    if pair.traced:
        what = f"the decomposition of {difference['op']}" if difference["op"] else "AOTAutograd's tracing"
        known = registered_for(pair.after, DECOMPOSITION, [difference["op"]]) if difference["op"] else None
        right = " (torch's own is right)" if difference["built_in"] is False else ""
        if known is not None or (difference["op"] and right):
            place = f", {known.name} in {known.place}" if known is not None else ""
            return f"{what}{place}, registered by the run{right},", "custom_pass", None
        return what, "compiler", "decomposition" if difference["op"] else "aot_autograd"
    if users:
        return " or ".join(own_pass.text for own_pass in users), "custom_pass", None
    if pair.forward is not None:
        return f"the partition of {pair.before.id} into forward and backward", "compiler", "aot_autograd"
    return f"what ran between {pair.before.stage} and {pair.after.stage}", "compiler", "inductor"
