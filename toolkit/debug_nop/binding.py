"""Symbols bound to the numbers of one set of inputs, and what every value must then be: one comparison tuple per node.

A Binding is made once per combination of input layouts, and used for all later runs on such inputs. Sizes that depend on data
are not in it: a Run binds those as their nodes are computed.

>>> binding = bind(plan, inputs, seen, {}, lambda path: getattr(gm, path))
>>> binding.expected[17]
(torch.Size([8, 64]), (64, 1), torch.float32, device(type='cpu'), 0, True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .expressions import evaluate
from .findings import Finding
from .layout import Layout, layout_of
from .plan import Leaf, Place, Plan, Step, parts_sharing, value_of


@dataclass
class Binding:
    """`expected[i]` is what generated code compares step i with; `layouts[i]` the same as layouts (None: depends on data).

    `runs`: how often it was used; `told`: the collector that a deep run was last made for. `known` remembers what a
    mismatch was found to be, `accepted` what was compared and let pass, so that repeated runs ask once.
    """

    seen: tuple[Any, ...]
    symbols: dict[str, Any]
    shifts: dict[Place, int]
    expected: list[Any]
    layouts: list[list[Any] | None]
    runs: int = 0
    known: dict[Any, Finding | None] = field(default_factory=dict)
    late: dict[Any, list[Any]] = field(default_factory=dict)
    unbound: frozenset[str] = frozenset()
    told: list[Finding] | None = None


def bind(
    plan: Plan, inputs: Sequence[Any], seen: tuple[Any, ...], outer: Mapping[str, Any], attribute: Callable[[str], Any]
) -> Binding:
    """The binding of these inputs. `outer`: symbols of the graph that calls this one."""
    values = list(inputs)
    symbols = {name: outer[name] for name in plan.free if name in outer}
    for name, read in plan.bound.items():
        try:
            symbols[name] = read(values)
        except (AttributeError, IndexError, RuntimeError, TypeError):  # not the tensor that was traced: a finding of its own
            continue
    shifts: dict[Place, int] = {}
    for step, value in zip(plan.inputs, values, strict=True):
        _shift(step, value, symbols, shifts)
    for step in plan.steps:
        if step.node.op == "get_attr" and step.leaves:
            _shift(step, attribute(str(step.node.target)), symbols, shifts)
    layouts = [at(step, symbols, shifts) for step in plan.steps]
    expected = [_tuple(plan, step, found) for step, found in zip(plan.steps, layouts, strict=True)]
    unbound = frozenset(name for step in plan.steps for name in step.needs) - set(symbols) - _born(plan)
    return Binding(seen, symbols, shifts, expected, layouts, unbound=unbound)


def at(step: Step, symbols: Mapping[str, Any], shifts: Mapping[Place, int]) -> list[Any] | None:
    """What a step's leaves are under symbol values; None while a symbol of it has no value."""
    try:
        return [
            leaf.at(symbols, shifts.get(leaf.root, 0)) if isinstance(leaf, Leaf) else evaluate(leaf, symbols)
            for leaf in step.leaves
        ]
    except KeyError:
        return None


def _born(plan: Plan) -> set[str]:
    return {name for step in plan.steps for name, _ in step.binds}


def _shift(step: Step, value: Any, symbols: Mapping[str, Any], shifts: dict[Place, int]) -> None:
    """How far the storage of an input lies from where it was traced: a program may pass any slice of a tensor."""
    leaf = step.leaves[0] if len(step.leaves) == 1 else None
    if not isinstance(leaf, Leaf) or not isinstance(value, torch.Tensor) or leaf.layout is not torch.strided:
        return
    offset = layout_of(value).offset
    try:
        traced = evaluate(leaf.offset, symbols)
    except KeyError:
        return
    if offset is not None and offset != traced and leaf.root not in shifts:
        shifts[leaf.root] = offset - traced


def _tuple(plan: Plan, step: Step, layouts: list[Any] | None) -> Any:
    if layouts is None or not layouts:
        return None
    if step.way == "parts":
        return flat(plan, step, [one for one in layouts if isinstance(one, Layout)])
    if step.way == "inline" and isinstance(layouts[0], Layout):
        return (*layouts[0].compared, *(True for _ in step.aliased), *(False for _ in step.apart))
    return layouts[0] if step.way == "number" else None


def flat(plan: Plan, step: Step, layouts: Sequence[Layout]) -> tuple[Any, ...]:
    """What generated code compares of a value of several parts, all of whose memory is as it was traced."""
    return (*(part for layout in layouts for part in layout.compared), *(True for _ in parts_sharing(plan, step)))


def single(step: Step) -> bool:
    """Whether a step's value is one value, not a tuple of them."""
    return not isinstance(value_of(step.node), (tuple, list, dict))
