"""Code generation on a machine without a C++ compiler.

Inductor asks the compiler which vector instructions it can build before it writes a kernel, and fails when there is none. A
compile that stops before anything is built needs no answer: it takes what the processor has, as a compiler of today would say.

>>> with t.config.patch(settings("codegen")): ...
"""

from __future__ import annotations

from typing import Any

from .stage import order


def settings(until: str | None) -> dict[str, Any]:
    """Inductor's settings for a compile that stops after `until`: none where it goes on to load, or a compiler is there."""
    if until is None or order(until) >= order("load") or _has_compiler():
        return {}
    return {"cpp.vec_isa_ok": True}


def _has_compiler() -> bool:
    from . import _torch as t

    try:
        t.get_cpp_compiler()
    except RuntimeError:  # InvalidCxxCompiler
        return False
    return True
