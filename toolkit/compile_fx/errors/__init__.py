"""Errors of the compile path, told: what failed, why, what to do, in which kernel, for which nodes, at which line.

`explain` looks at an exception of torch's; `told` does so for a failing stage and leaves the account on the exception, whose
type, text, cause and traceback stay torch's own. One module for each family. Must not import torch before there is an error.

>>> told(error, work, "load").kind
'C++ compile error'
"""

from __future__ import annotations

from .attached import ATTRIBUTE, carried, told
from .explain import explain
from .explained import Explained, NodeAt

__all__ = ["ATTRIBUTE", "Explained", "NodeAt", "carried", "explain", "told"]
