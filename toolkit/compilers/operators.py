"""What the debug compilers ask of an operator and of a tensor's storage.

>>> [op_name(node) for node in gm.graph.nodes if node.op == "call_function"][:2]
['aten.permute.default', 'aten.addmm.default']
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ...dumps.torchside.values import storage_key
from .. import torch_private as t


def op_name(node: fx.Node) -> str:
    """An operator as its namespace writes it (aten.sin.default); of anything else the qualified name."""
    if node.op != "call_function":
        return str(node.target)
    if isinstance(node.target, (t.OpOverload, t.OpOverloadPacket)):
        return str(node.target)
    if isinstance(node.target, t.HigherOrderOperator):
        return f"higher_order.{node.target.name()}"
    return f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__qualname__', node.target)}".lstrip("._")


def first_line(error: BaseException | None) -> str:
    """The first line of an error that says something; its type where none does."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def arguments_of(op: Any) -> list[tuple[str, bool]]:
    """(name, whether it is written to) of each argument of an operator."""
    return [(one.name, one.alias_info is not None and one.alias_info.is_write) for one in op._schema.arguments]


def storage_size(value: torch.Tensor) -> tuple[int, int]:
    """(identity, bytes) of a tensor's storage.

    A symbolic number counts as what it was when it was traced, one that only the data will tell as 0.
    """
    storage = value.untyped_storage()
    size: Any = storage.nbytes()
    if isinstance(size, torch.SymInt):
        size = size.node.hint if size.node.has_hint() else 0
    return storage_key(value), int(size)
