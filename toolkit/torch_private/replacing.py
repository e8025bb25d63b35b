"""Replaces attributes of torch temporarily: the only place that changes torch.

If other code has wrapped an attribute meanwhile, its wrapper stays: it calls ours, which then passes through.

For example:

    with replaced(torch.cuda, "current_device", lambda: 0):
        ...
    hooks = Hooks(lambda: [(module, "function", lambda original: lambda *args: hooks.here or original(*args))])
    with hooks.inside("mine"):
        module.function()
    # 'mine'
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Function = Callable[..., Any]
Replacement = tuple[Any, str, Callable[[Function], Function]]
"""(module or class, name in it, original -> ours)."""

_ABSENT = object()


class Replaced:
    """Attributes that stay replaced until `put_back`, which restores the last one first."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Replaces an attribute; a class's static method is restored as a static method."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self._kept.append((owner, name, vars(owner)[name], before))

    def has(self, owner: Any, name: str) -> bool:
        """Whether an attribute is replaced here."""
        return any(kept[0] is owner and kept[1] == name for kept in self._kept)

    def put_back(self) -> None:
        """Restores every attribute, or deletes it where there was none."""
        while self._kept:
            owner, name, ours, before = self._kept.pop()
            if callable(ours) and vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def replaced(owner: Any, name: str, value: Any) -> contextlib.AbstractContextManager[None]:
    """Replaces one attribute for the block."""
    return all_replaced([(owner, name, value)])


@contextlib.contextmanager
def all_replaced(rows: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replaces attributes (owner, name, value) for the block, in this order, and restores them in reverse."""
    ours = Replaced()
    try:
        for row in rows:
            ours.put(*row)
        yield
    finally:
        ours.put_back()


class Hooks:
    """Functions that are replaced while any thread asks for it, and restored when the last such thread has finished.

    Each replacement looks up the thread's own value (`here`) and calls through where there is none, so that other
    threads, and stock compiles in them, see no difference. `replacements` is called each time a thread enters, so that
    new functions are replaced as well.
    """

    def __init__(self, replacements: Callable[[], Iterable[Replacement]]) -> None:
        self.replacements = replacements
        self.lock = threading.Lock()
        self.entered = 0
        self._replaced = Replaced()
        self._threads = threading.local()

    @property
    def here(self) -> Any:
        """The innermost value that this thread has set by `inside`; None outside."""
        return getattr(self._threads, "value", None)

    @contextlib.contextmanager
    def inside(self, value: Any) -> Iterator[None]:
        """Within the block, `here` is `value` in this thread."""
        outer = self.here
        with self.lock:
            for owner, name, make in self.replacements():
                if not self._replaced.has(owner, name):
                    original = vars(owner)[name]
                    self._replaced.put(owner, name, functools.wraps(original)(make(original)))
            self.entered += 1
        self._threads.value = value
        try:
            yield
        finally:
            with self.lock:
                self.entered -= 1
                if not self.entered:
                    self._replaced.put_back()
            self._threads.value = outer
