"""`debug_nop` runs the graph unchanged and checks every value against the metadata it was traced with.

Size, dtype, significant strides, storage offset, device, aliasing and mutation, forward and backward, static and
dynamic shapes. A run that finds something goes to its end, then raises MetadataMismatch, which lists every origin.
Inside `collecting()` nothing raises: results come as usual and the findings of all graphs are gathered.

For example:

    torch.compile(model, backend="graphdbg_debug_nop")(x)          # raises MetadataMismatch
    with collecting() as findings:
        model_compiled(x).sum().backward()
    [finding.node for finding in findings if finding.origin]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from ..debug_nop.checking import Checked, checked, collecting
from ..verdicts.mismatches import MetadataMismatch, NodeMismatch
from .boxed import label

__all__ = ["Checked", "MetadataMismatch", "NodeMismatch", "checked", "collecting", "debug_nop"]


def debug_nop(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Checked:
    """The graph as a boxed callable that raises MetadataMismatch after a run with a mismatch. `inps` are not looked at.

    >>> debug_nop(gm, inputs)(inputs)[0].shape
    torch.Size([2, 4])
    """
    return Checked(fx_g, raises=True, where=str(label(fx_g)))


def quiet(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Checked:
    """As `debug_nop`, but never raises: the findings are in `.findings` of the callable, and in `collecting()`."""
    return Checked(fx_g, raises=False, where=str(label(fx_g)))


debug_nop.checked = checked  # type: ignore[attr-defined]
debug_nop.collecting = collecting  # type: ignore[attr-defined]


def debug_nop_arguments(raises: bool = True) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_debug_nop`; with `raises` false the findings are for `collecting()`
    only."""
    compiler: Callable[..., Checked] = debug_nop if raises else quiet
    return {"fw_compiler": compiler}
