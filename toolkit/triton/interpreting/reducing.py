# pyright: basic
"""Reductions and scans with any combine function, halving along the axis: log2(n) calls on whole arrays.

Triton's interpreter calls the combine function once for each element. The order of operands is kept (argmax needs it);
floating-point sums associate as a tree, like a GPU's.

For example: `reduce(tensor, 1, combine)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from ._triton import Handle


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    """`tl.reduce`. `input`: a tensor or a tuple of them."""
    given = tuple(input) if isinstance(input, (tuple, tl.tuple)) else (input,)
    axis, keep = _plain(axis), bool(_plain(keep_dims))
    arrays = [tensor.handle.data for tensor in given]
    rank = arrays[0].ndim
    if axis is None:
        arrays, place = [array.reshape(-1) for array in arrays], 0
    else:
        place = axis % rank
    kinds = [tensor.dtype for tensor in given]
    while (size := arrays[0].shape[place]) > 1:
        even = size - size % 2
        left = [np.take(array, range(0, even, 2), place) for array in arrays]
        right = [np.take(array, range(1, even, 2), place) for array in arrays]
        combined = _combined(combine_fn, left, right, kinds)
        if size % 2:
            last = [np.take(array, range(even, size), place) for array in arrays]
            combined = [np.concatenate(pair, place) for pair in zip(combined, last, strict=True)]
        arrays = combined
    if axis is None:
        shape = (1,) * rank if keep else ()
        arrays = [array.reshape(shape) for array in arrays]
    elif not keep:
        arrays = [np.squeeze(array, place) for array in arrays]
    result = [_tensor(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
    return tuple(result) if isinstance(input, (tuple, tl.tuple)) else result[0]


def scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    """`tl.associative_scan`, an inclusive scan."""
    given = tuple(input) if isinstance(input, (tuple, tl.tuple)) else (input,)
    arrays, kinds = [tensor.handle.data for tensor in given], [tensor.dtype for tensor in given]
    place = _plain(axis) % arrays[0].ndim
    backwards = bool(_plain(reverse))
    if backwards:
        arrays = [np.flip(array, place) for array in arrays]
    size, step = arrays[0].shape[place], 1
    while step < size:  # whole arrays each time: Triton takes no shape but of powers of two; the first lanes stay
        before = [np.roll(array, step, place) for array in arrays]
        combined = _combined(combine_fn, before, arrays, kinds)
        head = (slice(None),) * place + (slice(step),)
        for array, old in zip(combined, arrays, strict=True):
            array[head] = old[head]
        arrays = combined
        step *= 2
    if backwards:
        arrays = [np.flip(array, place) for array in arrays]
    result = [_tensor(np.ascontiguousarray(array), kind) for array, kind in zip(arrays, kinds, strict=True)]
    return tuple(result) if isinstance(input, (tuple, tl.tuple)) else result[0]


def _combined(combine: Any, left: list[np.ndarray], right: list[np.ndarray], kinds: list[Any]) -> list[np.ndarray]:
    operands = [_tensor(numbers, kind) for numbers, kind in zip([*left, *right], kinds * 2, strict=True)]
    combined = combine(*operands)
    results = combined if isinstance(combined, (tuple, list, tl.tuple)) else (combined,)
    shape = left[0].shape
    return [
        np.array(np.broadcast_to(part.handle.data, shape), array.dtype)
        for part, array in zip(results, left, strict=True)
    ]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _tensor(data: np.ndarray, kind: Any) -> Any:
    scalar = kind.scalar
    if not data.shape:
        return tl.tensor(Handle(data.reshape(1), scalar), scalar)
    return tl.tensor(Handle(data, scalar), tl.block_type(scalar, list(data.shape)))
