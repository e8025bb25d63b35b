"""The C++ compiler that Inductor would use; no public call tells which one that is.

>>> has_cpp_compiler()
True
"""

from __future__ import annotations

import shutil

from . import torch_private as t


def cpp_compiler() -> str | None:
    """Its path, None when there is none."""
    try:
        return shutil.which(t.get_cpp_compiler())
    except RuntimeError:  # torch's InvalidCxxCompiler, whose home has moved between versions
        return None


def has_cpp_compiler() -> bool:
    """Whether Inductor can compile for the CPU at all."""
    return cpp_compiler() is not None


def compiler_version() -> str:
    """Its version text, which is part of what Inductor's probes depend on."""
    return t.get_compiler_version_info(t.get_cpp_compiler())
