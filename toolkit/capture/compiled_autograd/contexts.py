# pyright: basic
"""Switching compiled autograd on and off for a block, and putting torch's state back.

A nested block restores exactly what the outer one had: compiler, whether sizes are dynamic, torch's own flags, and the engine's
multithreading, which is off while a compiler is set.

>>> with enable(lambda gm: gm):          # runs each captured graph as it is
...     loss.backward()
...     with disable():
...         other.backward()             # eager
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import _torch as t


@contextmanager
def enable(compiler_fn: Callable[[Any], Callable[..., Any]], *, dynamic: bool = True, instance: Any = None) -> Iterator[None]:
    """Captures every backward in the block as a graph and calls `compiler_fn(graph)` for what runs it.

    The graph takes (inputs, sizes, scalars, hooks, packed data), five lists. `dynamic`: a size that changes becomes a symbol.
    `instance` is the class of the capturing object, torch's AutogradCompilerInstance or one derived from it. Under the stance
    "force_eager" nothing is captured, as torch has it.
    """
    if t.forced_eager():
        before = t.stock.compiled_autograd_enabled_force_eager
        t.stock.compiled_autograd_enabled_force_eager = True
        try:
            yield
        finally:
            t.stock.compiled_autograd_enabled_force_eager = before
        return
    t.load_cudagraph_trees()
    made = functools.partial(instance or t.AutogradCompilerInstance, compiler_fn)
    with _state(made, dynamic, on=True), torch.autograd.set_multithreading_enabled(False):
        yield


@contextmanager
def disable() -> Iterator[None]:
    """Backwards in the block are eager."""
    with _state(None, False, on=False):
        yield


def reset() -> None:
    """The state of a new process: nothing set, torch's cache of captured graphs empty, ids from 0.

    Raises RuntimeError while a captured backward runs.
    """
    if t.in_region():
        raise RuntimeError("compiled autograd cannot be reset while a captured backward runs")
    t.stock.reset()


@contextmanager
def _state(compiler: Any, dynamic: bool, *, on: bool) -> Iterator[None]:
    flags = t.stock.compiled_autograd_enabled, t.stock.active_disable_ctx, t.stock.depth
    before = t.set_compiler(compiler, dynamic)
    t.stock.compiled_autograd_enabled = on
    t.stock.active_disable_ctx = not on
    t.stock.depth += on
    try:
        yield
    finally:
        t.set_compiler(*before)
        t.stock.compiled_autograd_enabled, t.stock.active_disable_ctx, t.stock.depth = flags
