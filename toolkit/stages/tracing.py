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
from typing import Any

from torch import fx

from .parting import CLOSE, Parted, Seen

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
