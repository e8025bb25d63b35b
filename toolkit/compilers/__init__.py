"""Debug compilers in functorch's calling convention: called with `(fx_g, inps)`, they return a callable that takes one
list.

Each works as a function, in `functorch.compile.aot_function` and `aot_module`, and as
`torch.compile(backend="graphdbg_...")` (see `backends`). Torch is imported when a name is first asked for.

For example:

    from graphdbg.toolkit.compilers import nop
    compiled = torch.compile(model, backend="graphdbg_ts")
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...dumps import late

_HOME = {
    "default_decompositions": "ts_compile",
    "draw_graph_compile": "showing",
    "graph_dumper_aot": "graph_dumper",
    "lazy_compile": "lazy",
    "memory_efficient_fusion": "ts_compile",
    "nnc_jit": "ts_compile",
    "nop": "boxed",
    "print_compile": "showing",
    "simple_ts_compile": "ts_compile",
}
"""Compiler -> the module that it is in, where that has another name."""

__all__ = [
    "debug_compile",
    "debug_nop",
    "default_decompositions",
    "draw_graph_compile",
    "get_inputs",
    "graph_dumper_aot",
    "lazy_compile",
    "memory_efficient_fusion",
    "nnc_jit",
    "nop",
    "print_compile",
    "simple_ts_compile",
    "ts_compile",
]

if TYPE_CHECKING:
    from .boxed import nop
    from .debug_compile import debug_compile
    from .debug_nop import debug_nop
    from .get_inputs import get_inputs
    from .graph_dumper import graph_dumper_aot
    from .lazy import lazy_compile
    from .showing import draw_graph_compile, print_compile
    from .ts_compile import default_decompositions, memory_efficient_fusion, nnc_jit, simple_ts_compile, ts_compile


class _CompilersModule(ModuleType):
    """Importing a submodule binds its name here; where the compiler has the same name, the name stays the
    compiler's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _CompilersModule


__getattr__ = late(__name__, {name: _HOME.get(name, name) for name in __all__})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
