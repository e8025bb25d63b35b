# pyright: basic
"""The operator whose decomposition makes a traced graph compute something else than the program: its node there, and
its line.

A traced node records which node of the program and which operator it was made from. A value of the program's that none
of the nodes made of it has, though all before it were found, is where the two part; of gradients, those of the
program's values are looked for among the nodes of the backward. Does not decide whether anything is wrong: the results
have shown that.

For example:

    traced_apart(program, traced, (seen_program, seen_traced)).text
    # 'aten.hardswish.default became add, clamp_min, clamp_max, mul, div'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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


_SHOWN = 8


def traced_apart(program: fx.GraphModule, traced: fx.GraphModule, seen: tuple[Seen, Seen]) -> Parted | None:
    """The node where they part; None where every value of the program's is found, or nothing shows it."""
    mates: dict[str, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        if node.op == "call_function":
            for name in node.meta.get("from_node") or ():
                mates.setdefault(_name(name), []).append(node)
    backwards: dict[int, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        if _is_backward(node):
            backwards.setdefault(node.meta.get("seq_nr", -1), []).append(node)
    there = {node.name: node for node in program.graph.nodes}
    for node in program.graph.nodes:
        counterparts = mates.get(node.name, ())
        mine, known = (
            seen[0].values.get(node.name, ()),
            [sums for mate in counterparts for sums in seen[1].values.get(mate.name, ())],
        )
        if mine and known and len(mine[0]) > 1 and not _any_like(mine[0], known):
            return _decomposed(counterparts, node)
    every = [sums for nodes in backwards.values() for node in nodes for sums in seen[1].values.get(node.name, ())]
    every += [sums for node in traced.graph.find_nodes(op="placeholder") for sums in seen[1].values.get(node.name, ())]
    for name, grad in reversed(seen[0].gradients.items()):
        if len(grad) < 2 or _any_like(grad, every):
            continue
        users = [mates.get(user.name, ()) for user in there[name].users]
        numbers = {mate.meta.get("seq_nr", -1) for counterparts in users for mate in counterparts} - {-1}
        groups = [_last_operator(backwards[number]) for number in numbers if number in backwards]
        if groups:
            return _decomposed(max(groups, key=len), max(there[name].users, key=lambda user: user.name in mates))
    return None


def _last_operator(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes of one operation's backward that were made from its most frequent operator."""
    operator = Counter(map(_operator, nodes)).most_common(1)[0][0]
    return [node for node in nodes if _operator(node) == operator]


def _decomposed(counterparts: Sequence[fx.Node], node: fx.Node) -> Parted:
    last = counterparts[-1]
    operator = _operator(last)
    counterparts = [mate for mate in counterparts if _operator(mate) == operator]
    names = ", ".join(mate.name for mate in counterparts[:_SHOWN]) + (
        f" and {len(counterparts) - _SHOWN} more" if len(counterparts) > _SHOWN else ""
    )
    last.meta.setdefault("stack_trace", node.meta.get("stack_trace") or "")
    if len(counterparts) == 1 and str(last.target) == operator:
        return Parted(last, f"{names} ({operator}) has another value than {node.name} in the program", last.name)
    return Parted(last, f"{operator} became {names}", last.name, operator)


def _operator(node: fx.Node) -> str:
    return str(node.meta.get("original_aten") or node.meta.get("graphdbg_original_aten") or node.target)


def _is_backward(node: fx.Node) -> bool:
    return node.op == "call_function" and (
        node.meta.get("partitioner_tag") == "is_backward" or bool(node.meta.get("autograd_backward"))
    )


def _name(source: Any) -> str:
    return str(getattr(source, "name", source))


def _any_like(sums: tuple[Any, ...], others: Iterable[tuple[Any, ...]]) -> bool:
    """Whether another value has the same numbers, in whatever order and shape."""
    return any(len(other) > 3 and _near(sums, other) for other in others)


def _near(sums: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    size = sums[2] + other[2]
    return all(abs(x - y) <= CLOSE * size or (x != x and y != y) for x, y in zip(sums[2:4], other[2:4], strict=True))
