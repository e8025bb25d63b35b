"""Symbols bound to the numbers of one set of inputs, and what every value must then be: one comparison per node.

A Binding is made once per combination of input layouts, and used for all later runs on such inputs. Sizes that depend
on data are not in it: a Run binds those as their nodes are computed.

For example:

    binding = bind(plan, inputs, seen, {}, lambda path: getattr(gm, path))
    binding.layouts[17]
    # [Layout(shape=(8, 64), stride=(64, 1), dtype=torch.float32, device=device(type='cpu'), offset=0, ...)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..cutting.atoms import fake_of
from ..verdicts.mismatches import NodeMismatch
from .layout import evaluate, layout_of
from .plan import Leaf, NodeStep, Place, Plan


@dataclass
class Binding:
    """`layouts[i]` is what step i must be (None: depends on data); `expected[i]` and `offsets[i]` what generated code
    compares with: a guard made from a value that was found right, or a number.

    `runs`: how often it was used; `collector`: the list that a deep run was last made for. `known` remembers what a
    mismatch was found to be, so that repeated runs ask once. `guard`: says whether inputs are laid out like these.
    """

    seen: tuple[Any, ...]
    symbols: dict[str, Any]
    shifts: dict[Place, int]
    expected: list[Any]
    offsets: list[Any]
    layouts: list[list[Any] | None]
    runs: int = 0
    known: dict[Any, NodeMismatch | None] = field(default_factory=dict)
    late: dict[Any, list[Any]] = field(default_factory=dict)
    unbound: frozenset[str] = frozenset()
    collector: list[NodeMismatch] | None = None
    guard: Callable[..., bool] | None = None


def bind(
    plan: Plan, inputs: Sequence[Any], seen: tuple[Any, ...], outer: Mapping[str, Any], attribute: Callable[[str], Any]
) -> Binding:
    """The binding of these inputs. `outer`: symbols of the graph that calls this one."""
    values = list(inputs)
    symbols = {name: outer[name] for name in plan.free if name in outer}
    for name, read in plan.bound.items():
        try:
            symbols[name] = read(values)
        except (
            AttributeError,
            IndexError,
            RuntimeError,
            TypeError,
        ):  # not the tensor that was traced: a finding of its own
            continue
    shifts: dict[Place, int] = {}
    for step, value in zip(plan.inputs, values, strict=True):
        _shift(step, value, symbols, shifts)
    for step in plan.steps:
        if step.node.op == "get_attr" and step.leaves:
            _shift(step, attribute(str(step.node.target)), symbols, shifts)
    layouts = [at(step, symbols, shifts) for step in plan.steps]
    expected = [
        layout[0] if step.way == "number" and layout else differs
        for step, layout in zip(plan.steps, layouts, strict=True)
    ]
    unbound = frozenset(name for step in plan.steps for name in step.needs) - set(symbols)
    unbound -= {name for step in plan.steps for name, _ in step.binds}
    return Binding(seen, symbols, shifts, expected, [None] * len(expected), layouts, unbound=unbound)


def at(step: NodeStep, symbols: Mapping[str, Any], shifts: Mapping[Place, int]) -> list[Any] | None:
    """The leaves of a step under symbol values; None while a symbol of it has no value."""
    try:
        return [
            leaf.at(symbols, shifts.get(leaf.root, 0)) if isinstance(leaf, Leaf) else evaluate(leaf, symbols)
            for leaf in step.leaves
        ]
    except KeyError:
        return None


def _shift(step: NodeStep, value: Any, symbols: Mapping[str, Any], shifts: dict[Place, int]) -> None:
    """How far the storage of an input lies from where it was traced: a program may pass any slice of a tensor."""
    leaf = step.leaves[0] if len(step.leaves) == 1 else None
    if not isinstance(leaf, Leaf) or not isinstance(value, torch.Tensor) or leaf.layout is not torch.strided:
        return
    if leaf.offset is None:
        return
    offset = layout_of(value).offset
    try:
        traced = evaluate(leaf.offset, symbols)
    except KeyError:
        return
    if offset is not None and offset != traced and leaf.root not in shifts:
        shifts[leaf.root] = offset - traced


def differs(*values: Any) -> bool:
    """Stands for the comparison of a value that was wrong before: always asks for a closer look."""
    return False


def single(step: NodeStep) -> bool:
    """Whether a step's value is one value, not a tuple of them."""
    return not isinstance(fake_of(step.node), (tuple, list, dict))
