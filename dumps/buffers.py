"""What generated code holds at once: the peak of the buffers that Inductor's wrapper allocates, and the largest of them
there.

Read from the text of the wrapper, line by line; nothing is run. It is a lower bound: a buffer whose size is a symbol,
or which an operator of torch's allocates, counts as nothing.

For example: `peak(wrapper).largest` gives `Buffer(name='buf10', bytes=67108864, by='cpp_fused_add_0')`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import msgspec

from .dtypes import ITEM_BYTES

_CALL = re.compile(r"^\s*def call\b|^def call\b")
_MADE = re.compile(r"^\s*(\w+) = empty_strided\w*\(\(([^()]*)\), \(([^()]*)\),.*?torch\.(\w+)")
_TAKEN = re.compile(r"^\s*(\w+) = (?:reinterpret_tensor\()?(\w+)\b.*; del \2\b")
_WRITER = re.compile(r"^\s*(?:\w+ = )?([\w.]+)\(")
_NAMES = re.compile(r"\b\w+\b")


class Buffer(msgspec.Struct, frozen=True):
    """A buffer, its size, and the kernel or operator that writes to it first."""

    name: str
    bytes: int
    by: str = ""


class Peak(msgspec.Struct, frozen=True):
    """The most bytes that were held at once, and the buffers at that time, the largest first."""

    bytes: int
    live: list[Buffer]

    @property
    def largest(self) -> Buffer | None:
        """The buffer with the most bytes at the peak."""
        return self.live[0] if self.live else None


def peak(source: str) -> Peak:
    """The peak of a wrapper; of nothing where it allocates nothing, or is no wrapper."""
    held: dict[str, tuple[str, int]] = {}
    writers: dict[str, str] = {}
    most, at = 0, dict(held)
    for line in _body(source):
        if allocation := _MADE.match(line):
            held[allocation[1]] = allocation[1], _bytes(allocation[2], allocation[3], allocation[4])
            total = sum(size for _, size in held.values())
            if total > most:
                most, at = total, dict(held)
        elif taken := _TAKEN.match(line):
            if taken[2] in held:
                held[taken[1]] = held.pop(taken[2])
        elif line.lstrip().startswith("del "):
            for name in _NAMES.findall(line)[1:]:
                held.pop(name, None)
        elif writer := _WRITER.match(line):
            for name in _NAMES.findall(line):
                if name in held and not writer[1].startswith("assert_"):
                    writers.setdefault(held[name][0], writer[1])
    at_peak = [Buffer(name, size, writers.get(first, "")) for name, (first, size) in at.items()]
    return Peak(most, sorted(at_peak, key=lambda buffer: -buffer.bytes))


def _body(source: str) -> Iterable[str]:
    inside = False
    for line in source.splitlines():
        if _CALL.match(line):
            inside = True
        elif inside:
            yield line
            if line.lstrip().startswith("return"):
                return


def _bytes(shape: str, stride: str, dtype: str) -> int:
    sizes, steps = ([extent.strip() for extent in text.split(",") if extent.strip()] for text in (shape, stride))
    if not all(extent.isdecimal() for extent in [*sizes, *steps]):
        return 0
    if any(extent == "0" for extent in sizes):
        return 0
    elements = 1 + sum((int(size) - 1) * int(step) for size, step in zip(sizes, steps, strict=False))
    return math.ceil(elements * ITEM_BYTES.get(dtype, 1))
