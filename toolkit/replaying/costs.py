"""Measures what a rung costs: time of compile and first run with an empty code cache, and the memory that they need.

Used inside a child, around the part of a judgement that compiles and runs (`judge`'s `watch`). Sets no limit.

For example:

    peak = PeakMemory()
    judge(case, "inductor", "crash", watch=peak.watched)
    peak.bytes  # -> 33554432
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..isolation.processes import held_bytes


class PeakMemory:
    """The peak memory inside `watched`, above the amount before it: CUDA's where a device is in use.

    On CUDA what torch allocated there; else resident memory, of this process alone.
    """

    def __init__(self) -> None:
        self.bytes = 0

    @contextmanager
    def watched(self) -> Generator[None]:
        """Measures what happens inside the block, also when it raises."""
        device = torch.cuda.is_initialized()
        before = self._begin(device)
        try:
            yield
        finally:
            most = torch.cuda.max_memory_allocated() if device else _highest()
            self.bytes = max(0, most - before)

    def _begin(self, device: bool) -> int:
        if device:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            return torch.cuda.memory_allocated()
        with contextlib.suppress(OSError, AttributeError):  # returns memory that earlier runs left to the allocator
            ctypes.CDLL(None).malloc_trim(0)
        with contextlib.suppress(OSError):  # else eager's earlier peak would hide a lower one
            Path("/proc/self/clear_refs").write_text("5")
        return held_bytes(os.getpid(), ("VmRSS:",))


@contextmanager
def empty_code_cache() -> Generator[None]:
    """Uses a new, empty Inductor cache for the block, so that no kernel is found in it; toolchain probes stay valid."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    known = {name: os.environ[name] for name in names if name in os.environ}
    folder = tempfile.mkdtemp(prefix="codes-")
    try:
        os.environ |= {names[0]: folder, names[1]: f"{folder}/triton"}
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ |= known
        shutil.rmtree(folder, ignore_errors=True)


def _highest() -> int:
    """The highest resident memory of this process since the last reset, in bytes."""
    if peak := held_bytes(os.getpid(), ("VmHWM:",)):
        return peak
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
