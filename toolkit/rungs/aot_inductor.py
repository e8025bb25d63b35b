"""`aot_inductor`: Inductor's code as one shared library in C++, loaded and run, for graphs of every stage.

Forward and backward graphs are compiled ahead of time each on its own, Dynamo's through AOTAutograd into two libraries, by the
stages of `compile_fx`. Takes tensors alone, on the CPU: a graph with sizes among its inputs or results, or on a GPU, is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch import fx

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
        moved = spec.device is not None and torch.device(spec.device).type != "cpu"
        if moved or any(value.device.type != "cpu" for value in _tensors(gm)):
            return "one graph ahead of time is built for the CPU only: loading such a library of a GPU crashed in torch 2.11"
        if any(is_number(node) for node in gm.graph.find_nodes(op="placeholder")):
            return "AOTInductor takes tensors alone, and the graph has sizes among its inputs"
        if any(is_number(node) for node in gm.graph.output_node().all_input_nodes):
            return "AOTInductor returns tensors alone, and the graph returns sizes"
        return None

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
