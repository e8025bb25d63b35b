"""Counts the optimizer's steps in this process, through torch's public global hook.

A hook that is hidden from Dynamo would break the graph of a compiled `optimizer.step`, which `fullgraph=True` does not survive.
So Dynamo traces this one: it sees one attribute that is written and never read, which adds no node and no guard, and `count()`,
asked before each execution of a graph, takes the mark away and counts. Optimizers that do not call torch's hooks are not
counted: `count()` then stays 0, which means "unknown".

>>> watch(); count()
0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Steps:
    def __init__(self) -> None:
        self.count = 0
        self.marked = False  # by a step that was compiled, since `count` was last asked
        self.handle: Any = None
        self.called: list[Callable[[], None]] = []

    def stepped(self) -> None:
        self.count += 1
        for function in self.called:
            function()


_steps = _Steps()


def watch(function: Callable[[], None] | None = None) -> None:
    """Counts from now on; `function` is called after each step until `forget`. Imports torch's compiler."""
    if function is not None and function not in _steps.called:
        _steps.called.append(function)
    if _steps.handle is None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def stepped(*_: Any) -> None:
            if torch.compiler.is_compiling():
                _steps.marked = True
            else:
                _steps.stepped()

        _steps.handle = register_optimizer_step_post_hook(stepped)


def forget(function: Callable[[], None]) -> None:
    """Calls the function no more; takes the hook off when nobody else listens."""
    if function in _steps.called:
        _steps.called.remove(function)
    if not _steps.called and _steps.handle is not None:
        _steps.handle.remove()
        _steps.handle = None


def count() -> int:
    """Steps since `watch`."""
    if _steps.marked:
        _steps.marked = False
        _steps.stepped()
    return _steps.count
