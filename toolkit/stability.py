"""How many elements of a discrete output does rounding alone decide? A mask `x <= 0` of rounded numbers may differ from eager's
where x lies next to 0, with no bug in sight; a wrong kernel flips far more.

Stochastic arithmetic (J. Vignes, A stochastic arithmetic for reliable scientific computation, Math. Comput. Simul. 35, 1993):
the float64 graph runs a few times with every fresh float value v replaced by v * (1 + eps * u) + SUMS * eps32 * RMS(v) * u,
u uniform in [-1, 1], eps that of the dtype which eager has there (the rounding of the result), the second term for sums
that nearly cancel, which are added up in float32 in any order; the elements of integer and boolean results that change are
decided by rounding, and those of float results that become finite, NaN or infinite. Random draws stay as they are, and so does
what an op only moves or selects (a copy, a `where`, the largest): nothing is rounded there.

>>> flips(gm, inputs, truth, run)        # one count per result: 0 where rounding decides nothing
[0, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from .copying import clone_inputs
from .eager import GraphRunError, is_random, run_graph
from .float64 import NoReference, reference
from .numerics.nonfinite import classes
from .numerics.statistics import tensors_in

SAMPLES = 3
ALLOWANCE = 4
"""A rung may flip this many times what the samples flip: its rounding is one more sample of the same noise."""

SUMS = 16.0

_EXACT = frozenset({
    "where", "nan_to_num", "maximum", "minimum", "max", "min", "amax", "amin", "relu", "abs", "neg", "clone", "contiguous", "cat",
    "stack", "gather", "index", "index_select", "embedding", "take", "roll", "flip", "sort", "topk", "constant_pad_nd", "full",
    "full_like", "zeros", "zeros_like", "ones", "ones_like", "scalar_tensor", "masked_fill", "scatter", "copy", "fill", "sign",
    "floor", "ceil", "round", "trunc", "max_pool2d", "adaptive_max_pool2d", "clamp", "clamp_min", "clamp_max", "fmax", "fmin",
    "empty", "empty_like", "masked_fill_", "copy_", "fill_", "zero_", "relu_", "neg_", "repeat", "tril", "triu", "copysign",
})  # fmt: skip
"""Ops whose float results are elements of their arguments (or whole numbers): exact in every dtype."""

Run = Callable[[fx.GraphModule, list[Any], Callable[[fx.Node, Any], Any]], list[Any]]


def flips(gm: fx.GraphModule, inputs: Sequence[Any], truth: Sequence[Any], run: Run) -> list[int]:
    """For each result the largest number of elements that changed in SAMPLES perturbed float64 runs. `run` executes a graph with
    a hook on every node (as `run_graph` does) and returns results in the order of `truth`. All 0 where a run is not possible.
    """
    eps = eps_of_nodes(gm, inputs)
    counts = [0] * len(truth)
    for sample in range(SAMPLES):
        generator = torch.Generator().manual_seed(sample)

        def perturb(node: fx.Node, value: Any, generator: torch.Generator = generator) -> Any:
            return perturbed(node, value, eps.get(node.name, ()), generator)

        found = reference(gm, inputs, lambda wide, given, hook=perturb: run(wide, given, hook))
        if isinstance(found, NoReference):
            return counts
        counts = [max(count, _changed(one, other)) for count, one, other in zip(counts, truth, found, strict=True)]
    return counts


def eps_of_nodes(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, tuple[float, ...]]:
    """eps of each output of each node, 0 for what is not a float or shares memory with an argument (a view)."""
    eps: dict[str, tuple[float, ...]] = {}
    storages: dict[str, set[int]] = {}

    def look(node: fx.Node, value: Any) -> Any:
        tensors = tensors_in(value)
        given = set[int]().union(*(storages.get(arg.name, set()) for arg in node.all_input_nodes))
        storages[node.name] = {one.untyped_storage().data_ptr() for one in tensors if one.layout == torch.strided}
        if node.op not in ("placeholder", "get_attr", "output") and not is_random(node) and not _is_exact(node):
            eps[node.name] = tuple(
                torch.finfo(one.dtype).eps
                if one.is_floating_point() and one.layout == torch.strided and one.untyped_storage().data_ptr() not in given
                else 0.0
                for one in tensors
            )
        return value

    try:
        with torch.no_grad():
            run_graph(gm, clone_inputs(inputs), hook=look)
    except (GraphRunError, RuntimeError):
        return {}
    return eps


def perturbed(node: fx.Node, value: Any, eps: Sequence[float], generator: torch.Generator) -> Any:
    """The value of a node of a float64 run, its tensors changed in place by as much as rounding could."""
    tensors = tensors_in(value)
    for tensor, width in zip(tensors, eps, strict=False):
        if width and tensor.dtype == torch.float64:
            unit = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).mul_(2).sub_(1).to(tensor.device)
            plain = tensor.data  # autograd must not take it for a change of a saved value
            known = torch.isfinite(plain)
            finite = plain[known]
            size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
            sums = SUMS * min(width, torch.finfo(torch.float32).eps) * size
            plain.add_(plain.abs().mul_(width).add_(sums).mul_(unit).masked_fill_(~known, 0.0))
    return value


def _is_exact(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return str(name).partition(".")[0] in _EXACT


def _changed(one: Any, other: Any) -> int:
    if not isinstance(one, torch.Tensor) or one.layout != torch.strided:
        return 0
    if not isinstance(other, torch.Tensor) or other.shape != one.shape:
        return one.numel()
    if one.is_floating_point() or one.is_complex():
        return int((classes(one) != classes(other)).sum())
    return int((one != other).sum())
