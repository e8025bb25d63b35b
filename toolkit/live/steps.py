"""Counts the optimizer's steps in this process through torch's public global hook.

A hook that is hidden from Dynamo would break the graph of a compiled `optimizer.step`, which `fullgraph=True` does not
survive. So Dynamo is set to skip the hook, and each run of a graph that contains compiled steps adds marks: `count()`,
called before each execution of a graph, turns the marks into counted steps. In a torch that cannot skip the hook,
Dynamo traces it: one attribute that is written and never read. Optimizers that do not call torch's hooks are not
counted: `count()` then stays 0, which means "unknown".

For example, `watch(); count()` gives 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .. import torch_private as t
from ..torch_private.unseen import passed_over, unseen


class _StepCounter:
    def __init__(self) -> None:
        self.count = 0
        self.marked = 0  # by compiled steps since the last call of `count`
        self.handle: Any = None
        self.hook: Any = None
        self.called: list[Callable[[], None]] = []

    @unseen
    def stepped(self) -> None:
        self.count += 1
        for function in self.called:
            function()


_steps = _StepCounter()


class _Hook(str):
    """A callable string: torch 2.11 logs the setting that contains the hook as JSON with each compile."""

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
    """The number of steps since `watch`."""
    marked, _steps.marked = _steps.marked, 0
    for _ in range(marked):
        _steps.stepped()
    return _steps.count


def _config() -> Any:
    """Dynamo's config, where it has the setting that names functions to skip; else None."""
    config = t.loaded("dynamo_config")
    return config if hasattr(config, "ignore_logging_functions") else None


def not_ours(functions: Any) -> Any:
    """Dynamo's set of skipped functions without this module's hook."""
    return {function for function in functions if function is not _steps.hook}


def compiled_into(output_graph: Any) -> int:
    """How many optimizer steps Dynamo compiled into a graph without their hook."""
    config = _config()
    if config is None or _steps.hook not in config.ignore_logging_functions:
        return 0
    codes = getattr(output_graph, "traced_code", ())
    file = sys.modules["torch.optim.optimizer"].__file__
    return sum(code.co_filename == file and code.co_name == "wrapper" for code in codes)


def marking(compiled: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """Wraps a compiled graph: each run marks `steps` steps."""

    def run(*arguments: Any, **keywords: Any) -> Any:
        result = compiled(*arguments, **keywords)
        _steps.marked += steps
        return result

    return run
