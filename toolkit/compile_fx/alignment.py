"""Inputs that have to start on 16 bytes, since generated GPU kernels rely on it: the copy of those that do not.

Triton's kernels load 16 bytes at once where they were told that an input starts there, and a misaligned start is then
an error of the device. The C++ kernels of the CPU load vectors from anywhere, so there is nothing to check there. Must
not add guards: whether a symbolic storage offset is aligned is only asked for what is already known of it.

"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from .. import torch_private as t
from .input_names import name_at

BYTES = 16
Call = Callable[[list[Any]], Any]
Tell = Callable[[str], None]


def in_wrapper(to_check: Sequence[int], mutated: Collection[int], deferred: bool) -> list[int]:
    """Those looked at before the call. Where the generated code copies by itself (2.13), only what is written to."""
    return [index for index in to_check if not deferred or index in mutated]


def aligning(
    call: Call,
    to_check: Sequence[int],
    mutated: Collection[int] = (),
    names: Sequence[Any] = (),
    tell: Tell | None = None,
) -> Call:
    """`call` behind a look at the inputs `to_check`: a misaligned one is copied, and written back if it is one of
    `mutated`.

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
                copy = inputs[index] = t.clone_preserve_strides(given)
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
