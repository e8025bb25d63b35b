"""The private names of torch that the debug compilers need, each with the public alternative that is missing.

Read on torch 2.13.0. Importing this module imports torch, not Inductor.

>>> fake_mode_of(fx_g).shape_env
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # no public fake tensors (2.13.0)


def aot_backend(arguments: Mapping[str, Any], gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a Dynamo graph through AOTAutograd. `torch._dynamo.backends.common.aot_autograd` is what the documentation of
    custom backends names; `functorch.compile.aot_module_simplified` does not keep Dynamo from tracing the result. (2.13.0)"""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**arguments)(gm, list(example_inputs))


def is_fake(value: object) -> bool:
    """Whether a value is a fake tensor."""
    return isinstance(value, FakeTensor)


def fake_mode_of(fx_g: fx.GraphModule, inps: Sequence[Any] = ()) -> FakeTensorMode | None:
    """The mode of the fake values that a graph was traced with; None when it has none.

    A graph from AOTAutograd has no `shape_env` of its own: it is that of the values of its placeholders. Nothing public tells it
    (2.13.0).
    """
    values = [node.meta.get("val", node.meta.get("example_value")) for node in fx_g.graph.nodes if node.op == "placeholder"]
    for value in (*values, *inps):
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return None


def shape_env_of(fx_g: fx.GraphModule, inps: Sequence[Any] = ()) -> Any:
    """The ShapeEnv of a graph's symbols; None for a graph without any. A graph may have symbols and no tensor inputs (2.13.0)."""
    mode = fake_mode_of(fx_g, inps)
    if mode is not None and mode.shape_env is not None:
        return mode.shape_env
    for node in fx_g.graph.nodes:
        value = node.meta.get("val", node.meta.get("example_value"))
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.shape_env
    return getattr(fx_g, "shape_env", None)


def compile_id() -> str | None:
    """torch's id of the compile in progress on this thread ("0/0", "!1"); None outside one. Public code can but log it (2.13.0)."""
    from torch._guards import CompileContext

    found = CompileContext.current_compile_id()
    return None if found is None else str(found)


def aot_graph_name() -> tuple[int, str] | None:
    """(number, "forward" | "backward" | "inference" | "joint") of the graph that AOTAutograd compiles now; None outside of it.

    `functorch.compile.get_aot_graph_name` is public and gives the same as one text ("model__0_forward_3").
    """
    from functorch.compile import get_aot_graph_name  # pyright: ignore[reportPrivateImportUsage]

    parts = get_aot_graph_name().rsplit("__", 1)[-1].split("_")
    if len(parts) == 3 and parts[0].isdigit():
        return int(parts[0]), parts[1]
    return None
