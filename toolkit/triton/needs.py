"""What this room needs that torch does not always bring: Triton, and NumPy for its interpreter. Imports neither torch
nor them.

>>> lacks_interpreter()         # None: kernels can be interpreted here
"""

from __future__ import annotations

from ...dumps.errors import PackageMissingError

_TRITON = "pip install 'graphdbg[triton]' (Linux; it brings a compiler for NVIDIA GPUs, and needs none)"
_NUMPY = "pip install 'graphdbg[triton]', or numpy alone"


def lacks_triton() -> str | None:
    """Why kernels of Triton cannot be written here, or None."""
    try:
        import triton
    except ImportError as error:
        return f"Triton is not installed ({error}): {_TRITON}"
    if not hasattr(triton, "__version__"):
        return f"the package triton here is empty: {_TRITON}"
    return None


def lacks_interpreter() -> str | None:
    """Why kernels of Triton cannot be interpreted here, or None."""
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        return lacks_triton() or f"Triton's interpreter computes with NumPy, which is not installed ({error}): {_NUMPY}"
    return lacks_triton()


def require_triton() -> None:
    """Raises EnvironmentLackError where Triton is missing."""
    if lacks_triton():
        raise PackageMissingError("Triton is not installed", "graphdbg compiles and runs GPU kernels with it", _TRITON)


def require_interpreter() -> None:
    """Raises EnvironmentLackError where Triton or NumPy is missing."""
    require_triton()
    if lacks_interpreter():
        raise PackageMissingError("NumPy is not installed", "Triton's interpreter needs it", _NUMPY)
