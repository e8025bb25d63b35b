"""Inputs that have to start on 16 bytes: which ones generated GPU kernels rely on, and the copy of those that do not.

Triton's kernels load 16 bytes at once where they were told that an input starts there, and a misaligned start is then an
error of the device. The C++ kernels of the CPU load vectors from anywhere, so there is nothing to check there. Must not
add guards: whether a symbolic storage offset is aligned is only asked for what is already known of it.

>>> inputs_to_check([torch.empty(4, device="cuda")], static_input_idxs=())
[0]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from . import _torch as t
from .input_names import name_at

BYTES = 16
Call = Callable[[list[Any]], Any]
Tell = Callable[[str], None]


def known_aligned(tensor: torch.Tensor) -> bool:
    """Whether the offset into its storage is known to be a multiple of 16 bytes; storages start on more. No guard is added."""
    return t.known_true(tensor.storage_offset() * tensor.dtype.itemsize % BYTES == 0)


def starts_aligned(tensor: torch.Tensor) -> bool:
    """Whether a real tensor starts on 16 bytes now."""
    return tensor.data_ptr() % BYTES == 0


def inputs_to_check(inputs: Sequence[Any], static_input_idxs: Collection[int]) -> list[int]:
    """Indices of GPU inputs whose start each call has to look at: kernels assume 16 bytes, and nothing promises them.

    Static inputs that are aligned now stay so; inputs that are not known to be aligned get kernels that assume nothing
    (unless the setting `assume_aligned_inputs` makes them).
    """
    found: list[int] = []
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor) or not t.is_gpu(value.device.type):
            continue
        aligned = known_aligned(value)
        stays = aligned and index in static_input_idxs
        if not stays and (aligned or t.config.assume_aligned_inputs):
            found.append(index)
    return found


def in_wrapper(to_check: Sequence[int], mutated: Collection[int], deferred: bool) -> list[int]:
    """Those looked at before the call. Where the generated code copies by itself (2.13), only what is written to."""
    return [index for index in to_check if not deferred or index in mutated]


def cloned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same sizes and strides, overlaps included, that starts at the beginning of a storage of its own."""
    extent = 0
    if tensor.numel():
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    flat = tensor.as_strided((extent,), (1,)).clone()
    return flat.as_strided(tensor.size(), tensor.stride())


def aligning(
    call: Call,
    to_check: Sequence[int],
    mutated: Collection[int] = (),
    names: Sequence[Any] = (),
    tell: Tell | None = None,
) -> Call:
    """`call` behind a look at the inputs `to_check`: a misaligned one is copied, and written back if it is one of `mutated`.

    `tell` gets a sentence for each input when it is copied for the first time.
    """
    if not to_check:
        return call
    indices, written, told = tuple(to_check), frozenset(mutated), set[int]()

    def run(inputs: list[Any]) -> Any:
        back: list[tuple[torch.Tensor, torch.Tensor]] = []
        for index in indices:
            given = inputs[index]
            if given.data_ptr() % BYTES:
                copy = inputs[index] = cloned(given)
                if index in written:
                    back.append((given, copy))
                if tell is not None and index not in told:
                    told.add(index)
                    tell(f"{name_at(names, index)} did not start on {BYTES} bytes: copied where that is so")
        made = call(inputs)
        for given, copy in back:
            given.copy_(copy)
        return made

    return run
