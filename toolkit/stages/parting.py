# pyright: basic
"""The node where two stages of one graph part: the first that both know by name and that has another value in the
second.

Values are kept as a few sums, never whole. Does not decide whether anything is wrong: the results have shown that.

For example:

    parting(before, after, [seen_before, seen_after]).text
    # 'tanh: aten.tanh.default became aten.sigmoid.default'
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from ..live.execution import leaves
from ..node_values.measuring import target_of
from ..numerics.statistics import tensors_in
from .sides import AGAIN

CLOSE = 1e-6
"""What rounding in float64, and of constants, may leave between two values, relative to the sum of their sizes."""


class Parted(NamedTuple):
    """The node of the graph before, and what became of it; the name of the node in the graph after, and the operator
    that was decomposed."""

    node: fx.Node
    text: str
    at: str = ""
    op: str = ""


class Seen:
    """A hook for a run that keeps of each node's value its shapes and a few sums; with `gradients` of its gradient,
    too."""

    def __init__(self, gradients: bool = False) -> None:
        self.values: dict[str, list[tuple[Any, ...]]] = {}
        self.gradients: dict[str, tuple[Any, ...]] = {}
        """In the order of the nodes."""
        self._wanted = gradients

    def __call__(self, node: fx.Node, value: Any) -> Any:
        if node.op != "output":
            self.values[node.name] = [_sums(tensor) for tensor in tensors_in(value)]
        if self._wanted and isinstance(value, torch.Tensor) and value.requires_grad:
            self.gradients[node.name] = ()

            def keep(gradient: torch.Tensor, name: str = node.name) -> None:
                self.gradients[name] = _sums(gradient)

            value.register_hook(keep)
        return value


def _sums(value: torch.Tensor) -> tuple[Any, ...]:
    if value.layout is not torch.strided or value.is_quantized:
        return (tuple(value.shape),)
    flat = value.detach().reshape(-1)
    flat = torch.view_as_real(flat.resolve_conj()).reshape(-1) if flat.is_complex() else flat
    wide = flat.to(torch.float64)
    places = torch.cos(torch.arange(wide.numel(), dtype=torch.float64, device=wide.device))
    return tuple(value.shape), value.dtype, float(wide.abs().sum()), float(wide.sum()), float((wide * places).sum())


def _alike(sums: list[tuple[Any, ...]], other: list[tuple[Any, ...]], close: float) -> bool:
    if len(sums) != len(other):
        return False
    for a, b in zip(sums, other, strict=True):
        if a[:2] != b[:2]:
            return False
        size = abs(a[2]) + abs(b[2]) if len(a) > 2 else 0.0
        if any(abs(x - y) > close * size or (x != x) != (y != y) for x, y in zip(a[2:], b[2:], strict=True)):
            return False
    return True


def parting(
    before: fx.GraphModule,
    after: fx.GraphModule,
    seen: tuple[Seen, Seen],
    close: float = CLOSE,
    rewritten: bool = False,
) -> Parted | None:
    """The node where they part; None where every value that both know is the same. `rewritten`: only nodes with another
    call count."""
    known = {node.name: node for node in before.graph.nodes}
    there = {node.name: node for node in after.graph.nodes}
    of_before, of_after = (item.values for item in seen)
    for node in after.graph.nodes:
        mate = known.get(node.name.removesuffix(AGAIN))
        if mate is None or (rewritten and _text(mate) == _text(node)):
            continue
        if node.op == "output":
            return _returned(mate, node, known, there)
        if (
            mate.name in of_before
            and node.name in of_after
            and not _alike(of_before[mate.name], of_after[node.name], close)
        ):
            return _rewritten(mate, node, known, there)._replace(at=node.name)
    return None


def _rewritten(mate: fx.Node, node: fx.Node, known: dict[str, fx.Node], there: dict[str, fx.Node]) -> Parted:
    """The node itself, or the one that it took its value from before and that is gone now."""
    if _call(mate) == _call(node):
        for old, new in zip(mate.all_input_nodes, node.all_input_nodes, strict=False):
            if old.name != new.name.removesuffix(AGAIN) and old.name not in there:
                return Parted(old, _gone(old, new, known))
    if str(mate.target) != str(node.target):
        return Parted(mate, f"{mate.name}: {target_of(mate)} became {target_of(node)}")
    if (was := _arguments(mate)) != (now := _arguments(node)):
        return Parted(mate, f"{mate.name}: {target_of(mate)}({was}) became ({now})")
    return Parted(mate, f"{mate.name} ({target_of(mate)}) has another value")


def _returned(mate: fx.Node, node: fx.Node, known: dict[str, fx.Node], there: dict[str, fx.Node]) -> Parted | None:
    """The first result that is another node's now."""
    for old, new in zip(leaves(mate.args[0]), leaves(node.args[0]), strict=False):
        if isinstance(old, fx.Node) and (not isinstance(new, fx.Node) or old.name != new.name):
            return Parted(
                old, _gone(old, new, known) if old.name not in there else f"{old.name} is no longer returned, {new} is"
            )
    return None


def _gone(old: fx.Node, new: Any, known: dict[str, fx.Node]) -> str:
    if isinstance(new, fx.Node) and new.name not in known:
        return f"{old.name}: {target_of(old)}({_arguments(old)}) became {target_of(new)}({_arguments(new)})"
    return f"{old.name} ({target_of(old)}) is gone, {new} is in its place"


def _text(node: fx.Node) -> str:
    return f"{node.target}({_arguments(node)})" if node.op != "output" else ""


def _call(node: fx.Node) -> tuple[str, int]:
    return str(node.target), len(node.all_input_nodes)


def _arguments(node: fx.Node) -> str:
    text = ", ".join([*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())])
    return text.replace(AGAIN, "")
