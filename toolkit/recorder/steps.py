"""Counts the optimizer's steps in this process, through torch's public global hook.

The hook is hidden from Dynamo, so that a compiled `optimizer.step` gives the same graphs with it as without it. Optimizers that
do not call torch's hooks are not counted: `count()` then stays 0, which means "unknown".

>>> watch(); count()
0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Steps:
    def __init__(self) -> None:
        self.count = 0
        self.handle: Any = None
        self.called: list[Callable[[], None]] = []

    def stepped(self, *_: Any) -> None:
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

        hidden: Any = torch.compiler.disable(_steps.stepped)
        _steps.handle = register_optimizer_step_post_hook(hidden)


def forget(function: Callable[[], None]) -> None:
    """Calls the function no more; takes the hook off when nobody else listens."""
    if function in _steps.called:
        _steps.called.remove(function)
    if not _steps.called and _steps.handle is not None:
        _steps.handle.remove()
        _steps.handle = None


def count() -> int:
    """Steps since `watch`."""
    return _steps.count
