"""The metadata checker: a graph's values against what they were traced as, with the checks in the graph's own generated code.

plan (what each value must be) -> generate (a module with a comparison after each line) -> running (what a comparison that
fails means) -> blame (whose fault: the op alone decides) -> findings (folded under their origins) -> report. Must not
import torch before a name is asked for.

>>> from graphdbg.toolkit.debug_nop import checked
>>> run = checked(fx_g, inps); outputs = run([x, y]); print(run.report())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checking import Checked, checked
    from .findings import Finding, MetadataMismatch

_HOME = {"Checked": "checking", "checked": "checking", "Finding": "findings", "MetadataMismatch": "findings"}

__all__ = ["Checked", "Finding", "MetadataMismatch", "checked"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
