# pyright: basic
"""Is a rounding left out that the program asks for? `x.half().float()` on a float32 rounds in eager; Inductor drops such pairs of
casts unless it is told to keep them (`emulate_precision_casts`).

The compiled result is then nearer to float64 than eager's, so no error relative to float64 tells it. Two float64 runs do, one
without any rounding and one that rounds in each such pair: where they differ by more than rounding explains, eager goes with
the second and the rung with the first. Only pairs of casts that the program itself wrote count, not those that a decomposition
of a half-precision op makes. Must not change the graph.

>>> round_trips(gm)         # the widening cast of each pair -> the dtype that is rounded to
{'to_1': torch.float16}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from .float64 import NoReference, reference
from .numerics.difference import ROUNDING, Difference, is_float
from .numerics.measures import rms, wide
from .numerics.tolerances import tolerance

CLEARLY = 2.0
"""By how many times nearer a result must be to one of the two runs than to the other."""
FACTOR = 4.0

_METHODS = frozenset({"to", "type", "type_as", "float", "half", "bfloat16", "double"})
_CASTS = frozenset({"prims.convert_element_type.default", "aten._to_copy.default", "aten.to.dtype"})

Run = Callable[[fx.GraphModule, list[Any]], list[Any]]


def round_trips(gm: fx.GraphModule) -> dict[str, torch.dtype]:
    """Casts to a wider dtype of what was just cast from a wider one: name -> the narrow dtype between."""
    found: dict[str, torch.dtype] = {}
    for node in gm.graph.nodes:
        if not _is_cast(node) or not _is_cast(node.args[0]):
            continue
        before, between, after = (_dtype(one) for one in (node.args[0].args[0], node.args[0], node))
        if before and between and after and _eps(between) > max(_eps(before), _eps(after)):
            found[node.name] = between
    return found


def left_out(gm: fx.GraphModule, inputs: Sequence[Any], run: Run, plain: Sequence[Any], eager: Sequence[Any],
             got: Sequence[Any]) -> Difference | None:  # fmt: skip
    """The first output whose rounding is left out. `plain`: the results in float64 without it; `run` executes a graph."""
    trips = round_trips(gm)
    if not trips:
        return None
    rounded = reference(gm, inputs, run, trips)
    if isinstance(rounded, NoReference):
        return None
    names = " and ".join(sorted({str(dtype).removeprefix("torch.") for dtype in trips.values()}))
    for index, (without, with_it, want, have) in enumerate(zip(plain, rounded, eager, got, strict=False)):
        if not all(is_float(one) for one in (without, with_it, want, have)) or want.shape != have.shape:
            continue
        errors = _errors(*(wide(one) for one in (without, with_it, want, have)))
        if errors is None:
            continue
        eager_without, eager_with, rung_without, rung_with = errors
        clear = CLEARLY * eager_with < eager_without and CLEARLY * rung_without < rung_with
        if clear and rung_with > FACTOR * eager_with + tolerance(want.dtype):
            text = (
                f"output {index}: the rounding through {names} is left out: relative error {rung_with:.2g} to float64 with it, "
                f"{rung_without:.2g} without (eager's own: {eager_with:.2g} with it)"
            )
            return Difference("accuracy", index, ROUNDING, rung_with, text)
    return None


def _errors(without: torch.Tensor, with_it: torch.Tensor, want: torch.Tensor, have: torch.Tensor):
    """Eager's errors to both runs, then the rung's, relative to the size of the values; None where there are none."""
    finite = torch.isfinite(without) & torch.isfinite(with_it) & torch.isfinite(want) & torch.isfinite(have)
    if not bool(finite.any()):
        return None
    size = float(rms(without[finite])) or 1.0
    return tuple(
        float(rms(one[finite] - truth[finite])) / size for one in (want, have) for truth in (without, with_it)
    )


def _is_cast(node: Any) -> bool:
    if not isinstance(node, fx.Node) or not node.args or not isinstance(node.args[0], fx.Node):
        return False
    if node.op == "call_method":
        return node.target in _METHODS
    if node.op != "call_function" or str(node.target) not in _CASTS:
        return False
    made_by = str(node.meta.get("original_aten", node.meta.get("graphdbg_original_aten", node.target)))
    return made_by in _CASTS


def _dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val", node.meta.get("example_value")) if isinstance(node, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else None


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps
