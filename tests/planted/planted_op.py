"""Imported, plants one wrong lowering out of several kinds; PLANTED_KIND names it, PLANTED_NODE the node where it needs
one.

argmax: the node's argmax is an argmin. slice: the node's slice begins one element late. var: the node's variance is
divided by n - 1. shape: a multiplication of last dimension 24 is 3 per cent too large. constant: adding 0.625 adds
0.65. vector: the vectorised exp of its argument's 0.99, the scalar one is right. fused: a product is 4 per cent too
large where it is compiled into one expression with the sigmoid of the node. nan: the node's square root is of its
argument less 5. raise: lowering the node's relu fails. segfault: it kills the process.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.codegen import cpp
from torch._inductor.ir import StorageBox, TensorBox
from torch._inductor.lowering import lowerings, sub
from torch._inductor.virtualized import V

aten = torch.ops.aten
KIND, NODE = os.environ["PLANTED_KIND"], os.environ.get("PLANTED_NODE", "")


def _here() -> bool:
    node = getattr(V.graph, "current_node", None)
    return node is not None and node.name == NODE


def _argmax(right: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return lowerings[aten.argmin.default](*args, **kwargs) if _here() else right(*args, **kwargs)


def _slice(right: Callable[..., Any], x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if not _here():
        return right(x, dim, start, end, step)
    return right(x, dim, (start or 0) + 1, end + 1, step)


def _var(right: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    return right(x, *args, **(kwargs | {"correction": 1} if _here() else kwargs))


def _shape(right: Callable[..., Any], a: Any, b: Any) -> Any:
    value = right(a, b)
    return right(value, 1.03) if int(value.get_size()[-1]) == 24 else value


def _constant(right: Callable[..., Any], a: Any, b: Any, **kwargs: Any) -> Any:
    return right(a, 0.65 if isinstance(b, float) and b == 0.625 else b, **kwargs)


def _fused(right: Callable[..., Any], a: Any, b: Any) -> Any:
    value = right(a, b)
    for given in (a, b):
        inside = given.data.data if isinstance(given, TensorBox) and isinstance(given.data, StorageBox) else None
        names = {node.name for node in getattr(inside, "origins", ())}
        if NODE in names and type(inside).__name__ == "Pointwise":  # not in memory yet: becomes part of this expression
            return right(value, 1.04)
    return value


def _nan(right: Callable[..., Any], x: Any) -> Any:
    return right(sub(x, 5.0)) if _here() else right(x)


def _raise(right: Callable[..., Any], x: Any) -> Any:
    if _here():
        raise AssertionError("planted")
    return right(x)


def _segfault(right: Callable[..., Any], x: Any) -> Any:
    if _here():
        os.kill(os.getpid(), signal.SIGSEGV)
    return right(x)


_PATCHES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "argmax": (aten.argmax.default, _argmax),
    "slice": (aten.slice.Tensor, _slice),
    "var": (aten.var_mean.correction, _var),
    "shape": (aten.mul.Tensor, _shape),
    "constant": (aten.add.Tensor, _constant),
    "fused": (aten.mul.Tensor, _fused),
    "raise": (aten.relu.default, _raise),
    "segfault": (aten.relu.default, _segfault),
    "nan": (aten.sqrt.default, _nan),
}

if KIND == "vector":
    cpp.CppVecOverrides.exp = staticmethod(
        lambda x, _right=cpp.CppVecOverrides.exp: _right(f"({x} * decltype({x})(0.99))")
    )
else:
    _op, _wrong = _PATCHES[KIND]
    lowerings[_op] = lambda *args, _right=lowerings[_op], **kwargs: _wrong(_right, *args, **kwargs)
