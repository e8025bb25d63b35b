"""Code generation on a machine without a C++ compiler.

Inductor asks the compiler which vector instructions it can build before it writes a kernel, and fails when there is none. A
compile that stops before anything is built needs no answer: it takes what the processor has, as a compiler of today would say.

>>> with answered("codegen"): ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .hooks import Function, Hooks, Replacement
from .stage import order


@contextlib.contextmanager
def answered(until: str | None) -> Iterator[None]:
    """For a compile that stops after `until`: torch's question is answered by yes where no compiler can, and none is needed.

    Torch keeps the answer for the life of the process; nothing can be built in it anyway.
    """
    if until is None or order(until) >= order("load") or _has_compiler():
        yield
        return
    with _hooks.inside(True):
        yield


def _answered(usual: Function) -> Function:
    return lambda units, code: True if _hooks.here else usual(units, code)


def _question() -> list[Replacement]:
    from . import _torch as t

    return [(t.VecISA, "check_build", _answered)]


_hooks = Hooks(_question)


def _has_compiler() -> bool:
    from . import _torch as t

    try:
        t.get_cpp_compiler()
    except RuntimeError:  # InvalidCxxCompiler
        return False
    return True
