"""`simple_ts_compile`: scripted and frozen, no more; `nnc_jit`: a function compiled through it on its first call.

Between `nop` and `ts_compile`: when only `ts_compile` is wrong, its passes are to blame. The caller's graph stays as it is.

>>> nnc_jit(lambda x: x.sin().cos())(torch.ones(3))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import torch_private as t
from .boxed import boxed
from .torchscript import returning, script

if TYPE_CHECKING:
    from torch import fx


@boxed
def simple_ts_compile(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Any:
    """Compiles with TorchScript and no optimisation but freezing. Raises UnscriptableError (a GraphdbgError)."""
    return returning(fx_g, script(fx_g, inps))


def nnc_jit(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced on its first call and run by TorchScript, forward and backward; returns the same values."""
    return t.aot_function(f, simple_ts_compile)
