"""How a process leaves: a child of multiprocessing ends without `atexit`, and an exception that ends the program is worth a line.

Must not catch a signal, and must not change how the process ends or what it prints.

>>> close_with_child(session.uncaught, session.close)
"""

from __future__ import annotations

import sys
from collections.abc import Callable

_LAST = -(10**6)
_MOST = 2000


def close_with_child(told: Callable[[BaseException], None], close: Callable[[], None]) -> None:
    """In a child that multiprocessing forked, which leaves by os._exit, calls `close` at its end, after all other finalizers,
    and before it `told` with the exception that ends it, if there is one."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None or "--multiprocessing-fork" in sys.orig_argv:
        return  # not such a child; or a spawned one, which runs atexit

    def end() -> None:
        error = sys.exc_info()[1]  # finalizers run while it is on its way out
        if error is not None and not isinstance(error, SystemExit):
            told(error)
        close()

    util.Finalize(None, end, exitpriority=_LAST)


def sentence(error: BaseException) -> str:
    """The exception as its last line would be printed: "ValueError: too many values"."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception whose text raises is the user's, who sees it anyway
        text = ""
    return f"{name}: {text[:_MOST]}" if text else name
