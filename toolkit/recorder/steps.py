"""The optimizer's steps in this process, counted through torch's public global hook, and what waits for one of them.

A hook that is hidden from Dynamo would break the graph of a compiled `optimizer.step`, which `fullgraph=True` does not survive.
So Dynamo traces this one: it sees one attribute that is written and never read, which adds no node and no guard, and `count()`,
asked before each execution of a graph, takes the mark away and counts. Optimizers that do not call torch's hooks are not
counted: `count()` then stays 0, which means "unknown".

`--after-step N`: what is captured before the Nth step waits in memory, and is written only if it runs after it. A model that is
compiled once, in its first step, is so recorded whole with the inputs of a step that matters, while compiles that belong to the
beginning of a long run leave nothing. What never runs again is counted as left out.

>>> watch(); count()
0
>>> waiting = Waiting(100); waiting.begin("0_0/forward")
>>> waiting.postpone("0_0/forward", save)        # True before step 100: save() is called by release("0_0/forward")
True
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Action = Callable[[], object]


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


class Waiting:
    """What waits, by compile name, in order."""

    def __init__(self, after_step: int) -> None:
        self.after_step = after_step
        self._actions: dict[str, list[Action]] = {}
        self._lock = threading.RLock()

    @property
    def now(self) -> bool:
        """Whether the step has not come yet."""
        return count() < self.after_step

    def begin(self, local: str) -> bool:
        """Whether the graphs of a graph's compile wait; from here on all that happens to them does."""
        name = local.partition("/")[0]
        if not self.now and name not in self._actions:
            return False
        with self._lock:
            self._actions.setdefault(name, [])
        return True

    def postpone(self, local: str, action: Action) -> bool:
        """Keeps an action for later when the graph's compile waits."""
        with self._lock:
            actions = self._actions.get(local.partition("/")[0])
            if actions is None:
                return False
            actions.append(action)
            return True

    def release(self, local: str) -> None:
        """Does all that waits for a graph's compile, in order."""
        with self._lock:
            actions = self._actions.pop(local.partition("/")[0], [])
        for action in actions:
            action()
