"""What was in force when a graph was recorded, in force again for a while: settings of torch's compiler, and torch's own global
state (grad mode, autocast, determinism, matmul precision, default dtype), which the recorder's `ambient` reads.

>>> with settings(spec.config) as lost, no_caches(), in_force(spec):
...     ...
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from . import torch_private as t
from .spec import FULL_STAGES, ReplaySpec, is_opaque, of_the_process
from .torch_private.names import CONFIGS


@contextlib.contextmanager
def no_caches() -> Iterator[None]:
    """Switches off the caches of whole graphs (not of kernels), which would hide the passes from a replay.

    `torch.compiler.config.force_disable_caches` is public but throws the kernels' binaries away too.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(t.inductor_config.patch({"fx_graph_cache": False, "fx_graph_remote_cache": False}))
        stack.enter_context(t.functorch_config.patch(enable_autograd_cache=False))
        yield


@contextlib.contextmanager
def settings(config: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """Applies recorded settings of Inductor, Dynamo and functorch; yields a sentence for each that could not be applied."""
    lost: list[str] = []
    with contextlib.ExitStack() as stack:
        for room, values in config.items():
            module = t.look_up(f"{room}_config") if room in CONFIGS else None
            for name, value in values.items():
                if of_the_process(name):
                    continue
                if module is not None and _is_set_here(getattr(module, name, None), value):
                    continue
                if module is None or is_opaque(value):
                    lost.append(f"setting {room}.{name} is not applied: its value could not be saved")
                    continue
                try:
                    stack.enter_context(module.patch({name: value}))
                except (AttributeError, KeyError, TypeError, ValueError):
                    lost.append(f"setting {room}.{name} is not applied: this torch does not have it")
        yield lost


def _is_set_here(value: Any, saved: Any) -> bool:
    """Whether a setting that could not be saved is in force again, because a module of `--import` has set it."""
    named = saved.get("opaque") if isinstance(saved, Mapping) else None
    if value is None or not named:
        return False
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind != named[0]:
        return False
    return not inspect.isfunction(value) or str(named[1]).startswith(f"<function {value.__qualname__} at ")


def setting(room: str, name: str) -> tuple[bool, Any]:
    """(whether this torch has the setting, its value now)."""
    found: Any = t.look_up(f"{room}_config")
    for part in name.split("."):
        if not hasattr(found, part):
            return False, None
        found = getattr(found, part)
    return True, found


@contextlib.contextmanager
def in_force(spec: ReplaySpec) -> Iterator[None]:
    """The state that a graph of this spec was compiled and run in.

    Grad mode and autocast concern only graphs that AOTAutograd has not seen yet: it bakes both into the later stages, which
    run without grad.
    """
    ambient = spec.ambient
    full = spec.stage in FULL_STAGES
    with contextlib.ExitStack() as stack:
        stack.enter_context(_globals(spec))
        stack.enter_context(torch.set_grad_enabled(full and ambient.grad))
        if full and ambient.inference_mode:
            stack.enter_context(torch.inference_mode())
        if full:
            for device, dtype in ambient.autocast.items():
                stack.enter_context(torch.autocast(device, getattr(torch, dtype), cache_enabled=ambient.autocast_cache))
        yield


@contextlib.contextmanager
def _globals(spec: ReplaySpec) -> Iterator[None]:
    ambient = spec.ambient
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    precision, dtype, cudnn_tf32 = (
        torch.get_float32_matmul_precision(),
        torch.get_default_dtype(),
        torch.backends.cudnn.allow_tf32,
    )
    torch.use_deterministic_algorithms(ambient.deterministic, warn_only=ambient.deterministic_warn_only)
    torch.set_float32_matmul_precision(ambient.matmul_precision)
    torch.set_default_dtype(getattr(torch, ambient.default_dtype))
    torch.backends.cudnn.allow_tf32 = ambient.cudnn_tf32
    if ambient.threads:
        torch.set_num_threads(ambient.threads)  # Inductor writes the number into C++ kernels
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_float32_matmul_precision(precision)
        torch.set_default_dtype(dtype)
        torch.backends.cudnn.allow_tf32 = cudnn_tf32
        torch.set_num_threads(threads)
