# pyright: basic
"""The child's part at one node: reads the node's inputs and value, in eager and under a rung, and gives a Python prompt
there where it has a terminal. Judges nothing.

Also: makes a row for each node: statistics of its value, and its error to float64. Keeps no values, judges nothing.

Also: the child's part of reading all values: runs the graph in eager and under a rung, and reports a row for each node.

For example: `ask("graphdbg.toolkit.node_values.standing:task", {"path": "case", "node": "mm", ...}, server=server)`.
"""

from __future__ import annotations

import code
import contextlib
import itertools
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps.errors import GraphdbgError
from ...dumps.walk import user_frame
from ...dumps.wording import counted, raised_line
from ..cutting.eager_values import record_values
from ..cutting.subgraph import until
from ..isolation.child import TERMINAL, mark, report
from ..judging.baseline import NoReference, reference
from ..judging.departures import departures
from ..judging.judge import judge
from ..live.case import Case, Live
from ..live.eager import (
    GraphRunError,
    attribute,
    clone_inputs,
    copy_graph,
    draw_like_kernels,
    draws_from_generator,
    draws_unrepeatably,
    recomputes_random,
    run_graph,
)
from ..live.execution import PACKED, as_bytes, returned, tensors_in
from ..live.rung import Around, Compiled
from ..live.spec import ReplaySpec, in_force, settings
from ..live.values import Held, Values, leaves
from ..numerics.comparison import relative_rmse
from ..numerics.statistics import described
from ..replaying.own_nan import with_own_nan
from ..rungs import Rung
from ..rungs import rung as rung_named

Row = dict[str, Any]
INPUTS = ("placeholder", "get_attr")
LARGEST = 1e308
"""Infinity for JSON, which has none."""


def measure(
    case: Live,
    eager: Values,
    got: Mapping[str, torch.Tensor] | None,
    wanted: set[str] | None,
    *,
    seed: int,
    report: Callable[[Row], object],
) -> str:
    """Reports a row for each node in graph order; returns why there is no float64, or "".

    `got`: values under a rung; None for eager's own. `wanted`: the nodes to report (None: all). To be called under the
    recorded settings.
    """
    nodes = {node.name: (index, node) for index, node in enumerate(case.gm.graph.nodes)}
    given = _given(case)
    reported: set[str] = set()

    def row(name: str, truth: Any) -> None:
        index, node = nodes[name]
        if node.op == "output" or (wanted is not None and name not in wanted) or name in reported:
            return
        reported.add(name)
        held = [] if node.op in INPUTS else [stored.load().detach() for stored in leaves(_tree(eager, name))]
        own = given.get(name, held)
        report(_row(index, node, own, _under_rung(node, own, eager, got), tensors_in(truth)))

    def hook(node: fx.Node, value: Any) -> Any:
        if node.name in nodes:
            row(node.name, value)
        return value

    torch.manual_seed(seed)
    exact = reference(case.gm, case.inputs, lambda wide, inputs: run_graph(wide, inputs, hook=hook))
    for name in nodes:
        row(name, None)
    return exact.reason if isinstance(exact, NoReference) else ""


def _row(
    index: int, node: fx.Node, own: Sequence[torch.Tensor], under: Sequence[torch.Tensor] | str, truth: Sequence[Any]
) -> Row:
    row: Row = {"event": "value", "index": index, "name": node.name, "target": target_of(node)}
    row["line"] = user_frame(node.meta.get("stack_trace") or "")[0]
    if isinstance(under, str):
        return row | {"reason": under}
    eager, exact = described(own), described(truth)
    row["shape"] = [list(tensor.shape) for tensor in under] if len(under) != 1 else list(under[0].shape)
    row["dtype"] = str(under[0].dtype).removeprefix("torch.")
    row |= _numbers(under) | {"eager_nan": eager.nan, "eager_inf": eager.inf}
    if truth and node.op not in INPUTS:
        row |= {"reference_nan": exact.nan, "reference_inf": exact.inf}
        row |= {"error": _error(under, truth), "eager_error": _error(own, truth)}
    return row


def _numbers(tensors: Sequence[Any]) -> Row:
    """Statistics of a value's elements."""
    seen = described(tensors)
    return {key: getattr(seen, key) for key in ("min", "max", "mean", "nan", "inf")}


def _error(got: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> float | None:
    """The largest relative RMS error among the parts of a value."""
    pairs = [
        pair for pair in zip(got, truth, strict=False) if pair[0].shape == pair[1].shape and all(map(_plain, pair))
    ]
    return min(max(relative_rmse(*pair) for pair in pairs), LARGEST) if pairs else None


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.dtype != PACKED


def _under_rung(
    node: fx.Node, own: list[torch.Tensor], eager: Values, got: Mapping[str, torch.Tensor] | None
) -> list[Any] | str:
    """The node's value under the rung; a sentence where there is none."""
    if not own:
        return "it is not a tensor"
    if got is None or node.op in INPUTS:
        return own
    if node.name in got:
        return [got[node.name]]
    if len(own) > 1:
        return "its parts are read one by one"
    return "its memory is written to later" if eager.written(node.name) else "the program did not return it"


def tappable(gm: fx.GraphModule, eager: Values) -> list[str]:
    """The nodes whose values a compiled program can return: single tensors, in memory that no node writes to."""
    return [
        node.name
        for node in gm.graph.nodes
        if node.op.startswith("call_") and isinstance(_tree(eager, node.name), Held) and not eager.written(node.name)
    ]


def _tree(eager: Values, name: str) -> Any:
    return eager.trees.get((name, eager.produced.get(name, -1)))


def _given(case: Live) -> dict[str, list[torch.Tensor]]:
    """Node -> the tensors of an input or attribute."""
    find = case.gm.graph.find_nodes
    values = {node.name: value for node, value in zip(find(op="placeholder"), case.inputs, strict=False)}
    values |= {node.name: attribute(case.gm, str(node.target)) for node in find(op="get_attr")}
    return {name: tensors_in(value) for name, value in values.items()}


def target_of(node: fx.Node) -> str:
    """The target of a node, as a person would write it."""
    if node.op in INPUTS:
        return node.op
    named = isinstance(node.target, str) or hasattr(node.target, "_schema")
    return str(node.target) if named else str(getattr(node.target, "__name__", node.target))


class Tapped(Around):
    """A rung that also returns the values of nodes: it adds outputs to the graph before the inner rung compiles it.

    That compiles another program: a returned value is neither fused away nor rewritten. `judge` sees only the graph's
    own results, so its verdict shows whether the failure is still the same. `got`: node -> its value in the last run,
    copied when the program returned.
    """

    def __init__(self, rung: Rung, names: Sequence[str]) -> None:
        super().__init__(rung)
        self.names = list(names)
        self.got: dict[str, torch.Tensor] = {}

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        _stage("compile")
        places, count = add_outputs(gm, self.names)
        compiled = self.inner.build(gm, fake_inputs, spec)

        def run(inputs: list[Any]) -> list[Any]:
            _stage("run")
            outputs = list(compiled(inputs))
            values = {name: outputs[place] for name, place in places.items()}
            tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
            self.got = {name: value.detach().clone() for name, value in tensors.items()}
            return outputs[:count]

        return run


def add_outputs(gm: fx.GraphModule, names: Sequence[str]) -> tuple[dict[str, int], int]:
    """Makes a graph return these nodes, too, in place. Returns node -> place among the flat outputs, and the number of
    outputs before. Not for a joint graph that will be partitioned.
    """
    own = returned(gm)
    nodes = {node.name: node for node in gm.graph.nodes}
    there = {leaf.name for leaf in own if isinstance(leaf, fx.Node)}
    leaves = [*own, *(nodes[name] for name in names if name not in there)]
    gm.graph.output_node().args = (tuple(leaves),)
    gm.recompile()
    where = {leaf.name: place for place, leaf in reversed(list(enumerate(leaves))) if isinstance(leaf, fx.Node)}
    return {name: where[name] for name in names}, len(own)


IN_MEMORY_BYTES = 1 << 30
"""Eager's values are kept in files where they are larger."""


def values_task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: reports rows for the nodes `names` (None: all), read under `rung`; returns, among others,
    `signature`: how the graph fails with the extra outputs."""
    mark("load")
    saved = Case.at(payload["path"])
    case = saved.live(seed=payload["seed"], device=payload["device"])
    wanted = None if payload["names"] is None else set(payload["names"])
    seed, rung = payload["seed"], payload["rung"]
    mark("eager")
    _stage("eager")
    spill = Path(payload["work"]) if payload["bytes"] > IN_MEMORY_BYTES else None
    try:
        eager, lost = recorded(case, seed, spill)
    except GraphdbgError as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001  whatever eager raises is the reason for no values
        return {"refused": f"eager itself fails: {raised_line(error, 1000)}"}
    answer: dict[str, Any] = {"notes": [*case.notes, *lost]}
    got: dict[str, torch.Tensor] | None = None
    if rung != "eager":
        names = [name for name in tappable(case.gm, eager) if wanted is None or name in wanted]
        answer |= {"signature": None, "outputs": len(names)}
        tapped = Tapped(rung_named(rung), names)
        if names:
            shared = Path(payload["shared"]) if payload.get("shared") else None
            outcome = judge(case, tapped, seed=seed, shared=shared)
            outcome = with_own_nan(outcome, case, saved.saved, asked=False, seed=seed)
            answer["signature"] = msgspec.to_builtins(outcome.signature)
            if not tapped.got:
                return answer
        got = tapped.got
    mark("compare")
    _stage("compare")
    with surroundings(case.spec):
        answer["no_reference"] = measure(case, eager, got, wanted, seed=seed, report=report)
        if got and (wrong := wrong_on_right_inputs(case, rung, got, seed)) is not None:
            answer["wrong"] = wrong
    return answer


def recorded(case: Live, seed: int, spill: Path | None = None) -> tuple[Values, list[str]]:
    """Eager's values of every node, with random numbers drawn as kernels do; and notes on settings that could not be
    applied."""
    with surroundings(case.spec) as lost:
        like_kernels = copy_graph(case.gm)
        draw_like_kernels(like_kernels)
        torch.manual_seed(seed)
        return record_values(like_kernels, case.inputs, spill), list(lost)


def _stage(name: str) -> None:
    """Reports that a step begins."""
    report({"event": "stage", "stage": name})


def wrong_on_right_inputs(
    case: Live, rung: str, got: dict[str, torch.Tensor], seed: int
) -> list[dict[str, Any]] | None:
    """The values that are wrong for the compiled values of their inputs; None where the program's random numbers cannot
    be repeated."""
    gm = case.gm
    own = rung_named(rung).compiles_draws and draws_unrepeatably(gm)
    if own or (draws_from_generator(gm) and recomputes_random(gm)):
        return None
    mark("local test")
    with contextlib.suppress(GraphRunError):
        return [departure._asdict() for departure in departures(copy_graph(gm), case.inputs, got, seed=seed)]
    return None


@contextlib.contextmanager
def surroundings(spec: ReplaySpec):
    """Applies the recorded settings, without gradients: only values are read here. Yields what `settings` yields."""
    with settings(spec.config) as lost, in_force(spec.forward_only), torch.no_grad():
        yield lost


FIRST = 6
"""How many elements of a value are shown."""


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: returns what is at the node `node` as plain data; with a terminal, opens a prompt after
    the report."""
    mark("load")
    whole = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    name, rung, seed = payload["node"], payload["rung"], payload["seed"]
    near = _until(whole, name)
    case = near if rung == "eager" else whole
    mark("eager")
    try:
        eager, lost = recorded(case, seed)
    except GraphdbgError as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001  whatever eager raises is the reason for no values
        return {"refused": f"eager itself fails: {raised_line(error, 1000)}"}
    node = next(candidate for candidate in case.gm.graph.nodes if candidate.name == name)
    seen = _EagerValues(case, eager)
    names = [*dict.fromkeys(argument.name for argument in node.all_input_nodes), name]
    tapped = [near_name for near_name in tappable(case.gm, eager) if near_name in names]
    got = _compiled(case, rung, tapped, seed) if rung != "eager" else None
    mark("compare")
    rows: dict[str, dict[str, Any]] = {}
    with surroundings(case.spec):
        lacks = measure(case, eager, got, set(names), seed=seed, report=lambda row: rows.update({row["name"]: row}))
        wrong = wrong_on_right_inputs(case, rung, got, seed) if got else None
    shown = []
    for near_name in names:
        row = rows.get(near_name, {})
        kept = {key: row.get(key) for key in ("error", "eager_error", "reason")}
        value = seen.value(near_name) if near_name == name else seen.as_read(name, near_name)
        other = {} if got is None or near_name not in got else {rung: sheet(got[near_name])}
        known = {key: number for key, number in kept.items() if number is not None}
        shown.append({"name": near_name, "values": {"eager": sheet(value)} | other} | known)
    here = next((departure for departure in wrong or () if departure["name"] == name), None)
    answer = {"target": target_of(node), "inputs": shown[:-1], "value": shown[-1], "wrong": here}
    answer |= {"no_reference": lacks, "notes": [*case.notes, *lost]}
    if payload.get(TERMINAL):
        report(answer)
        _prompt(payload, near, seen, {read: got[read] for read in names if read in got} if got is not None else {})
    return answer


def _until(case: Live, name: str) -> Live:
    """The case cut off after a node, which it then returns; the whole case for an output node."""
    gm = case.gm if name == case.gm.graph.output_node().name else until(case.gm, name)
    return replace(case, gm=gm, inputs=case.inputs[: len(gm.graph.find_nodes(op="placeholder"))])


def _compiled(case: Live, rung: str, names: list[str], seed: int) -> dict[str, torch.Tensor]:
    tapped = Tapped(rung_named(rung), names)
    if names:
        judge(case, tapped, seed=seed)
    return tapped.got


class _EagerValues(Mapping[str, Any]):
    """Eager's values by node name, loaded on access."""

    def __init__(self, case: Live, eager: Values) -> None:
        self.case, self.eager = case, eager
        nodes = [node for node in case.gm.graph.nodes if node.op != "output"]
        self.nodes = {node.name: node for node in nodes}
        self.given = dict(zip((node.name for node in nodes if node.op == "placeholder"), case.inputs, strict=False))

    def __getitem__(self, name: str) -> Any:
        return self.value(self.nodes[name].name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"<eager's values of {counted(len(self), 'node')}: {', '.join(itertools.islice(self.nodes, 4))}, ...>"

    def value(self, name: str) -> Any:
        """The node's value right after it ran."""
        return self._at(name, self.eager.produced.get(name, -1))

    def as_read(self, user: str, name: str) -> Any:
        """The node's value when `user` read it."""
        return self._at(name, self.eager.read.get((user, name), self.eager.produced.get(name, -1)))

    def _at(self, name: str, version: int) -> Any:
        node = self.nodes.get(name)
        if (name, version) in self.eager.trees:
            return _loaded(self.eager.trees[name, version])
        if node is not None and node.op == "get_attr":
            return attribute(self.case.gm, str(node.target))
        return self.given.get(name)


def _loaded(tree: Any) -> Any:
    if isinstance(tree, Held):
        return tree.load().detach()
    if isinstance(tree, (list, tuple)):
        return type(tree)(_loaded(part) for part in tree)
    return tree


def sheet(value: Any) -> list[dict[str, Any]]:
    """A value as plain data: one row for each tensor in it, and for each other part."""
    if isinstance(value, (list, tuple)):
        return [row for part in value for row in sheet(part)]
    if not isinstance(value, torch.Tensor):
        return [{"text": repr(value)}]
    plain = value.layout is torch.strided
    places = itertools.islice(itertools.product(*map(range, value.shape)), FIRST)
    own = value.dequantize() if value.is_quantized else value.detach()
    dense = as_bytes(own) if plain else own.to_dense()
    form = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    form["stride"] = list(value.stride()) if plain else None
    return [form | _numbers([value]) | {"first": [_number(dense[place].item()) for place in places]}]


def _number(value: Any) -> Any:
    """A number as JSON can hold it: infinities, NaN and complex numbers are replaced."""
    finite = isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if finite else str(value)


def _prompt(payload: Mapping[str, Any], near: Live, seen: _EagerValues, got: dict[str, torch.Tensor]) -> None:
    """Opens a Python prompt at the terminal, with the node's values under short names. Changes made there have no
    effect."""
    name = payload["node"]
    node = next(candidate for candidate in near.gm.graph.nodes if candidate.name == name)
    read = {argument.name: seen.as_read(name, argument.name) for argument in node.all_input_nodes}
    inputs = dict(zip(read, clone_inputs(list(read.values())), strict=True))
    there: dict[str, Any] = {"torch": torch, "fx": fx, "node": node, "gm": near.gm, "inputs": inputs, "eager": seen}
    there |= {"graph_inputs": clone_inputs(near.inputs), "value": seen.value(name)}
    there |= {"compiled": got} if got else {}
    lines = [
        f"At {name} = {node.format_node() or ''}".split(" : ")[0] if node.op == "output" else f"At {_call(node)}",
        "inputs   what it was given, by name        value  what eager makes of it",
        "eager    eager's values by name            gm     the graph up to here: gm(*graph_inputs)",
        "node     its fx.Node; torch, fx            Ctrl-D ends",
    ]
    if got:
        lines.insert(3, f"compiled what {payload['rung']} makes of them, by name")
    os.environ["TERM"] = payload.get("term") or "dumb"
    with contextlib.suppress(ImportError):
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(there).complete)
        readline.parse_and_bind("tab: complete")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(SystemExit):
        code.InteractiveConsole(there, "<prompt>").interact("\n".join(lines), "")


def _call(node: fx.Node) -> str:
    arguments = [*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())]
    return f"{node.name} = {target_of(node)}({', '.join(arguments)})"[:100]
