"""AOTAutograd as the debug compilers use it: a backend of it, and what it compiles now.

>>> aot_graph_name()
(0, 'forward')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from .. import torch_private as t


def aot_backend(arguments: Mapping[str, Any], gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a Dynamo graph through AOTAutograd. `torch._dynamo.backends.common.aot_autograd` is what the documentation of
    custom backends names; `functorch.compile.aot_module_simplified` does not keep Dynamo from tracing the result."""
    return t.aot_autograd(**arguments)(gm, list(example_inputs))


def compile_id() -> str | None:
    """torch's id of the compile in progress on this thread, with its attempt ("0/0_1"); None outside one."""
    found = t.CompileContext.current_trace_id()
    return None if found is None else str(found)


def aot_graph_name() -> tuple[int, str] | None:
    """(number, "forward" | "backward" | "inference" | "joint") of the graph that AOTAutograd compiles now; None outside of it.

    `functorch.compile.get_aot_graph_name` is public and gives the same as one text ("model__0_forward_3").
    """
    parts = t.get_aot_graph_name().rsplit("__", 1)[-1].split("_")
    if len(parts) == 3 and parts[0].isdigit():
        return int(parts[0]), parts[1]
    return None
