"""Calls back right after chosen modules are imported, so that torch's compiler is wrapped only in programs that use it.

Must not import the modules itself, must leave their loaders and specs as they would be without it, and is removed with
the last watched module.

For example: `watch({"torch._inductor.compile_fx": patch_compile_fx})`.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .unseen import seen, unseen

Callback = Callable[[ModuleType], None]

_lock = threading.RLock()


class _Finder:
    """First on sys.meta_path: finds watched modules through the other finders, and wraps their loaders once."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}
        self.searching = threading.local()

    @unseen
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.callbacks or getattr(self.searching, "name", None) == name:
            return None
        self.searching.name = name
        try:
            spec = _find_with_others(self, name, path, target)
        finally:
            self.searching.name = None
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
        return spec


class _Loader:
    """Replaces a module's loader until the module has been executed, then restores it."""

    def __init__(self, real: Any, finder: _Finder) -> None:
        self._real, self._finder = real, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    @unseen
    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        seen(self._real.exec_module, module)
        with _lock:
            callbacks = self._finder.callbacks.pop(module.__name__, [])
            if not self._finder.callbacks and self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)  # type: ignore[arg-type]
        for callback in callbacks:
            callback(module)


_finder = _Finder()


def _fresh_lock() -> None:
    global _lock
    _lock = threading.RLock()  # after a fork: a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


def watch(callbacks: Mapping[str, Callback]) -> None:
    """Calls each callback once: now when its module is imported already, else right after its first import."""
    ready: list[tuple[Callback, ModuleType]] = []
    with _lock:
        for name, callback in callbacks.items():
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                ready.append((callback, module))
            else:
                _finder.callbacks.setdefault(name, []).append(callback)
        if _finder.callbacks and _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]
    for callback, module in ready:
        callback(module)


def unwatch() -> None:
    """Forgets all callbacks that were not called yet."""
    with _lock:
        _finder.callbacks.clear()
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)  # type: ignore[arg-type]


def _find_with_others(own: _Finder, name: str, path: Any, target: Any) -> importlib.machinery.ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if finder is own or find is None:
            continue
        spec = find(name, path, target)
        if spec is not None:
            return spec
    return None
