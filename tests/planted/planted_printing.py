"""Imported, plants a fault of fx: where it writes a graph as Python, silu becomes tanh."""

from typing import Any

from torch.fx import graph_module

_right = graph_module._forward_from_src


def _wrong(source: str, *args: Any, **kwargs: Any) -> Any:
    return _right(source.replace("torch.ops.aten.silu.default(", "torch.ops.aten.tanh.default("), *args, **kwargs)


graph_module._forward_from_src = _wrong
