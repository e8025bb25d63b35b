# pyright: basic
"""A row for each node: what a value is like, and how far it is from float64. Reads values, keeps none, judges nothing.

The float64 run is gone through once; a node's value is measured when the run comes to it, so that rows come in graph
order and no float64 value is kept.

For example: `measure(case, "inductor", eager, got, seed=0, report=rows.append)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ...dumps.walk import user_frame
from ..judging.baseline import NoReference, reference
from ..live.case import Live
from ..live.eager import attribute, run_graph
from ..live.values import Held, Values, leaves
from ..numerics import relative_rmse
from ..numerics.statistics import described, tensors_in

Row = dict[str, Any]
INPUTS = ("placeholder", "get_attr")
LARGEST = 1e308
"""JSON has no infinity."""


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
        own = given.get(name, []) if node.op in INPUTS else _eager(eager, name)
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
    row: Row = {
        "event": "value",
        "index": index,
        "name": node.name,
        "target": target_of(node),
        "line": user_frame(node.meta.get("stack_trace") or "")[0],
    }
    if isinstance(under, str):
        return row | {"reason": under}
    seen, eager, exact = described(under), described(own), described(truth)
    row |= {
        "shape": [list(tensor.shape) for tensor in under] if len(under) != 1 else list(under[0].shape),
        "dtype": str(under[0].dtype).removeprefix("torch."),
        "min": seen.min,
        "max": seen.max,
        "mean": seen.mean,
        "nan": seen.nan,
        "inf": seen.inf,
        "eager_nan": eager.nan,
        "eager_inf": eager.inf,
    }
    if truth and node.op not in INPUTS:
        row |= {"reference_nan": exact.nan, "reference_inf": exact.inf}
        row |= {"error": _error(under, truth), "eager_error": _error(own, truth)}
    return row


def _error(got: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> float | None:
    """The largest relative RMS error among the parts of a value."""
    pairs = [
        (ours, exact)
        for ours, exact in zip(got, truth, strict=False)
        if ours.shape == exact.shape and _plain(ours) and _plain(exact)
    ]
    largest = max((relative_rmse(ours, exact) for ours, exact in pairs), default=None)
    return None if largest is None else min(largest, LARGEST)


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized


def _under_rung(
    node: fx.Node, own: list[torch.Tensor], eager: Values, got: Mapping[str, torch.Tensor] | None
) -> list[Any] | str:
    """The value under the rung, or why there is none."""
    if not own:
        return "it is no tensor"
    if got is None or node.op in INPUTS:
        return own
    if node.name in got:
        return [got[node.name]]
    if len(own) > 1:
        return "its parts are read one by one"
    return "its memory is written to later" if eager.written(node.name) else "the program did not return it"


def tappable(gm: fx.GraphModule, eager: Values) -> list[str]:
    """The nodes whose values a compiled program can return: one tensor each, in memory that nothing writes to."""
    return [
        node.name
        for node in gm.graph.nodes
        if node.op.startswith("call_") and isinstance(_tree(eager, node.name), Held) and not eager.written(node.name)
    ]


def _tree(eager: Values, name: str) -> Any:
    return eager.trees.get((name, eager.produced.get(name, -1)))


def _eager(eager: Values, name: str) -> list[torch.Tensor]:
    return [stored.load().detach() for stored in leaves(_tree(eager, name))]


def _given(case: Live) -> dict[str, list[torch.Tensor]]:
    """The tensors of inputs and attributes by their nodes."""
    names = [node.name for node in case.gm.graph.nodes if node.op == "placeholder"]
    tensors = {name: tensors_in(value) for name, value in zip(names, case.inputs, strict=False)}
    for node in case.gm.graph.nodes:
        if node.op == "get_attr":
            tensors[node.name] = tensors_in(attribute(case.gm, str(node.target)))
    return tensors


def target_of(node: fx.Node) -> str:
    """The target of a node, as a person would write it."""
    if node.op in INPUTS:
        return node.op
    named = isinstance(node.target, str) or hasattr(node.target, "_schema")
    return str(node.target) if named else str(getattr(node.target, "__name__", node.target))
