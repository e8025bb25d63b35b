"""What the debug compilers share: functorch's boxed convention, the name of a graph while it is compiled, and `nop`,
the compiler that adds nothing to these.

A compiled graph takes one list of flat inputs and says so with `_boxed_call`. The list is left as it is, so that a
debugging session can call the same graph again with the same list. Separate arguments are taken too, as Dynamo gives
them to a compiler that is its backend with no AOTAutograd between.

A graph is called `0_0/forward`, the id under which a recording of the same program has it. Without torch.compile the
number of AOTAutograd's own stands in the place of the compile id (`x3_0/backward`); a compiler that is called by hand
has only a guess at the stage. A graph of unknown origin gets a name too.

`nop` is what torch traced, run by the Python code that fx generates. If eager is right and `nop` is wrong, tracing is
to blame; if `nop` is right and Inductor is wrong, Inductor is.

>>> aot_function(lambda x: x.sin().cos(), fw_compiler=nop)(torch.zeros(3))
tensor([1., 1., 1.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dumps.errors import ExistsAlreadyError, UsageError
from ...dumps.ids import compile_name
from ...dumps.schema import STAGES
from .. import torch_private as t
from ..live.torch_state import compile_id

if TYPE_CHECKING:
    from torch import fx

Compiler = Callable[[Any, Sequence[Any]], Callable[..., Any]]
"""What AOTAutograd calls: `(fx_g, inps)` -> a boxed callable."""


def boxed_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that takes one list and calls `function(*list)`; no graph has a list among its flat inputs."""

    def call(*args: Any) -> Any:
        return function(*args[0]) if len(args) == 1 and isinstance(args[0], list) else function(*args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def boxed(compiler: Compiler) -> Compiler:
    """Makes a compiler whose result takes separate arguments into one whose result takes one list."""
    return functools.wraps(compiler)(lambda fx_g, inps: boxed_call(compiler(fx_g, inps)))


def through_aot(arguments: Mapping[str, Any], gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a Dynamo graph through AOTAutograd; `arrives`, one of the arguments, is called with it before.

    `torch._dynamo.backends.common.aot_autograd` is what the documentation of custom backends names;
    `functorch.compile.aot_module_simplified` does not keep Dynamo from tracing the result.
    """
    given = dict(arguments)
    given.pop("arrives", lambda _: None)(gm)
    return t.aot_autograd(**given)(gm, list(example_inputs))


def by_stage(make: Callable[[str], Any]) -> dict[str, Any]:
    """AOTAutograd's arguments for a compiler of each stage."""
    stages = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "inference"}
    return {name: make(stage) for name, stage in stages.items()}


class Label(NamedTuple):
    """`name` is the compile that the graph belongs to, `stage` one of schema.STAGES."""

    name: str
    stage: str

    def __str__(self) -> str:
        return f"{self.name}/{self.stage}"


def aot_graph_name() -> tuple[int, str] | None:
    """(number, "forward" | "backward" | "inference" | "joint") of the graph that AOTAutograd compiles now; None outside
    of it.

    `functorch.compile.get_aot_graph_name` is public and gives the same as one text ("model__0_forward_3").
    """
    parts = t.get_aot_graph_name().rsplit("__", 1)[-1].split("_")
    return (int(parts[0]), parts[1]) if len(parts) == 3 and parts[0].isdigit() else None


def label(fx_g: fx.GraphModule, stage: str | None = None) -> Label:
    """The name of the graph that is being compiled on this thread; `stage` is what the caller knows better."""
    number = aot_graph_name()
    stage = stage or (number[1] if number is not None and number[1] in STAGES else stage_of(fx_g))
    if (known := compile_id()) is not None:
        with suppress(UsageError):  # an id that another torch writes
            return Label(compile_name(known), stage)
    return Label(f"x{number[0]}_0" if number is not None else "case", stage)


def stage_of(fx_g: fx.GraphModule) -> str:
    """Guesses the stage from the graph: AOTAutograd names tangents, and only Dynamo's graphs call methods or
    modules."""
    names = [node.name for node in fx_g.graph.nodes if node.op == "placeholder"]
    if any(name.startswith("tangents_") for name in names):
        saved = any(not name.startswith(("primals_", "tangents_")) for name in names)
        outputs = fx_g.graph.output_node().args[0]
        one_part = not (isinstance(outputs, (list, tuple)) and any(isinstance(part, (list, tuple)) for part in outputs))
        return "backward" if saved or one_part else "joint"
    if any(node.op in ("call_method", "call_module") for node in fx_g.graph.nodes):
        return "dynamo"
    return "forward" if any(name.startswith("primals_") for name in names) else "inference"


def numbered(stem: Path, suffix: str) -> Iterator[Path]:
    """The names that a file may take, first to last: `stem` with the suffix, then `stem.1`, `stem.2`, ..."""
    for number in count():
        yield stem.with_name(f"{stem.name}{f'.{number}' if number else ''}{suffix}")


def taken(what: str) -> ExistsAlreadyError:
    """The error for a folder that exists already."""
    return ExistsAlreadyError(what, "it is there already", "choose another name or delete it")


@boxed
def nop(fx_g: fx.GraphModule, inps: Sequence[Any]) -> fx.GraphModule:
    """Returns the graph itself, boxed: it takes one list. The example inputs are not looked at.

    >>> nop(gm, inputs)(inputs)[0].shape
    torch.Size([2, 4])
    """
    return fx_g


def nop_arguments() -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_nop`."""
    return {"fw_compiler": nop}
