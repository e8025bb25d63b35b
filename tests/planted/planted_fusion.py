"""Imported, plants wrong code for fused nodes alone: tanh is 2 per cent too large in a kernel made from several of
them."""

from typing import Any

from torch._inductor.codegen import cpp

_fused = False
_right = cpp.CppKernelProxy.codegen_nodes


def codegen_nodes(self: Any, nodes: list[Any]) -> None:
    """What it was; says meanwhile whether there is more than one node."""
    global _fused
    _fused = len(nodes) > 1
    try:
        _right(self, nodes)
    finally:
        _fused = False


def _scalar(x: Any, right: Any = cpp.CppOverrides.tanh) -> str:
    return f"({right(x)} * 1.02f)" if _fused else right(x)


def _vector(x: Any, right: Any = cpp.CppVecOverrides.tanh) -> str:
    return f"({right(x)} * decltype({x})(1.02f))" if _fused else right(x)


cpp.CppKernelProxy.codegen_nodes = codegen_nodes
cpp.CppOverrides.tanh, cpp.CppVecOverrides.tanh = staticmethod(_scalar), staticmethod(_vector)
