# pyright: basic
"""Pretends to Inductor and Triton that a GPU is here, so that they write and compile its code. Nothing can run on it.

Only what is asked while code is written is answered: the driver's target, the properties of the device, whether there
is one. `torch.cuda.is_available()` stays what it is. Everything is put back at the end. For children only: torch caches
some answers.

For example:

    with pretending(target_of("cuda:90")):
        compile_fx(gm, fakes_on_cuda)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from ...dumps.errors import EnvironmentLackError
from ..torch_private import all_replaced
from . import pretended
from .needs import require_triton
from .targets import WARP, Target


@contextlib.contextmanager
def pretending(target: Target) -> Iterator[None]:
    """While it is open, a GPU of that kind seems to be device 0."""
    require_triton()
    from triton.runtime import driver

    answers = properties(target)
    with (
        all_replaced([(driver, "_active", Driver(target)), *pretended.places(answers, target.capability)]),
        pretended.interface(answers, target.capability),
        pretended.config_for_emission(),
        pretended.answers_forgotten(),
        pretended.memory_on_cpu(),
        pretended.guards_of_gpu(),
        pretended.chosen_without_timing(),
    ):
        yield


def properties(target: Target) -> Any:
    """What `torch.cuda.get_device_properties` says of such a GPU, as far as Inductor and Triton ask."""
    chip = target.chip
    return SimpleNamespace(
        name=f"NVIDIA {chip.name}",
        major=target.capability // 10,
        minor=target.capability % 10,
        multi_processor_count=chip.processors,
        total_memory=chip.memory_bytes,
        L2_cache_size=chip.l2_bytes,
        regs_per_multiprocessor=chip.registers,
        max_threads_per_multi_processor=chip.threads,
        max_threads_per_block=1024,
        warp_size=WARP,
        gcnArchName="",
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=chip.shared_block,
        shared_memory_per_multiprocessor=chip.shared_processor,
        is_integrated=0,
        clock_rate=0,
        memory_clock_rate=0,
    )


class Driver:
    """A driver of Triton's for a pretended GPU: it answers what is asked before anything is launched."""

    def __init__(self, target: Target) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget(target.backend, target.capability, WARP)

    def get_current_target(self) -> Any:
        return self.target

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        raise EnvironmentLackError("there is no GPU to time kernels on", "one is only pretended")
