"""Puts recorded global state in force for a while: grad mode, autocast, determinism, matmul precision, default dtype.

The opposite of the recorder's `ambient`, which reads it. Everything is put back on the way out.

>>> with in_force(ReplaySpec("dynamo", ambient=Ambient(grad=False))):
...     torch.is_grad_enabled()
False
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .spec import FULL_STAGES, ReplaySpec


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
