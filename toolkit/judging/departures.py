# pyright: basic
"""The local test: finds the values of a compiled run that are wrong even for the inputs that the compiled run itself
had.

The graph runs in float64, and each node whose compiled value is known passes that value on instead of its own. Every
known value is thus compared with float64 on compiled inputs: an error made or amplified earlier does not count against
it, and one compile judges as many nodes as it returns values. Between known values float64 flows on. A value that
departs is tested again with perturbed values (see `comparing.noise`) and dropped where rounding alone moves it as far.
Compiles nothing.

>>> [row.name for row in departures(gm, inputs, {"mul": torch.zeros(2, 16)}, seed=0)]
['mul']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ..live.eager import clone_inputs, run_graph
from ..numerics.comparison import Noise, compare, is_float
from .baseline import NoReference, reference
from .comparing import ALLOWANCE, eps_of_nodes, perturbed, reduction_length

SAMPLES = 3
CHECK = ("nan", "accuracy")


class WrongValue(NamedTuple):
    """A value that is wrong on right inputs. `name`: its node; `kind`: "accuracy", "nan" or "metadata"; `error`:
    relative."""

    name: str
    kind: str
    error: float | None
    text: str


class _NodeValues(NamedTuple):
    truth: torch.Tensor | None
    eager: torch.Tensor
    length: int
    departure: WrongValue


def departures(gm: fx.GraphModule, inputs: Sequence[Any], got: Mapping[str, Any], *, seed: int) -> list[WrongValue]:
    """Returns, in graph order, those of the known values `got` (node name -> compiled tensor) that are wrong. Changes
    none of its arguments.

    Call it under the recorded surroundings (`spec.in_force`). Raises GraphRunError where eager itself fails.
    """
    nodes = {node.name: node for node in gm.graph.nodes}
    eager = _eager(gm, inputs, got, seed)
    seen: dict[str, _NodeValues] = {}

    def judge(name: str, truth: Any) -> None:
        length, known = reduction_length(nodes[name]), None if truth is None else [truth]
        difference = compare(known, [eager[name]], [got[name]], check=("metadata", *CHECK), lengths=[length])
        if difference is not None:
            departure = WrongValue(name, difference.kind, difference.size, difference.text)
            seen[name] = _NodeValues(truth, eager[name], length, departure)

    def check(node: fx.Node, value: Any) -> Any:
        if node.name not in eager:
            return value
        judge(node.name, value)
        return _standing_in(got[node.name], value)

    torch.manual_seed(seed)
    if isinstance(reference(gm, inputs, lambda wide, given: run_graph(wide, given, hook=check)), NoReference):
        seen.clear()
        for name in eager:
            judge(name, None)
    elif seen:
        _drop_explained(gm, inputs, got, seen, seed)
    return [entry.departure for entry in seen.values()]


def _eager(gm: fx.GraphModule, inputs: Sequence[Any], got: Mapping[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Eager's value of each known node on the compiled values of its inputs."""
    values: dict[str, torch.Tensor] = {}

    def hook(node: fx.Node, value: Any) -> Any:
        have = got.get(node.name)
        if not isinstance(value, torch.Tensor) or not isinstance(have, torch.Tensor) or node.op == "output":
            return value
        values[node.name] = value
        return _standing_in(have, value) if have.shape == value.shape else value

    torch.manual_seed(seed)
    run_graph(gm, clone_inputs(inputs), hook=hook)
    return values


def _drop_explained(
    gm: fx.GraphModule, inputs: Sequence[Any], got: Mapping[str, Any], seen: dict[str, _NodeValues], seed: int
) -> None:
    """Removes from `seen` the values that perturbed float64 runs miss by as much as the compiled value does."""
    eps = eps_of_nodes(gm, inputs)
    flipped = dict.fromkeys(seen, 0)
    explained: set[str] = set()
    for sample in range(SAMPLES):
        generator = torch.Generator().manual_seed(sample)

        def perturb(node: fx.Node, value: Any, generator: torch.Generator = generator) -> Any:
            name = node.name
            have = got.get(name)
            if not isinstance(have, torch.Tensor) or not isinstance(value, torch.Tensor) or have.shape != value.shape:
                return perturbed(node, value, eps.get(name, ()), generator)
            if name in seen:
                look(name, value)
            width = torch.finfo(have.dtype).eps if have.is_floating_point() and is_float(have) else 0.0
            width = max((width, *eps.get(name, ()))) if width else 0.0
            return perturbed(node, _standing_in(have, value).clone(), (width,), generator)

        def look(name: str, other: torch.Tensor) -> None:
            truth, want, length, departure = seen[name]
            if departure.kind == "metadata" or truth is None:
                return
            if not other.is_floating_point() and not other.is_complex():
                flipped[name] = max(flipped[name], int((other != truth).sum()))
            moved = other.to(want.dtype)
            allowed = Noise(ALLOWANCE * flipped[name])
            wanted = [moved if other.is_floating_point() else want]
            if compare([truth], wanted, [got[name]], check=CHECK, lengths=[length], noise=lambda _: allowed) is None:
                explained.add(name)

        torch.manual_seed(seed)
        run = reference(gm, inputs, lambda wide, given, hook=perturb: run_graph(wide, given, hook=hook))
        if isinstance(run, NoReference):
            return
    for name in explained:
        del seen[name]


def _standing_in(have: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The compiled value with the dtype and, where it can have them, the strides of the value that it replaces."""
    if have.shape != value.shape or have.layout != torch.strided or value.layout != torch.strided:
        return value
    plain = have.detach().to(value.device, value.dtype)
    if plain.stride() == value.stride():
        return plain
    overlap = any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True))
    if overlap or value.is_quantized:
        return plain
    return torch.empty_strided(value.shape, value.stride(), dtype=plain.dtype, device=plain.device).copy_(plain)
