"""Hides graphdbg's own code from Dynamo: functions that torch or the program calls while a compiled function runs.

After a graph break Dynamo stays active in everything that is called until the frame continues: it compiles a backward's
hooks, and would compile the recorder. Inside an `unseen` function Dynamo is off for this thread, and the function's
frame is skipped; functions of torch or the program are called through `seen`, as if nothing were in between. Calls no
Python before Dynamo is off.

>>> @unseen
... def ours(*args):
...     return seen(theirs, *args)
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import torch_private as t

Function = Callable[..., Any]

_OUTSIDE = object()


class _CallbackState(threading.local):
    callback: Any = _OUTSIDE
    """Dynamo's callback on this thread when the recorder's code was entered; `_OUTSIDE` elsewhere."""


_here = _CallbackState()
_set: Function | None = None


def unseen(function: Function, updated: Sequence[str] = functools.WRAPPER_UPDATES) -> Function:
    """Wraps a function so that Dynamo is off while it runs. `updated`: the dictionaries to copy to the wrapper."""

    @functools.wraps(function, updated=updated)
    def ours(*args: Any, **kwargs: Any) -> Any:
        if _set is None or _here.callback is not _OUTSIDE:
            return function(*args, **kwargs)
        _here.callback = _set(None)
        try:
            return function(*args, **kwargs)
        finally:
            callback, _here.callback = _here.callback, _OUTSIDE
            _set(callback)

    passed_over(ours)
    return ours


def seen(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Calls a function of torch or the program with Dynamo as it was outside."""
    callback = _here.callback
    if _set is None or callback is _OUTSIDE:
        return function(*args, **kwargs)
    _here.callback = _OUTSIDE
    _set(callback)
    try:
        return function(*args, **kwargs)
    finally:
        _set(None)
        _here.callback = callback


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside an unseen function: Dynamo stays off for what the block calls by `seen`, too."""
    callback = _here.callback
    _here.callback = None if callback is not _OUTSIDE else callback
    try:
        yield
    finally:
        _here.callback = callback


def at_work() -> bool:
    """Inside an unseen function: whether Dynamo is active outside of it."""
    return _here.callback is not _OUTSIDE and bool(_here.callback)


def passed_over(function: Any) -> None:
    """Makes Dynamo skip the function's frame; functions that it calls are compiled as usual. No-op before torch is
    imported."""
    global _set
    if _set is None:
        _set = t.loaded("set_eval_frame")
    strategy, action, skip = map(t.loaded, ("FrameExecStrategy", "FrameAction", "set_code_exec_strategy"))
    if strategy is not None and action is not None:
        skip(function.__code__, strategy(action.SKIP, action.DEFAULT))
