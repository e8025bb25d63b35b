"""Imported, plants a fault of fx in constants alone: where it writes a graph as Python, each constant counts double."""

import re
from typing import Any

from torch.fx import graph_module

_right = graph_module._forward_from_src


def _wrong(source: str, *args: Any, **kwargs: Any) -> Any:
    return _right(re.sub(r"= (self\._tensor_constant\d+);?", r"= \1 * 2;", source), *args, **kwargs)


graph_module._forward_from_src = _wrong
