"""Compiled autograd: the whole backward of an ordinary `loss.backward()` as one graph.

Torch's own AutogradCompilerInstance captures; ours are the contexts, the passes that can be seen and left out
(`passes.PASSES`), and the tape that writes what really ran. Importing this package imports no torch.

>>> from graphdbg.toolkit.capture.compiled_autograd.capturer import capturing
>>> with capturing() as captures:
...     model(x).sum().backward()
>>> len(captures)
1
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .capturer import Backward, capturing, disable, enable, reset
    from .passes import PASSES

_HOMES = {
    "enable": "capturer",
    "disable": "capturer",
    "reset": "capturer",
    "capturing": "capturer",
    "Backward": "capturer",
    "PASSES": "passes",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["PASSES", "Backward", "capturing", "disable", "enable", "reset"]
