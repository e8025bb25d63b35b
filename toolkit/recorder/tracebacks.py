"""A user's exception shows the user's frames and torch's, not the recorder's.

Only the copy that is printed at the end of the program is trimmed; the exception object is passed on as it is to whoever set
sys.excepthook before.

>>> install(); 1 / 0
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_HERE = str(Path(__file__).resolve().parent)


def install(told: Callable[[BaseException], None] | None = None) -> None:
    """Puts the trimming in front of the present sys.excepthook, and `told`, which must not raise; once."""
    if getattr(sys.excepthook, "_graphdbg", False):
        return
    previous = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if told is not None:
            told(error)
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
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = trimmed(one.__traceback__)
        if kept is not None:
            one.__traceback__ = kept
        waiting += [one.__cause__, one.__context__]
