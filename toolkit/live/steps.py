"""The optimizer's steps in this process, counted through torch's public global hook, and what waits for one of them.

A hook that is hidden from Dynamo would break the graph of a compiled `optimizer.step`, which `fullgraph=True` does not
survive. So Dynamo is set to leave it out, and each run of a graph that steps were compiled into leaves a mark:
`count()`, asked before each execution of a graph, takes the marks away and counts. In a torch that cannot leave it out
Dynamo traces the hook: one attribute that is written and never read. Optimizers that do not call torch's hooks are not
counted: `count()` then stays 0, which means "unknown".

`--after-step N`: what is captured before the Nth step waits in memory, and is written only if it runs after it. A model
that is compiled once, in its first step, is so recorded whole with the inputs of a step that matters, while compiles
that belong to the beginning of a long run leave nothing. What never runs again is counted as left out.

For example:

    watch(); count()  # -> 0
    waiting = Waiting(100); waiting.begin("0_0/forward")
    waiting.postpone("0_0/forward", save)        # True before step 100: save() is called by release("0_0/forward")
    # True
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from .. import torch_private as t
from ..torch_private.unseen import passed_over, unseen

Action = Callable[[], object]


class _Steps:
    def __init__(self) -> None:
        self.count = 0
        self.marked = 0  # by steps that were compiled, since `count` was last asked
        self.handle: Any = None
        self.hook: Any = None
        self.called: list[Callable[[], None]] = []

    @unseen
    def stepped(self) -> None:
        self.count += 1
        for function in self.called:
            function()


_steps = _Steps()


class _Hook(str):
    """A text that can be called: torch 2.11 writes the setting that names it into a log, as JSON, with each compile."""

    def __call__(self, *_: Any) -> None:
        if sys.modules["torch"].compiler.is_compiling():
            _steps.marked += 1
        else:
            _steps.stepped()


def watch(function: Callable[[], None] | None = None) -> None:
    """Counts steps from now on; `function` is called after each step until `forget`. Imports torch's compiler."""
    if function is not None and function not in _steps.called:
        _steps.called.append(function)
    if _steps.handle is None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        passed_over(_Hook.__call__)
        stepped = _Hook("graphdbg counts the steps")
        _steps.hook, _steps.handle = stepped, register_optimizer_step_post_hook(stepped)
        if (config := _config()) is not None:
            config.ignore_logging_functions = {*config.ignore_logging_functions, stepped}


def forget(function: Callable[[], None] | None = None) -> None:
    """Stops calling the function; removes the hook when nothing else uses it."""
    if function is not None and function in _steps.called:
        _steps.called.remove(function)
    if not _steps.called and _steps.handle is not None:
        _steps.handle.remove()
        if (config := _config()) is not None:
            config.ignore_logging_functions = not_ours(config.ignore_logging_functions)
        _steps.hook = _steps.handle = None


def count() -> int:
    """Steps since `watch`."""
    marked, _steps.marked = _steps.marked, 0
    for _ in range(marked):
        _steps.stepped()
    return _steps.count


def _config() -> Any:
    """Dynamo's settings where one of them names functions that it leaves out."""
    config = t.loaded("dynamo_config")
    return config if hasattr(config, "ignore_logging_functions") else None


def not_ours(functions: Any) -> Any:
    """The functions that the program wants to be left out, of those that Dynamo leaves out."""
    return {function for function in functions if function is not _steps.hook}


def compiled_into(output_graph: Any) -> int:
    """How many steps Dynamo compiled into a graph of which the hook was left out."""
    config = _config()
    if config is None or _steps.hook not in config.ignore_logging_functions:
        return 0
    codes = getattr(output_graph, "traced_code", ())
    file = sys.modules["torch.optim.optimizer"].__file__
    return sum(code.co_filename == file and code.co_name == "wrapper" for code in codes)


def marking(compiled: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """The compiled graph, each run of which marks as many steps."""

    def run(*arguments: Any, **keywords: Any) -> Any:
        result = compiled(*arguments, **keywords)
        _steps.marked += steps
        return result

    return run


class Waiting:
    """The actions that wait, by compile name, in order; with `after_step` 0 none does."""

    def __init__(self, after_step: int) -> None:
        self.after_step = after_step
        self._actions: dict[str, list[Action]] = {}
        self._lock = threading.RLock()

    @property
    def now(self) -> bool:
        """Whether the step has not come yet."""
        return self.after_step > 0 and count() < self.after_step

    def begin(self, local: str) -> bool:
        """Whether the graphs of a graph's compile wait; if so, everything about them is kept for later."""
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
        """Runs the waiting actions of a graph's compile, in order."""
        with self._lock:
            actions = self._actions.pop(local.partition("/")[0], [])
        for action in actions:
            action()
