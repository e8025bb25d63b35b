"""Handles the end of a process: a multiprocessing child ends without `atexit`; an exception that ends the program is
journalled, and printed with the frames of the user and of torch but not of the recorder.

Catches no signal, and does not change how the process ends. Only the traceback printed at the end is trimmed; the
exception object is passed on to the previous sys.excepthook.

For example:

    close_with_child(session.uncaught, session.close)
    install(); 1 / 0
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_LAST = -(10**6)
_MOST = 2000
_HERE = str(Path(__file__).resolve().parent)


def close_with_child(report: Callable[[BaseException], None], close: Callable[[], None]) -> None:
    """In a child forked by multiprocessing, which leaves by os._exit: registers `close` to run after all other
    finalizers, and before it `report` with the exception that ends the child, if any."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None or "--multiprocessing-fork" in sys.orig_argv:
        return  # not a multiprocessing child, or a spawned one, which runs atexit

    def end() -> None:
        error = sys.exc_info()[1]  # set: finalizers run while the exception propagates
        if error is not None and not isinstance(error, SystemExit):
            report(error)
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


def install(report: Callable[[BaseException], None] | None = None) -> None:
    """Installs, once, an excepthook before the present one: it calls `report`, which must not raise, and trims the
    traceback."""
    if getattr(sys.excepthook, "_graphdbg", False):
        return
    previous = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if report is not None:
            report(error)
        _trim_chain(error)
        previous(kind, error, error.__traceback__ if trace is not None else None)

    excepthook._graphdbg = True  # type: ignore[attr-defined]
    sys.excepthook = excepthook


def trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without frames of the recorder."""
    kept: list[TracebackType] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_HERE):
            kept.append(trace)
        trace = trace.tb_next
    for first, second in itertools.pairwise(kept):
        first.tb_next = second
    if kept:
        kept[-1].tb_next = None
    return kept[0] if kept else None


def _trim_chain(error: BaseException) -> None:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        kept = trimmed(current.__traceback__)
        if kept is not None:
            current.__traceback__ = kept
        waiting += [current.__cause__, current.__context__]
