"""`nop` returns the graph untouched: what torch traced, run by the Python code that fx generates, with no compiler
behind it.

If eager is right and `nop` is wrong, tracing is to blame; if `nop` is right and Inductor is wrong, Inductor is.

>>> aot_function(lambda x: x.sin().cos(), fw_compiler=nop)(torch.zeros(3))
tensor([1., 1., 1.])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .boxed import boxed

if TYPE_CHECKING:
    from torch import fx


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
