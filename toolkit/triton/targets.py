"""GPUs by name: what `--target cuda:90` means, and what Inductor asks of such a chip when it chooses block sizes.

Imports neither torch nor Triton.

>>> target_of("cuda:90")
Target(backend='cuda', capability=90)
>>> target_of("cuda:90").chip.name
'H100'
"""

from __future__ import annotations

import re

import msgspec

from ...dumps.errors import UnknownWordError


class Chip(msgspec.Struct, frozen=True):
    """The chip that Inductor's choices are made for when a compute capability is named and no such GPU is present.

    `processors`: streaming multiprocessors; threads and registers (32 bit) of each; shared memory in bytes a block may
    opt in to and each multiprocessor has; L2 cache and memory in bytes. Source: NVIDIA's tuning guides and data sheets.
    """

    name: str
    processors: int
    threads: int
    registers: int
    shared_block: int
    shared_processor: int
    l2_bytes: int
    memory_bytes: int


_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
CHIPS: dict[int, Chip] = {
    75: Chip("T4", 40, 1024, 65536, 64 * _KIB, 64 * _KIB, 4 * _MIB, 16 * _GIB),
    80: Chip("A100", 108, 2048, 65536, 163 * _KIB, 164 * _KIB, 40 * _MIB, 40 * _GIB),
    86: Chip("A10", 72, 1536, 65536, 99 * _KIB, 100 * _KIB, 6 * _MIB, 24 * _GIB),
    89: Chip("L4", 58, 1536, 65536, 99 * _KIB, 100 * _KIB, 48 * _MIB, 24 * _GIB),
    90: Chip("H100", 132, 2048, 65536, 227 * _KIB, 228 * _KIB, 50 * _MIB, 80 * _GIB),
    100: Chip("B200", 148, 2048, 65536, 227 * _KIB, 228 * _KIB, 126 * _MIB, 180 * _GIB),
    120: Chip("RTX 5090", 170, 1536, 65536, 99 * _KIB, 100 * _KIB, 96 * _MIB, 32 * _GIB),
}
"""Compute capability times ten -> the chip that stands for it."""
DEFAULT = "cuda:90"
FORMS = ("ttir", "ttgir", "llir", "ptx", "cubin")
"""Forms of a kernel, and suffixes of their files, from Triton's first intermediate form to machine code."""
WARP = 32
_SPELT = re.compile(r"(?:cuda:|sm_?|compute_)?(\d{2,3})[af]?")


class Target(msgspec.Struct, frozen=True):
    """A GPU that code is written for. `capability`: 90 for compute capability 9.0."""

    backend: str
    capability: int

    @property
    def chip(self) -> Chip:
        """The chip of this capability."""
        return CHIPS[self.capability]

    @property
    def name(self) -> str:
        """The target as named on the command line."""
        return f"{self.backend}:{self.capability}"

    def text(self) -> str:
        """The target as text: "cuda:90 (H100, 132 SMs)"."""
        return f"{self.name} ({self.chip.name}, {self.chip.processors} SMs)"


def target_of(text: str) -> Target:
    """`cuda:90`, also spelt `sm_90` or `90`. Raises UsageError for what is no known NVIDIA GPU."""
    match = _SPELT.fullmatch(text.strip().lower())
    known = ", ".join(f"cuda:{number} ({chip.name})" for number, chip in CHIPS.items())
    if match is None:
        why = "code is written for NVIDIA GPUs only" if text.startswith(("hip", "gfx", "xpu", "cpu")) else ""
        raise UnknownWordError(
            f"{text!r} is not a target",
            why or "a target is cuda: and a compute capability, as in cuda:90",
            f"known: {known}",
        )
    capability = int(match.group(1))
    if capability not in CHIPS:
        raise UnknownWordError(
            f"no GPU with compute capability {capability / 10:g} is known ({text!r})", f"known: {known}"
        )
    return Target("cuda", capability)
