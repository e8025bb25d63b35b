"""`aot_inductor`: Inductor's code as one shared library in C++, loaded and run, for graphs of every stage.

Forward and backward graphs are compiled ahead of time each on its own, Dynamo's through AOTAutograd into two libraries, by the
stages of `compile_fx`. Takes tensors alone: a graph with sizes among its inputs or results is skipped. On CUDA only
Dynamo's graphs are taken: where a half enters on its own, torch's settings that keep its kernels' binaries are not made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch import fx

from .. import kernel_calls
from .._torch import is_number, mode_of
from ..compile_fx.entering import enter
from ..compile_fx.pipeline import Pipeline
from ..spec import ReplaySpec
from . import _torch
from .base import Compiled
from .inductor import Inductor
from .undecomposed import decomposed_copy, needs_decomposing


class AotInductor(Inductor):
    """The same entries as `inductor`."""

    name = "aot_inductor"

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return super().unavailable(spec) or _torch.lacks_aot_inductor()

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        types = {value.device.type for value in _tensors(gm)}
        if spec.device is not None:
            types.add(torch.device(spec.device).type)
        if others := types - {"cpu", "cuda"}:
            return f"one graph ahead of time is built for the CPU and CUDA, not for {', '.join(sorted(others))}"
        if "cuda" in types and spec.stage not in ("dynamo", "pre_grad"):
            return "one graph ahead of time is built for CUDA from Dynamo's graphs only"
        if any(is_number(node) for node in gm.graph.find_nodes(op="placeholder")):
            return "AOTInductor takes tensors alone, and the graph has sizes among its inputs"
        if any(is_number(node) for node in gm.graph.output_node().all_input_nodes):
            return "AOTInductor returns tensors alone, and the graph returns sizes"
        return kernel_calls.refusal(gm)

    @contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        with super().around(gm, spec), _torch.ahead_of_time():
            yield

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        mode = mode_of(gm, fake_inputs)
        mode.allow_non_fake_inputs = True  # constants are written into the library
        if needs_decomposing(gm, spec):  # asked before arguments are added that only Inductor's own graphs have
            gm = decomposed_copy(gm, fake_inputs, mode)
        kwargs = {**spec.compile_kwargs, "cpp_wrapper": True, "cudagraphs": False}
        return enter(gm, fake_inputs, msgspec.structs.replace(spec, compile_kwargs=kwargs), Pipeline())


def _tensors(gm: fx.GraphModule) -> Iterator[torch.Tensor]:
    for node in gm.graph.nodes:
        value = node.meta.get("val", node.meta.get("example_value"))
        yield from (
            one for one in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(one, torch.Tensor)
        )


RUNG = AotInductor()
"""The one instance that the registry hands out."""
