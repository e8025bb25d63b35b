# pyright: basic
"""The interpreter's own names inside Triton, none of them public. Read on Triton 3.6 to 3.9; a missing one is reported
by a sentence.

Importing this module imports Triton.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dumps.errors import PackageMissingError

try:
    import triton.experimental.gluon  # noqa: F401  it checks for compiled functions when it is first imported, later
    from triton._C.libtriton import ir
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder as InterpreterBuilder
    from triton.runtime.jit import JITFunction as JITFunction
    from triton.runtime.jit import mangle_type

    Handle = interpreter.TensorHandle
except (ImportError, AttributeError) as error:
    raise PackageMissingError(
        "graphdbg does not know the interpreter of this version of Triton", str(error), "pip install 'graphdbg[triton]'"
    ) from error

ROUND_TO_ZERO = ir.ROUNDING_MODE.RTZ
_ATOMICS = {
    getattr(ir.ATOMIC_OP, name): name.lower()
    for name in ("ADD", "FADD", "MIN", "UMIN", "MAX", "UMAX", "AND", "OR", "XOR", "XCHG")
}


_usual_numpy_type = interpreter._get_np_dtype
_numpy_types: dict[Any, np.dtype] = {}


def atomic_name(operation: Any) -> str:
    """The name of an atomic operation: `add`, `fadd`, `umax`, ..."""
    return _ATOMICS[operation]


def numpy_type(kind: Any) -> np.dtype:
    """NumPy's dtype for a Triton type; that of its bits where NumPy lacks the type."""
    key = kind.__class__, kind.name
    known = _numpy_types.get(key)
    if known is None:
        known = _numpy_types[key] = _usual_numpy_type(kind)
    return known


type_of = mangle_type
"""Triton's name for the type of a launch argument: "*fp32", "i32", "fp32"."""
implicit = interpreter._implicit_cvt
"""Converts a launch argument that is no tensor as the interpreter does."""
