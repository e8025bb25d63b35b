"""Graphs that were recorded under a backend without Inductor's decompositions: how to tell them, and how to decompose them.

A graph that Inductor made is known by the arguments it was compiled with, and is never decomposed again, whatever is in it:
what is left there, Inductor left on purpose.

>>> needs_decomposing(gm, ReplaySpec("forward"))       # a forward recorded under backend="aot_eager"
['aten.native_layer_norm.default']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from .. import torch_private as t
from ..spec import FULL_STAGES, ReplaySpec
from . import entries
from .base import CannotRun

RETRACED = "re-traced through Inductor's decompositions, which it was recorded without"
_MARKS = frozenset({"static_input_idxs", "graph_id", "cudagraphs", "boxed_forward_device_index", "num_example_inputs"})
_ONLY_INDUCTORS = frozenset({"joint_passed", "post_grad_forward", "post_grad_backward", "post_grad_inference"})


def made_by_inductor(spec: ReplaySpec) -> bool:
    """Whether a graph has Inductor's decompositions behind it for certain."""
    return spec.stage in _ONLY_INDUCTORS or bool(_MARKS & set(spec.compile_kwargs))


def needs_decomposing(gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
    """The operators that Inductor cannot compile unless they are decomposed first; empty for what it compiles as it is."""
    if spec.stage in FULL_STAGES or made_by_inductor(spec):
        return []
    return entries.decomposed_ops(gm, without_lowering=True)


def can_be_decomposed(gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
    """The operators that Inductor's decompositions would take apart."""
    return [] if spec.stage in FULL_STAGES or made_by_inductor(spec) else entries.decomposed_ops(gm)


def decomposed_copy(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> fx.GraphModule:
    """The graph traced through the decompositions. Raises CannotRun where it cannot be traced again."""
    try:
        traced = entries.decompose(gm, fakes, mode)
    except Exception as error:  # whatever tracing raises: this graph was not meant to be traced again
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CannotRun(
            f"it was recorded without Inductor's decompositions and cannot be traced again: {why}"
        ) from error
    output = traced.graph.output_node()
    output.args = (tuple(t.tree_leaves(output.args[0], is_leaf=lambda value: value is None)),)
    traced.recompile()
    return traced
