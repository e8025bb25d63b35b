"""What a graph is called while it is compiled: `0_0/forward`, the id under which a recording of the same program has
it.

Without torch.compile the number of AOTAutograd's own stands in the place of the compile id (`x3_0/backward`); a
compiler that is called by hand has only a guess at the stage. A graph of unknown origin gets a name too.

>>> str(label(gm))                      # outside of a compile
'case/forward'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...dumps.errors import UsageError
from ...dumps.ids import compile_name
from ...dumps.schema import STAGES
from .. import torch_private as t

if TYPE_CHECKING:
    from torch import fx


class Label(NamedTuple):
    """`name` is the compile that the graph belongs to, `stage` one of schema.STAGES."""

    name: str
    stage: str

    def __str__(self) -> str:
        return f"{self.name}/{self.stage}"


def compile_id() -> str | None:
    """torch's id of the compile in progress on this thread, with its attempt ("0/0_1"); None outside one."""
    current = t.CompileContext.current_trace_id()
    return None if current is None else str(current)


def aot_graph_name() -> tuple[int, str] | None:
    """(number, "forward" | "backward" | "inference" | "joint") of the graph that AOTAutograd compiles now; None outside
    of it.

    `functorch.compile.get_aot_graph_name` is public and gives the same as one text ("model__0_forward_3").
    """
    parts = t.get_aot_graph_name().rsplit("__", 1)[-1].split("_")
    if len(parts) == 3 and parts[0].isdigit():
        return int(parts[0]), parts[1]
    return None


def label(fx_g: fx.GraphModule, stage: str | None = None) -> Label:
    """The name of the graph that is being compiled on this thread; `stage` is what the caller knows better."""
    number = aot_graph_name()
    stage = stage or (number[1] if number is not None and number[1] in STAGES else stage_of(fx_g))
    if (known := compile_id()) is not None:
        try:
            return Label(compile_name(known), stage)
        except UsageError:  # an id that another torch writes
            pass
    return Label(f"x{number[0]}_0" if number is not None else "case", stage)


def stage_of(fx_g: fx.GraphModule) -> str:
    """The stage by the look of the graph: AOTAutograd names tangents, and registered ops alone are behind Dynamo."""
    names = [node.name for node in fx_g.graph.nodes if node.op == "placeholder"]
    if any(name.startswith("tangents_") for name in names):
        saved = any(not name.startswith(("primals_", "tangents_")) for name in names)
        outputs = fx_g.graph.output_node().args[0]
        one_part = not (isinstance(outputs, (list, tuple)) and any(isinstance(part, (list, tuple)) for part in outputs))
        return "backward" if saved or one_part else "joint"
    if any(node.op in ("call_method", "call_module") for node in fx_g.graph.nodes):
        return "dynamo"
    return "forward" if any(name.startswith("primals_") for name in names) else "inference"
