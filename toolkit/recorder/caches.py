"""Compiler caches off, inside the compiler calls only: a warm cache skips the compiler and with it the graphs.

Settings are those of the calling thread (torch keeps them per thread), and are back when the call ends.

>>> with bypassed(session):
...     original(gm)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ..torch_private import loaded
from .live_torch import CACHE_SWITCHES

if TYPE_CHECKING:
    from .session import Session


@contextmanager
def bypassed(session: Session) -> Iterator[None]:
    """Switches the caches that hide graphs off for the block, unless the session keeps them."""
    with ExitStack() as stack:
        if not session.options.keep_cache:
            for room, names in CACHE_SWITCHES.items():
                module = loaded(f"{room}_config")
                present = [name for name in names if module is not None and hasattr(module, name)]
                if module is not None and any(getattr(module, name) for name in present):
                    session.caches_were_on = True
                    stack.enter_context(module.patch(dict.fromkeys(present, False)))
        yield
