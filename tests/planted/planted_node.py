"""Imported, plants a wrong lowering of one node, whatever its operator: what Inductor makes of the node named in
PLANTED_NODE is PLANTED_FACTOR times too large (1.05)."""

import os
from collections.abc import Callable
from typing import Any

from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings, mul
from torch._inductor.virtualized import V

NODE = os.environ["PLANTED_NODE"]
FACTOR = float(os.environ.get("PLANTED_FACTOR", "1.05"))


def _wrong(right: Callable[..., Any]) -> Callable[..., Any]:
    def lowering(*args: Any, **kwargs: Any) -> Any:
        value = right(*args, **kwargs)
        node = getattr(V.graph, "current_node", None)
        if node is not None and node.name == NODE and isinstance(value, TensorBox):
            return mul(value, FACTOR)
        return value

    return lowering


for _op, _right in list(lowerings.items()):
    lowerings[_op] = _wrong(_right)
