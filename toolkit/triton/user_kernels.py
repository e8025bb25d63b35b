# pyright: basic
"""Interprets launches of the user's own Triton kernels on CPU tensors, which nothing else can run.

`kernel[grid](...)` and torch's wrapper operators (triton_kernel_wrapper_mutation, _functional) both end in Triton's
`run`, which stays unchanged for GPU tensors. `without_gpu` also lets torch.compile trace such calls on a machine
without a GPU.

For example:

    with without_gpu():
        torch.compile(model, backend="graphdbg_dump")(x)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .. import torch_private as t
from ..torch_private import all_replaced, replaced

_forever = contextlib.ExitStack()


@functools.cache
def ready() -> None:
    """Interprets launches on CPU tensors until this process ends: for children that replay a trusted graph."""
    _forever.enter_context(interpreting())


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """For programs, within the block: torch.compile traces kernels and their launches are interpreted, with all tensors
    on the CPU."""
    from .pretended import pretending
    from .targets import DEFAULT, target_of

    with pretending(target_of(DEFAULT)), interpreting():
        yield


def interpreting() -> contextlib.AbstractContextManager[None]:
    """Within the block, launches on CPU tensors are interpreted. Where there is no GPU, torch's questions to Triton
    about a kernel (which arguments it writes) are answered for a pretended one."""
    from triton.runtime import Autotuner, JITFunction, driver

    from .pretended import Driver
    from .targets import DEFAULT, target_of

    usual, usual_tuned = JITFunction.run, Autotuner.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup or not _on_cpu(args, kwargs):
            return usual(self, *args, grid=grid, warmup=warmup, **kwargs)
        return _interpreted(self, args, kwargs, grid)

    def run_tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("warmup") or not _on_cpu(args, kwargs):
            return usual_tuned(self, *args, **kwargs)
        config = self.configs[0]  # no timing
        if getattr(config, "pre_hook", None) is not None:
            config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    rows: list[tuple[Any, str, Any]] = [(JITFunction, "run", run), (Autotuner, "run", run_tuned)]
    if not torch.cuda.is_available() and getattr(driver, "_active", None) is None:
        rows.append((driver, "_active", Driver(target_of(DEFAULT))))
    return all_replaced(rows)


def _on_cpu(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments contain tensors, all of them on the CPU."""
    tensors = [argument for argument in (*args, *kwargs.values()) if isinstance(argument, torch.Tensor)]
    return bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors)


def _interpreted(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> None:
    """Interprets one launch, binding arguments as Triton's own `run` does. Launch options (num_warps) do not change
    results."""
    from triton.language import constexpr
    from triton.runtime import JITFunction

    from .interpreting import language, launching
    from .interpreting._triton import type_of
    from .interpreting.memory import Memory

    named = {name: value for name, value in kwargs.items() if name in kernel.signature.parameters}
    bound = kernel.signature.bind(*args, **named)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    constants = {each.name for each in kernel.params if each.is_constexpr or arguments[each.name] is None}
    typed = [each for each in kernel.params if each.name not in constants]
    signature = {each.name: each.annotation_type or type_of(arguments[each.name]) for each in typed}
    given = {name: value.value if isinstance(value, constexpr) else value for name, value in arguments.items()}
    size: Any = grid(arguments) if callable(grid) else grid
    x, y, z = (*(int(extent) for extent in size), 1, 1)[:3]

    def called(self: Any, *values: Any, **named: Any) -> Any:  # for helpers, wherever the kernel finds them
        return language.of(self)(*values, **named)

    helpers = replaced(JITFunction, "__call__", called)
    with t.modes_off(), torch.no_grad(), language.interpreted(), helpers:
        launching.run(kernel.fn, given, constants, (x, y, z), Memory(), signature)
