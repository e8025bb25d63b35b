"""`aot_inductor`: torch's own `aot_compile` and load: Inductor's code as one C++ library, for graphs of every stage.

Whatever its stage, a graph is taken as an inference graph and traced again through AOTAutograd, as torch does it; the
verdict says so. Takes tensors alone, and no graph that a backward has to go through: the recorded forward and backward
graphs are taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from ...dumps.torchside.values import fake_of
from .. import torch_private as t
from ..live import gpu_only
from ..live.entries import is_number, mode_of
from ..live.execution import tensors_in
from ..live.rung import CannotRun, Compiled
from ..live.spec import FULL_STAGES, ReplaySpec
from .cpp_library import shared_standard_library
from .inductor import Inductor, flatten_outputs


class AotInductor(Inductor):
    """One library for a graph."""

    name = "aot_inductor"

    def unavailable(self, spec: ReplaySpec) -> str | None:
        lacking = [t.NAMES.whole(name) for name in ("aot_compile", "aot_load") if t.optional(name) is None]
        return super().unavailable(spec) or (f"this torch has no {' and no '.join(lacking)}" if lacking else None)

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        types = {tensor.device.type for node in gm.graph.nodes for tensor in tensors_in(fake_of(node))}
        if spec.device is not None:
            types.add(torch.device(spec.device).type)
        if others := types - {"cpu", "cuda"}:
            return f"AOTInductor compiles for the CPU and CUDA, not for {', '.join(sorted(others))}"
        if any(is_number(node) for node in gm.graph.find_nodes(op="placeholder")):
            return "AOTInductor takes only tensors, and the graph has sizes among its inputs"
        if any(is_number(node) for node in gm.graph.output_node().all_input_nodes):
            return "AOTInductor returns only tensors, and the graph returns sizes"
        return gpu_only.refusal(gm)

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        return ["traced again as an inference graph, as torch's aot_compile does with every graph"]

    @contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        with shared_standard_library():
            yield

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        if _is_trained([*fake_inputs, *gm.parameters()], spec):
            lacks = "AOTInductor compiles no backward, which this graph needs"
            raise CannotRun(f"{lacks}: replay its forward or backward graph instead")
        mode_of(gm, fake_inputs).allow_non_fake_inputs = True  # real constants are compiled into the library
        flatten_outputs(gm)
        return compile_ahead(gm, fake_inputs)


def _is_trained(values: Sequence[Any], spec: ReplaySpec) -> bool:
    """Whether a replay would run a backward through a graph with these inputs and parameters."""
    if spec.stage not in FULL_STAGES or not spec.ambient.grad or spec.ambient.inference_mode:
        return False
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


def compile_ahead(gm: fx.GraphModule, fakes: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Compiles a graph with flat inputs and outputs to a shared library, and loads it. The wrapper is not optimised:
    g++ takes most of the time.
    """
    outputs = gm.graph.output_node().args[0]
    gm._in_spec = t.pytree.tree_structure((tuple(fakes), {}))  # type: ignore[assignment]  # loading reads how a call nests
    gm._out_spec = t.pytree.tree_structure(tuple(None if item is None else 0 for item in outputs))  # type: ignore[assignment]
    path = t.aot_compile(gm, tuple(fakes), options={"aot_inductor.compile_wrapper_opt_level": "O0"})
    cuda = [value.device for value in fakes if isinstance(value, torch.Tensor) and value.is_cuda]
    logging.getLogger("torch._export").setLevel(logging.ERROR)  # suppresses a deprecation warning
    loaded = t.aot_load(str(path), str(cuda[0]) if cuda else "cpu")
    return lambda inputs: t.tree_leaves(loaded(*inputs), is_leaf=lambda value: value is None)


RUNG = AotInductor(
    order=130,
    words="one C++ library, by torch's own `aot_compile`",
    layer="aot_inductor",
    meaning="The fault is in the C++ wrapper that ahead-of-time compilation adds.",
    used_by=("aot_mode",),
)
"""The one instance that the registry hands out."""
