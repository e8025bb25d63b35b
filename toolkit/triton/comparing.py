# pyright: basic
"""Is what a kernel wrote right? Against the interpreter's bytes for the same arguments, and against eager's value of the node.

The interpreter ran the same code on the same arguments: what is allowed is the rounding of another order of sums, of fused
multiply-adds and of the GPU's own exp and the like, element by element (`STRICT`, relative to |want| + RMS(want) over what was
written). Where sums cancel to nothing rounding is all that is left: `noise` says how far the kernel's own result moves when its
inputs move by one rounding, and so much is rounding, too. Eager is judged as everywhere (`numerics.comparison`), by float64.

>>> against_interpreter(before, want, have, torch.float32).ok
True
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ...dumps.wording import counted
from ..numerics import compare, relative_rmse, tolerance
from ..numerics.comparison import FACTOR, NO_REFERENCE, NOISE_FACTOR
from ..numerics.measures import rms, wide
from .judged import Against, Argument
from .launches import Launch, Launches, Tensor, Written

STRICT = {torch.float64: 64.0, torch.float32: 64.0, torch.float16: 2.0, torch.bfloat16: 2.0, torch.complex64: 64.0}
"""Roundings (eps) of an element that are never called wrong; 2 of a type that is not here."""
NOISE = 16.0
FLIPS = 1000
"""One element of so many of a discrete result may be decided by rounding: behind a comparison of two floats."""
_STANDS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Types that torch hardly computes with -> one with the same bits."""


def dtype_of(name: str) -> torch.dtype:
    """A dtype by name; names were checked when the folder was read."""
    return getattr(torch, name)


def flat(data: bytes | memoryview | torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes as elements, whole ones only."""
    dtype, width = _STANDS.get(dtype, dtype), dtype.itemsize
    if not len(data):
        return torch.empty(0, dtype=dtype)
    whole = data if isinstance(data, torch.Tensor) else torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return whole[: whole.numel() // width * width].view(dtype)


def view(data: bytes | memoryview | torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """An argument as it lies in the bytes of its storage."""
    return flat(data, dtype_of(tensor.dtype)).as_strided(tensor.shape, tensor.stride, tensor.offset)


def against_interpreter(
    before: torch.Tensor, want: torch.Tensor, have: torch.Tensor, moved: torch.Tensor | None = None
) -> Against:
    """Three whole storages as elements of one dtype. `moved`: the result for inputs that moved by one rounding."""
    touched = ~_same(before, want) | ~_same(have, want)
    allowed = STRICT.get(want.dtype, 2.0) * torch.finfo(want.dtype).eps if is_float(want) else 0.0
    if not bool(touched.any()):
        return Against(0.0, allowed, True)
    wanted, had = want[touched], have[touched]
    if not is_float(want):
        wrong = int((wanted != had).sum())
        free = 0 if moved is None else int((moved[touched] != had).sum())
        rounded = ", which rounding decides" if wrong <= free else ""
        why = f"{wrong} of {counted(wanted.numel(), 'element')} differ{rounded}" if wrong else ""
        return Against(wrong / wanted.numel(), allowed, wrong <= free, why)
    w, h = wide(wanted), wide(had)
    finite = torch.isfinite(w) & torch.isfinite(h)
    odd = int((~finite & ~_same(wanted, had)).sum())
    if odd:
        return Against(1.0, allowed, False, f"{odd} of {counted(w.numel(), 'element')} are NaN or Inf in one of the two alone")
    w, h = w[finite], h[finite]
    if not w.numel():
        return Against(0.0, allowed, True)
    apart = (h - w).abs()
    scale = w.abs() + float(rms(w))
    error = float(torch.where(apart > 0, apart / torch.where(scale > 0, scale, 1.0), 0.0).max())
    if error <= allowed:
        return Against(error, allowed, True)
    far = f"{int((apart > allowed * scale).sum())} of {counted(w.numel(), 'element')} far off"
    if moved is not None:
        spread = float((wide(moved[touched])[finite] - h).abs().nan_to_num(0.0).max())
        if bool((apart <= allowed * scale + NOISE * spread).all()):
            return Against(error, allowed, True, "as far as rounding its inputs moves it")
    return Against(error, allowed, False, far)


def against_eager(written: Written, launches: Launches, have: torch.Tensor, coarsest: float = 0.0) -> Against | None:
    """The value of the node that the argument holds; None where it is not known. `coarsest`: the tolerance of the coarsest type
    that the kernel reads, which counts where there is no float64: kernels keep what eager rounds on the way."""
    if not written.eager:
        return None
    eager = flat(launches.tensors.get(written.eager), dtype_of(written.dtype)).reshape(written.shape)
    truth = None
    if written.truth:
        truth = flat(launches.tensors.get(written.truth), dtype_of(written.truth_dtype)).reshape(written.shape)
    flips = eager.numel() // FLIPS
    found = compare(
        None if truth is None else [truth], [eager], [have], check=("nan", "accuracy"), flips=lambda output: flips
    )  # fmt: skip
    why = "" if found is None else found.text.partition(": ")[2]
    if not is_float(eager):
        return Against(float((eager != have).sum()) / max(1, eager.numel()), flips / max(1, eager.numel()), found is None, why)
    own = 0.0 if truth is None else relative_rmse(eager, truth)
    base = tolerance(eager.dtype)
    limit = NO_REFERENCE * max(base, coarsest) if truth is None else (FACTOR if own < 1.0 else NOISE_FACTOR) * own + base
    error = relative_rmse(have, eager if truth is None else truth)
    near = truth is None and coarsest > base and error <= limit
    return Against(error, limit, found is None or near, "" if near else why)


def arguments_of(
    launch: Launch, launches: Launches, results: Mapping[int, torch.Tensor] | None = None,
    moved: Mapping[int, torch.Tensor] | None = None,
) -> list[Argument]:
    """Each argument that was written. `results`: storage -> its bytes after the launch; None: those of the interpreter, which are
    then compared with eager alone."""
    found = []
    for written in launch.written:
        tensor = launch.tensors[written.argument]
        storage = launch.storages[tensor.storage]
        after = launches.tensors.get(storage.after)
        have = after if results is None else results[tensor.storage]
        row = Argument(written.argument, written.buffer, written.node, tensor.text())
        if results is not None:
            dtype = dtype_of(tensor.dtype)
            row.interpreter = against_interpreter(
                flat(launches.tensors.get(storage.before), dtype), flat(after, dtype), flat(have, dtype),
                None if moved is None else flat(moved[tensor.storage], dtype),
            )  # fmt: skip
        row.eager = against_eager(written, launches, view(have, tensor), _coarsest(launch))
        found.append(row)
    return found


def _coarsest(launch: Launch) -> float:
    """The largest tolerance of the types that a kernel is given."""
    kinds = [dtype_of(tensor.dtype) for tensor in launch.tensors.values()]
    return max((tolerance(kind) for kind in kinds if kind.is_floating_point), default=0.0)


def is_float(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if one.dtype.itemsize == 1 and one.is_floating_point():
        return one.view(torch.uint8) == other.view(torch.uint8)
    return (one == other) | ((one != one) & (other != other))
