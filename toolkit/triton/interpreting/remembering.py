# pyright: basic
"""Triton's types and shapes made once instead of for each value: most of the time of an interpreted kernel went there.

Same classes, same attributes; the constructors remember what they made for one element type and shape. Read on Triton 3.6.0.

>>> remember(scope)   # put back with the scope
"""

from __future__ import annotations

import math
from typing import Any

import triton.language as tl

from ._triton import interpreter, numpy_type

core: Any = tl.core
_Block, _Tuple, _Constant = core.block_type, core.tuple, core.constexpr
_usual_block, _usual_equal = _Block.__init__, _Tuple.__eq__
_types: dict[Any, dict[str, Any]] = {}
_shapes: dict[Any, tuple[Any, Any]] = {}


def remember(scope: Any) -> None:
    """Replaces the constructors until the scope is restored."""
    scope.set_attr(_Block, "__init__", _block)
    scope.set_attr(core.tensor, "__init__", _tensor)
    scope.set_attr(_Tuple, "__eq__", _equal)
    scope.set_attr(interpreter, "_get_np_dtype", numpy_type)


def _block(self: Any, element_ty: Any, shape: Any) -> None:
    sizes = tuple(one.value if isinstance(one, _Constant) else one for one in shape)
    key = element_ty.__class__, element_ty.name, getattr(element_ty, "address_space", 1), sizes
    known = _types.get(key)
    if known is None:
        _usual_block(self, element_ty, shape)
        known = _types[key] = dict(vars(self))
    else:
        vars(self).update(known)


def _tensor(self: Any, handle: Any, type: Any) -> None:
    sizes = tuple(type.shape.values) if type.is_block() else ()
    known = _shapes.get(sizes)
    if known is None:
        known = _shapes[sizes] = _Tuple([_Constant(one) for one in sizes]), _Constant(math.prod(sizes))
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = known


def _equal(self: Any, other: Any) -> Any:
    if other is self:
        return _Constant(True)
    return _Constant(self.values == other.values) if isinstance(other, _Tuple) else _usual_equal(self, other)
