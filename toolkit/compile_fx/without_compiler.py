"""Code generation on a machine without a C++ compiler.

Inductor asks the compiler which vector instructions it can build before it writes a kernel, and fails when there is none. A
compile that stops before anything is built needs no answer: it takes what the processor has, as a compiler of today would say.

>>> with answered("codegen"): ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .stage import order


@contextlib.contextmanager
def answered(until: str | None) -> Iterator[None]:
    """For a compile that stops after `until`: torch's question is answered by yes where no compiler can, and none is needed.

    Torch keeps the answer for the life of the process; nothing can be built in it anyway.
    """
    if until is None or order(until) >= order("load") or _has_compiler():
        yield
        return
    from . import _torch as t

    units: Any = t.VecISA
    asked, units.check_build = units.check_build, _yes
    try:
        yield
    finally:
        units.check_build = asked


def _yes(units: Any, code: str) -> bool:
    return True


def _has_compiler() -> bool:
    from . import _torch as t

    try:
        t.get_cpp_compiler()
    except RuntimeError:  # InvalidCxxCompiler
        return False
    return True
