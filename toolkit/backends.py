"""The compilers as backends of torch.compile: one table, one way through AOTAutograd.

To add one: a row of `BACKENDS`, and in its module a function of the options that returns what AOTAutograd is given
(`fw_compiler`, and where they differ `bw_compiler`, `inference_compiler`, `partition_fn`, `decompositions`; `arrives`
is called with each Dynamo graph before). The names are entry points of the group `torch_dynamo_backends`
(pyproject.toml). Must not import torch or a compiler before it is used.

For example: `torch.compile(model, backend="graphdbg_print", options={"file": "graphs.txt"})`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..dumps.errors import UnknownWordError
from .compilers.boxed import through_aot

BACKENDS = {
    "graphdbg_nop": "boxed:nop_arguments",
    "graphdbg_debug_nop": "debug_nop:debug_nop_arguments",
    "graphdbg_print": "showing:print_arguments",
    "graphdbg_draw": "showing:draw_arguments",
    "graphdbg_dump": "graph_dumper:dump_arguments",
    "graphdbg_ts": "ts_compile:ts_arguments",
    "graphdbg_lazy": "lazy:lazy_arguments",
}
"""Backend -> the module of `compilers`, and the function there that makes AOTAutograd's arguments of its options."""


def graphdbg_triton(
    gm: Any, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Inductor through our own compile path (`toolkit/compile_fx/`): the same code as backend "inductor", every stage
    visible.

    `options` are Inductor's configuration, as for `torch.compile(options=...)`, and `mode` its modes; two more options
    are ours: `skip`, names of stages, and `observers`. Raises UsageError for an option that neither knows.
    """
    from .compile_fx.entering import compile_graph

    return compile_graph(gm, example_inputs, options, mode)


class Backend:
    """A backend of torch.compile, made of one compiler: `options` of torch.compile are the compiler's own."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<backend {self.__name__}>"

    def __call__(
        self, gm: Any, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
    ) -> Callable[..., Any]:
        """Compiles one Dynamo graph. Raises UsageError for a mode, or an option that the compiler does not have."""
        if mode is not None:
            raise UnknownWordError(
                f"the backend {self.__name__} has no modes", f"mode={mode!r} was given", "leave mode out"
            )
        return through_aot(self.arguments(options or {}), gm, example_inputs)

    def arguments(self, options: dict[str, Any]) -> dict[str, Any]:
        """What AOTAutograd is given under these options."""
        module, _, function = BACKENDS[self.__name__].partition(":")
        make = getattr(import_module(f".compilers.{module}", __package__), function)
        known = list(inspect.signature(make).parameters)
        unknown = sorted(set(options) - set(known))
        if unknown:
            fix = f"it has {', '.join(known)}" if known else "it has none"
            raise UnknownWordError(f"the backend {self.__name__} has no option {', '.join(map(repr, unknown))}", fix)
        return make(**options)


graphdbg_nop = Backend("graphdbg_nop")
graphdbg_debug_nop = Backend("graphdbg_debug_nop")
graphdbg_print = Backend("graphdbg_print")
graphdbg_draw = Backend("graphdbg_draw")
graphdbg_dump = Backend("graphdbg_dump")
graphdbg_ts = Backend("graphdbg_ts")
graphdbg_lazy = Backend("graphdbg_lazy")
