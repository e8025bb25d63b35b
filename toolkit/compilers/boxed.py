"""functorch's boxed convention: a compiled graph takes one list of flat inputs and says so with `_boxed_call`.

The list is left as it is, so that a debugging session can call the same graph again with the same list. Separate
arguments are taken too, as Dynamo gives them to a compiler that is its backend with no AOTAutograd between.

>>> @boxed
... def nop(fx_g, inps):
...     return fx_g
>>> nop(lambda a, b: a + b, [])([1, 2])
3
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .. import torch_private as t

Compiler = Callable[[Any, Sequence[Any]], Callable[[list[Any]], Any]]
"""What AOTAutograd calls: `(fx_g, inps)` -> a boxed callable."""


class BoxedCallable(Protocol):
    """A compiled graph. `__wrapped__` is what it calls: the graph module, the scripted module."""

    __wrapped__: Any

    def __call__(self, *args: Any) -> Any: ...


def boxed_call(function: Callable[..., Any]) -> BoxedCallable:
    """A callable that takes one list and calls `function(*list)`; no graph has a list among its flat inputs."""

    def call(*args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], list):
            return function(*args[0])
        return function(*args)

    boxed: Any = call
    boxed._boxed_call = True
    boxed.__wrapped__ = function
    return boxed


def boxed(compiler: Callable[..., Callable[..., Any]]) -> Callable[[Any, Sequence[Any]], BoxedCallable]:
    """Makes a compiler whose result takes separate arguments into one whose result takes one list."""

    @functools.wraps(compiler)
    def boxing(fx_g: Any, inps: Sequence[Any]) -> BoxedCallable:
        return boxed_call(compiler(fx_g, inps))

    return boxing


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
