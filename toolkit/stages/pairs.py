"""The pairs of recorded graphs of a run that are compared, and the passes of the user's ran between the two. Imports no
torch.

Both graphs of a pair take the same inputs and return the same results, whatever ran between them; of a joint graph that
was cut in two, forward and backward together do. Runs nothing, and imports nothing that it names.

>>> [(pair.before.id, pair.after.id) for pair in pairs(open_run("myrun").graphs())][:2]
[('0_0/dynamo', '0_0/pre_grad'), ('0_0/pre_grad', '0_0/joint')]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...dumps import journal
from ...dumps.errors import GraphdbgError
from ...dumps.graph_folder import JOURNAL_FILE
from ..blame.partners import compile_of

if TYPE_CHECKING:
    from ...dumps.schema import GraphRecord
    from ...dumps.store import SavedGraph

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
"""Stage -> the stages that it is made from with the same inputs."""

HOOKS = {
    "pre_grad": ("pre_grad_custom_pass",),
    "joint_passed": ("joint_custom_pre_pass", "joint_custom_post_pass"),
    "post_grad": ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"),
    "backward": ("custom_partitioner_fn",),
}
"""Stage, or how it begins -> the settings whose passes ran last before it was recorded."""


class Pair(NamedTuple):
    """A graph and the next one that was made of it; `forward`: the other half of a joint graph that was cut in two."""

    before: SavedGraph
    after: SavedGraph
    forward: SavedGraph | None = None

    @property
    def traced(self) -> bool:
        """Whether AOTAutograd ran between the two."""
        return self.after.stage in ("joint", "inference")


class Pass(NamedTuple):
    """A pass of the user's: the setting that it hangs on, its name, and where it was written."""

    hook: str
    name: str
    file: str = ""
    line: int = 0
    module: str = ""

    @property
    def text(self) -> str:
        """The pass as a sentence names it."""
        place = f" in {Path(self.file).name}" + (f":{self.line}" if self.line else "") if self.file else ""
        return f"{self.name}{place} ({self.hook})"


def pairs(graphs: Iterable[SavedGraph]) -> list[Pair]:
    """The pairs of some graphs in the order in which those were recorded; a graph from before what was seen last of its
    stage has none."""
    last: dict[Any, SavedGraph] = {}
    paired: list[Pair] = []
    for graph in graphs:
        compiled = compile_of(graph)
        earlier = [last[compiled, stage] for stage in BEFORE.get(graph.stage, ()) if (compiled, stage) in last]
        newest = max(earlier, key=lambda candidate: list(last.values()).index(candidate), default=None)
        if newest is not None and graph.status != "skipped":
            forward = last.get((compiled, "forward")) if graph.stage == "backward" else None
            paired.append(Pair(newest, graph, forward))
        last.pop((compiled, graph.stage), None)
        last[compiled, graph.stage] = graph
    return paired


def comparable(pair: Pair) -> bool:
    """Whether both take the same inputs, and are not the same computation word for word."""
    try:
        first, second = pair.before.record, pair.after.record
        if pair.traced:
            return True
        if pair.after.stage == "backward":
            kept = first.compile_kwargs.get("num_fwd_outputs")
            return (
                pair.forward is not None
                and isinstance(kept, int)
                and not _same(first, [pair.forward.record, second], kept)
            )
    except GraphdbgError:
        return False
    return _inputs(first) == _inputs(second) and not _same(first, [second])


def _inputs(record: GraphRecord) -> list[str]:
    return [node.name for node in record.graph.nodes if node.op == "placeholder"]


def _same(before: GraphRecord, after: Sequence[GraphRecord], kept: int | None = None) -> bool:
    """Whether both compute their results by the same calls of the same arguments, whatever the order, names and
    repetitions; of two graphs the second takes what the first computes, and `kept` results of the first are results of
    both."""
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
"""Begins the key of a node that writes or draws: how often it is done counts."""
_DRAWS = ("rand", "seed", "dropout", "bernoulli", "normal", "multinomial", "poisson")


def _numbered(record: GraphRecord, known: dict[str, int], numbers: dict[bytes, int]) -> list[Any]:
    """Gives each node of a graph a number, the same for the same call of the same arguments; returns those of the
    results."""

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


def passes(after: SavedGraph, *, all: bool = False) -> list[Pass]:
    """The user's passes that ran last before this graph was recorded, in the order of their settings; or `all` of its
    compile."""
    stage = "post_grad" if after.stage.startswith("post_grad") else after.stage
    hooks = [hook for some in HOOKS.values() for hook in some] if all else HOOKS.get(stage, ())
    settings = after.record.config.get("inductor", {})
    return [_named(after, hook, settings[hook]) for hook in hooks if settings.get(hook) is not None]


def _named(after: SavedGraph, hook: str, value: Any) -> Pass:
    """The pass on a setting, as the journal and the recorded definitions describe it."""
    said = str(value)
    notes = [note for note in _notes(after) if note.get("unsaved") == f"setting inductor.{hook}"]
    notes = [note for note in notes if str(note.get("what", "")).rpartition(".")[2] in said] or notes
    if notes:
        note = notes[-1]
        module = str(note.get("module") or "")
        name = str(note.get("what") or "").removeprefix(f"{module}.") or "a pass"
        return Pass(hook, name, str(note.get("file") or ""), int(note.get("line") or 0), module)
    known = next((candidate for candidate in after.record.definitions if f"inductor.{hook}" in candidate.values), None)
    return Pass(hook, "a pass", known.file if known else "", module=known.module if known else "")


def _notes(graph: SavedGraph) -> Sequence[dict[str, Any]]:
    process = (
        next((candidate for candidate in graph.run.processes if candidate.name == graph.process), None)
        if graph.run
        else None
    )
    if process is None:
        return []
    return [event.fields for event in journal.read(process.path / JOURNAL_FILE).events if event.kind == "note"]
