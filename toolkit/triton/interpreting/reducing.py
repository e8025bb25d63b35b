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
    arrays = [one.handle.data for one in given]
    rank = arrays[0].ndim
    if axis is None:
        arrays, place = [one.reshape(-1) for one in arrays], 0
    else:
        place = axis % rank
    kinds = [one.dtype for one in given]
    while (size := arrays[0].shape[place]) > 1:
        even = size - size % 2
        left = [np.take(one, range(0, even, 2), place) for one in arrays]
        right = [np.take(one, range(1, even, 2), place) for one in arrays]
        made = _combined(combine_fn, left, right, kinds)
        if size % 2:
            last = [np.take(one, range(even, size), place) for one in arrays]
            made = [np.concatenate(pair, place) for pair in zip(made, last, strict=True)]
        arrays = made
    if axis is None:
        shape = (1,) * rank if keep else ()
        arrays = [one.reshape(shape) for one in arrays]
    elif not keep:
        arrays = [np.squeeze(one, place) for one in arrays]
    result = [_tensor(one, kind) for one, kind in zip(arrays, kinds, strict=True)]
    return tuple(result) if isinstance(input, (tuple, tl.tuple)) else result[0]


def scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    """`tl.associative_scan`, inclusive."""
    given = tuple(input) if isinstance(input, (tuple, tl.tuple)) else (input,)
    arrays, kinds = [one.handle.data for one in given], [one.dtype for one in given]
    place = _plain(axis) % arrays[0].ndim
    backwards = bool(_plain(reverse))
    if backwards:
        arrays = [np.flip(one, place) for one in arrays]
    size, step = arrays[0].shape[place], 1
    while step < size:  # whole arrays each time: Triton takes no shape but of powers of two; the first lanes stay
        before = [np.roll(one, step, place) for one in arrays]
        made = _combined(combine_fn, before, arrays, kinds)
        head = (slice(None),) * place + (slice(step),)
        for one, old in zip(made, arrays, strict=True):
            one[head] = old[head]
        arrays = made
        step *= 2
    if backwards:
        arrays = [np.flip(one, place) for one in arrays]
    result = [_tensor(np.ascontiguousarray(one), kind) for one, kind in zip(arrays, kinds, strict=True)]
    return tuple(result) if isinstance(input, (tuple, tl.tuple)) else result[0]


def _combined(combine: Any, left: list[np.ndarray], right: list[np.ndarray], kinds: list[Any]) -> list[np.ndarray]:
    operands = [_tensor(one, kind) for one, kind in zip([*left, *right], kinds * 2, strict=True)]
    made = combine(*operands)
    results = made if isinstance(made, (tuple, list, tl.tuple)) else (made,)
    shape = left[0].shape
    return [
        np.array(np.broadcast_to(one.handle.data, shape), array.dtype) for one, array in zip(results, left, strict=True)
    ]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _tensor(data: np.ndarray, kind: Any) -> Any:
    scalar = kind.scalar
    if not data.shape:
        return tl.tensor(Handle(data.reshape(1), scalar), scalar)
    return tl.tensor(Handle(data, scalar), tl.block_type(scalar, list(data.shape)))
