"""Compiled autograd: the whole backward of an ordinary `loss.backward()` as one graph.

Torch's own AutogradCompilerInstance captures; this package adds the contexts, the passes that can be observed and left
out (`passes.PASSES`), and the tape that records what really ran. Importing this package imports no torch.

>>> from graphdbg.toolkit.capture.compiled_autograd.capturer import capturing
>>> with capturing() as captures:
...     model(x).sum().backward()
>>> len(captures)
1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dumps import late

if TYPE_CHECKING:
    from .capturer import Backward, capturing, disable, enable, reset
    from .passes import PASSES

__all__ = ["PASSES", "Backward", "capturing", "disable", "enable", "reset"]

__getattr__ = late(__name__, dict.fromkeys(__all__, "capturer") | {"PASSES": "passes"})
