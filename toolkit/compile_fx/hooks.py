"""Functions of torch that are ours while any thread asks for it, and torch's own again when the last one has ended.

Each hook asks what this thread has put in (`here`) and calls through where it has put in nothing, so that other threads, and
what stock compiles in them, see no difference. Nothing of a compile that has ended is kept. Torch is changed by this module
alone.

>>> hooks = Hooks(lambda: [(module, "function", lambda original: lambda *args: hooks.here or original(*args))])
>>> with hooks.inside("mine"):
...     module.function()
'mine'
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


class Hooks:
    """Some functions of torch. `replacements` is asked each time a thread enters: what is new since is replaced as well."""

    def __init__(self, replacements: Callable[[], Iterable[Replacement]]) -> None:
        self.replacements = replacements
        self.lock = threading.Lock()
        self.entered = 0
        self.restore: dict[tuple[int, str], tuple[Any, Function, Any]] = {}
        self._threads = threading.local()

    @property
    def here(self) -> Any:
        """What this thread has put in, the innermost; None outside."""
        return getattr(self._threads, "value", None)

    @contextlib.contextmanager
    def inside(self, value: Any) -> Iterator[None]:
        """While entered, `here` is `value` in this thread."""
        outer, self._threads.value = self.here, value
        self._enter()
        try:
            yield
        finally:
            self._leave()
            self._threads.value = outer

    def _enter(self) -> None:
        with self.lock:
            for owner, name, make in self.replacements():
                if (id(owner), name) not in self.restore:
                    original = vars(owner)[name]
                    ours = functools.wraps(original)(make(original))
                    setattr(owner, name, ours)
                    self.restore[id(owner), name] = owner, ours, original
            self.entered += 1

    def _leave(self) -> None:
        with self.lock:
            self.entered -= 1
            while not self.entered and self.restore:
                (_, name), (owner, ours, original) = self.restore.popitem()
                if vars(owner).get(name) is ours:  # else somebody put their own around it, which calls through
                    setattr(owner, name, original)
