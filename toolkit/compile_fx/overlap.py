"""Inputs whose elements share memory: with each other inside one tensor (expanded, windows of as_strided), or between
tensors.

Such inputs cannot be written element by element in any order, and copies of two that overlap part them: CUDA graphs and
alignment have to know. Decided exactly, as whether a sum of strides is zero, with a limit on the work: beyond it the
answer is True. Reads sizes as integers (hints of symbolic ones), adds no guards, touches no memory.

>>> overlaps_itself(torch.empty(9).as_strided((3, 3), (2, 1)))
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import torch

from ...dumps.torchside.values import storage_key
from ...dumps.wording import counted
from .input_names import name_at

_STEPS = 20_000
"""Tried values before an overlap is taken for granted; layouts that occur need a few."""

Term = tuple[int, int, int]
"""A stride in bytes and the least and greatest factor that it may have."""


def expanded_dims(tensor: Any) -> list[int]:
    """Dimensions along which every element is the same one: stride 0 and more than one of them. None in what is no
    tensor."""
    layout = _layout(tensor) if isinstance(tensor, torch.Tensor) else None
    return [] if layout is None else [d for d, (n, s) in enumerate(zip(*layout[:2], strict=True)) if s == 0 and n != 1]


def without_expanded(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """A view of the first element along each of `dims`: all there is to read or write."""
    for dim in dims:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def overlaps_itself(tensor: torch.Tensor, *, expanded: bool = True) -> bool:
    """Whether two elements of a tensor are the same memory. With `expanded` False, expanded dimensions do not count."""
    layout = _layout(tensor)
    if layout is None:
        return False
    sizes, strides, _ = layout
    if 0 in sizes:
        return False
    dims = [(stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1]
    if any(stride == 0 for stride, _ in dims):
        if expanded:
            return True
        dims = [(stride, size) for stride, size in dims if stride]
    if _nested(dims):
        return False
    # two different elements with the same offset: a difference of indices, not all zero, that adds up to nothing
    for first, (stride, size) in enumerate(dims):
        rest: list[Term] = [(other, 1 - count, count - 1) for other, count in dims[first + 1 :]]
        if _reaches([(stride, 1, size - 1), *rest], 0):
            return True
    return False


class Shared(NamedTuple):
    """Two inputs, by index, that have memory in common: "the same memory", or they "overlap"."""

    first: int
    second: int
    how: str


def shared(inputs: Sequence[Any]) -> list[Shared]:
    """Which inputs have memory in common; fake tensors say so too. Views that lie beside each other in one storage have
    none."""
    by_storage: dict[int, list[int]] = {}
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and (storage := _storage_id(value)) is not None:
            by_storage.setdefault(storage, []).append(index)
    pairs: list[Shared] = []
    for group in by_storage.values():
        for first, second in _near(group, inputs) if len(group) > 1 else ():
            if how := _how(inputs[first], inputs[second]):
                pairs.append(Shared(first, second, how))
    return sorted(pairs)


def _near(group: list[int], inputs: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Pairs of one storage whose spans meet. Thousands of views side by side, as of a flat parameter, make no pairs."""
    spans = sorted((*_span(inputs[index]), index) for index in group)
    for at, (_, end, index) in enumerate(spans):
        for start, _, other in spans[at + 1 :]:
            if start >= end:
                break
            yield min(index, other), max(index, other)


def _span(tensor: torch.Tensor) -> tuple[float, float]:
    """The first byte and the one behind the last; everything where nobody knows."""
    layout = _layout(tensor)
    if layout is None:
        return float("-inf"), float("inf")
    sizes, strides, offset = layout
    start = offset * tensor.dtype.itemsize
    if 0 in sizes:
        return start, start
    reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return start, start + (reach + 1) * tensor.dtype.itemsize


def described(inputs: Sequence[Any], names: Sequence[Any], most: int = 4) -> list[str]:
    """A sentence for each input that overlaps itself and for each two that overlap, up to `most`, and how many more
    there are."""
    sentences: list[str] = []
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and overlaps_itself(value):
            dims = expanded_dims(value)
            kind = (
                f"expanded along {_dims(dims)}" if dims and not overlaps_itself(value, expanded=False) else "a window"
            )
            sentences.append(
                f"{name_at(names, index)} overlaps itself ({kind}: sizes {_text(value.shape)}, strides "
                f"{_text(value.stride())})"
            )
    for first, second, how in shared(inputs):
        verb = "are " if how == "the same memory" else ""
        sentences.append(f"{name_at(names, first)} and {name_at(names, second)} {verb}{how}")
    more = len(sentences) - most
    return [*sentences[:most], f"and {counted(more, 'more overlap')}"] if more > 0 else sentences


def _how(left: torch.Tensor, right: torch.Tensor) -> str:
    """How two tensors on one storage have memory in common; empty when they have none."""
    first, second = _layout(left), _layout(right)
    if first is None or second is None:
        return "overlap"
    if 0 in first[0] or 0 in second[0]:
        return ""
    if first == second and left.dtype == right.dtype:
        return "the same memory"
    # a byte of the one that is a byte of the other: offsets, indices and the byte within the element differ to the same
    # sum
    terms: list[Term] = []
    for (sizes, strides, _), bytes_each, sign in ((first, left.dtype.itemsize, 1), (second, right.dtype.itemsize, -1)):
        for size, stride in zip(sizes, strides, strict=True):
            if size > 1 and stride:
                terms.append((sign * stride * bytes_each, 0, size - 1))
        if bytes_each > 1:
            terms.append((sign, 0, bytes_each - 1))
    distance = second[2] * right.dtype.itemsize - first[2] * left.dtype.itemsize
    return "overlap" if _reaches(terms, distance) else ""


def _nested(dims: list[tuple[int, int]]) -> bool:
    """Whether each stride steps over all that the smaller ones reach: then nothing can overlap. True for all dense
    tensors."""
    reach = 0
    for stride, size in sorted(dims):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _reaches(terms: list[Term], target: int) -> bool:
    """Whether factors within their limits make the strides add up to `target`; True as well when that takes too long to
    tell."""
    ordered = sorted(terms, key=lambda term: -abs(term[0]))
    spans = [(min(s * low, s * high), max(s * low, s * high)) for s, low, high in ordered]
    least, most, divisor = [0], [0], [0]
    for (stride, _, _), (low, high) in zip(reversed(ordered), reversed(spans), strict=True):
        least.append(least[-1] + low)
        most.append(most[-1] + high)
        divisor.append(gcd(divisor[-1], stride))
    least, most, divisor = least[::-1], most[::-1], divisor[::-1]
    steps = 0

    def search(at: int, left: int) -> bool:
        nonlocal steps
        steps += 1
        if steps > _STEPS:
            return True
        if at == len(ordered):
            return left == 0
        if not least[at] <= left <= most[at] or (left % divisor[at] if divisor[at] else left):
            return False
        stride, low, high = ordered[at]
        # what is left for the rest must lie within its reach: only a few factors do
        ends = (left - most[at + 1], left - least[at + 1])
        lowest, highest = (ends[0], ends[1]) if stride > 0 else (ends[1], ends[0])
        low, high = max(low, -(-lowest // stride)), min(high, highest // stride)
        return any(search(at + 1, left - stride * factor) for factor in range(low, high + 1))

    return search(0, target)


def _layout(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Sizes, strides and offset as integers; None for what has no strides or whose sizes nobody knows."""
    if tensor.layout is not torch.strided:
        return None
    values = [_hint_of(value) for value in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]
    if any(value is None for value in values):
        return None
    known = [int(value) for value in values if value is not None]
    return tuple(known[: tensor.ndim]), tuple(known[tensor.ndim : -1]), known[-1]


def _dims(dims: Sequence[int]) -> str:
    return ("dimension " if len(dims) == 1 else "dimensions ") + ", ".join(map(str, dims))


def _text(values: Sequence[Any]) -> str:
    return "(" + ", ".join(map(str, values)) + ")"


def _hint_of(value: Any) -> int | None:
    """An integer, or the one that a symbolic one stood for when it was traced; None where there is none. No guard is
    added."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    hint = value.node.hint
    return hint if isinstance(hint, int) else None


def _storage_id(tensor: torch.Tensor) -> int | None:
    """What tensors on one storage have in common, fake ones too; None for those without a storage."""
    try:
        return storage_key(tensor)
    except (NotImplementedError, RuntimeError):  # sparse, opaque
        return None
