# pyright: basic
"""Switching compiled autograd on and off for a block, and putting torch's state back.

A nested block restores exactly what the outer one had: compiler, whether sizes are dynamic, torch's own flags, and the
engine's multithreading, which is off while a compiler is set.

For example:

    with enable(lambda gm: gm):          # runs each captured graph as it is
        loss.backward()
        with disable():
            other.backward()             # eager
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ... import torch_private as t


@contextmanager
def enable(
    compiler_fn: Callable[[Any], Callable[..., Any]], *, dynamic: bool = True, instance: Any = None
) -> Iterator[None]:
    """Captures every backward in the block as a graph and calls `compiler_fn(graph)` for what runs it.

    The graph takes (inputs, sizes, scalars, hooks, packed data), five lists. `dynamic`: a size that changes becomes a
    symbol. `instance` is the class of the capturing object, torch's AutogradCompilerInstance or one derived from it.
    Under the stance "force_eager" nothing is captured, as torch has it.
    """
    if t.eval_frame_stance.stance == "force_eager":
        with t.replaced(t.compiled_autograd, "compiled_autograd_enabled_force_eager", True):
            yield
        return
    if torch.cuda.is_available():
        t.look_up("cudagraph_trees")  # a capture asks this module, which nobody may have imported yet
    factory = functools.partial(instance or t.AutogradCompilerInstance, compiler_fn)
    with _state(factory, dynamic, on=True), torch.autograd.set_multithreading_enabled(False):
        yield


@contextmanager
def disable() -> Iterator[None]:
    """Runs the backwards in the block in eager."""
    with _state(None, False, on=False):
        yield


def reset() -> None:
    """Restores the state of a new process: nothing set, torch's cache of captured graphs empty, ids from 0.

    Raises RuntimeError while a captured backward runs.
    """
    if t.in_compiled_autograd_region:
        raise RuntimeError("compiled autograd cannot be reset while a captured backward runs")
    t.compiled_autograd.reset()


@contextmanager
def _state(compiler: Any, dynamic: bool, *, on: bool) -> Iterator[None]:
    stock = t.compiled_autograd
    with (
        t.replaced(stock, "compiled_autograd_enabled", on),
        t.replaced(stock, "active_disable_ctx", not on),
        t.replaced(stock, "depth", stock.depth + on),
    ):
        before = t.set_autograd_compiler(compiler, dynamic)
        try:
            yield
        finally:
            t.set_autograd_compiler(*before)
