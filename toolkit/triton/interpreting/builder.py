# pyright: basic
"""The builder of Triton's interpreter, corrected where it differs from a GPU: rounding, 16- and 8-bit floats, integer
division, atomics, memory.

A subclass of Triton's own InterpreterBuilder (3.6 to 3.9), which Triton's language calls for every operation of a
kernel. `memory` is set while a kernel runs.

>>> BUILDER.memory = Memory()
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from ....dumps.errors import PackageMissingError
from ...live.rung import CannotRun
from . import libdevice
from ._triton import ROUND_TO_ZERO, Handle, InterpreterBuilder, atomic_name, interpreter, numpy_type
from .memory import Memory

CODED: dict[Any, tuple[torch.dtype, Any]] = {
    tl.bfloat16: (torch.bfloat16, np.uint16),
    tl.float8e5: (torch.float8_e5m2, np.uint8),
    tl.float8e4nv: (torch.float8_e4m3fn, np.uint8),
    tl.float8e5b16: (torch.float8_e5m2fnuz, np.uint8),
    tl.float8e4b8: (torch.float8_e4m3fnuz, np.uint8),
}
"""Triton types that NumPy lacks -> torch's dtype, and the NumPy integers that hold their bits."""


def values(bits: np.ndarray, dtype: Any) -> np.ndarray:
    """Decodes bits of a coded type to float32 values; other values unchanged."""
    if dtype not in CODED:
        return bits
    known, integers = CODED[dtype]
    given = np.ascontiguousarray(bits).view(np.int16 if integers is np.uint16 else np.uint8)
    return torch.from_numpy(given).view(known).to(torch.float32).numpy().reshape(bits.shape)


def is_float(handle: Any) -> bool:
    """Whether a kernel's value has floating-point elements."""
    scalar = handle.dtype.scalar
    return not scalar.is_ptr() and scalar.is_floating()


def numbers(handle: Any) -> np.ndarray:
    """A kernel value's elements as numbers."""
    return values(handle.data, handle.dtype.scalar)


def not_finite(handle: Any) -> np.ndarray | None:
    """Lanes of a value that are NaN or infinite; None where there are none, or its type has neither."""
    if not is_float(handle) or (fine := np.isfinite(numbers(handle))).all():
        return None
    return ~fine


def to_bits(floats: np.ndarray, dtype: Any) -> np.ndarray:
    """Rounds values to a coded type and returns them as bits."""
    if dtype not in CODED:
        raise ValueError(f"{dtype} is not a coded type")
    known, integers = CODED[dtype]
    given = torch.from_numpy(np.ascontiguousarray(floats if floats.dtype != np.float16 else floats.astype(np.float32)))
    bits = given.to(known).view(torch.int16 if integers is np.uint16 else torch.uint8)
    return bits.numpy().view(integers).reshape(floats.shape)


def saturated(floats: np.ndarray, dtype: Any) -> np.ndarray:
    """Bits of 8-bit floats as NVIDIA's conversions give them: values beyond the largest number are clamped to it."""
    known, _ = CODED[dtype]
    largest = torch.finfo(known).max
    kept = np.where(np.isnan(floats), floats, np.clip(floats, -largest, largest))
    return to_bits(kept.astype(floats.dtype), dtype)


_ONE = re.compile(r"\s*([a-z0-9_.]+)\s+\$0((?:\s*,\s*\$\d+)*)\s*;?\s*")


class MissingInstruction(CannotRun):
    """Inline assembly that is not in the table."""

    def __init__(self, text: str) -> None:
        super().__init__(f"a kernel holds inline assembly that the interpreter does not know: {' '.join(text.split())}")


def function(text: str) -> Callable[..., np.ndarray]:
    """The function that one instruction computes. Raises MissingInstruction."""
    match = _ONE.fullmatch(text)
    operands = [] if match is None else re.findall(r"\d+", match.group(2))
    if match is None or operands != [str(place) for place in range(1, len(operands) + 1)]:
        raise MissingInstruction(text)
    name, _, kind = match.group(1).rpartition(".")
    base = name.split(".")[0]
    if kind not in _KINDS or base not in _INSTRUCTIONS or set(name.split(".")[1:]) - _MODIFIERS:
        raise MissingInstruction(text)
    compute, flush = _INSTRUCTIONS[base], "ftz" in name.split(".")

    def call(*given: np.ndarray) -> np.ndarray:
        wide = [_flushed(argument, flush).astype(np.float64) for argument in given]
        with np.errstate(all="ignore"):
            return _flushed(np.asarray(compute(*wide)).astype(_KINDS[kind]), flush)

    return call


def _flushed(values: np.ndarray, flush: bool) -> np.ndarray:
    """Replaces subnormal numbers by zeros of the same sign (`.ftz`)."""
    if not flush or values.dtype != np.float32:
        return values
    small = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(small, np.copysign(np.float32(0), values), values)


_KINDS: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
_MODIFIERS = {"rn", "approx", "ftz", "full"}
_INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "fma": lambda x, y, z: x * y + z,
    "rcp": lambda x: 1 / x,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "abs": np.abs,
    "neg": np.negative,
    "max": np.fmax,
    "min": np.fmin,
    "mov": lambda x: x,
}
"""First word of the instruction -> its function, in float64."""


def alone() -> None:
    raise Endless("a program of the kernel waits for the others of its grid, and only kernels that say so run together")


class Endless(RuntimeError):
    """A kernel's loop never ends, or waits for another program that would have to run concurrently."""


class Builder(InterpreterBuilder):
    """One method per operation, named as in Triton. Handles hold NumPy arrays; values of coded float types are bits."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.wait: Callable[[], None] = alone
        self.asked, self.patience = 0, 1_000_000
        self.options = interpreter.InterpreterOptions(sanitize_overflow=False, debug=True)

    # memory

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *policy: Any) -> Any:  # without a mask: of ones
        kind = ptrs.get_element_ty()
        dtype = numpy_type(kind)
        filled = None if other is None else other.data
        return Handle(self.memory.load(ptrs.data, _mask(mask, ptrs), filled, dtype, ptrs), kind)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *policy: Any) -> None:
        dtype = numpy_type(ptrs.get_element_ty())
        self.memory.store(ptrs.data, value.data, _mask(mask, ptrs), dtype, (ptrs, value))

    def create_atomic_rmw(self, operation: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        kind = val.dtype.scalar
        dtype, name = numpy_type(kind), atomic_name(operation)
        given = np.broadcast_to(val.data, ptr.data.shape)

        def step(lane: Any, old: Any) -> Any:
            return _UPDATES[name](kind, old, given[lane])

        return Handle(self.memory.update(ptr.data, _mask(mask, ptr), dtype, step, (ptr, val)), kind)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        kind = cmp.dtype.scalar
        wanted, given = np.broadcast_to(cmp.data, ptr.data.shape), np.broadcast_to(val.data, ptr.data.shape)

        def step(lane: Any, old: Any) -> Any:
            return given[lane] if old == wanted[lane] else old

        return Handle(self.memory.update(ptr.data, _mask(None, ptr), numpy_type(kind), step, (ptr, val)), kind)

    def create_addptr(self, ptr: Any, offset: Any) -> Any:
        width = max(1, ptr.get_element_ty().primitive_bitwidth // 8)
        step = offset.data.astype(np.int64).view(np.uint64) if offset.data.ndim else np.uint64(np.int64(offset.data))
        return Handle(ptr.data + np.uint64(width) * step, ptr.dtype, {**ptr.attr, **offset.attr})

    def get_bf16(self, value: Any) -> Any:
        return Handle(to_bits(np.array([value], np.float32), tl.bfloat16), tl.bfloat16)

    # conversions

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        data = values(src.data, source)
        if target in CODED:
            return Handle(to_bits(data.astype(np.float32) if data.dtype != np.float64 else data, target), target)
        dtype = numpy_type(target)
        with np.errstate(all="ignore"):
            if data.dtype.kind == "f" and dtype.kind in "iu":  # as NVIDIA's cvt does: toward zero
                return Handle(libdevice.integer(np.trunc(data.astype(np.float64)), dtype), target)
            return Handle(data.astype(dtype), target)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        data = values(src.data, source)
        if rounding == ROUND_TO_ZERO and target in (tl.bfloat16, tl.float16):
            return Handle(_toward_zero(data, target), target)
        if target in CODED:
            small = target.primitive_bitwidth == 8
            return Handle((saturated if small else to_bits)(data.astype(np.float32), target), target)
        with np.errstate(all="ignore"):
            return Handle(data.astype(numpy_type(target)), target)

    # arithmetic

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        kind = lhs.dtype.scalar
        with np.errstate(all="ignore"):
            if kind in CODED:
                output = op(values(lhs.data, kind), values(rhs.data, rhs.dtype.scalar))
                truth = output.dtype == bool
                return Handle(output, tl.int1) if truth else Handle(to_bits(output, kind), kind)
            output = op(lhs.data, rhs.data)
        dtype = numpy_type(kind)
        if output.dtype.kind != "b" and output.dtype != dtype:
            output = output.astype(dtype)
        return Handle(output, tl.int1 if output.dtype.kind == "b" and dtype.kind != "b" else kind)

    def unary_op(self, arg: Any, op: Any) -> Any:
        kind = arg.dtype.scalar
        with np.errstate(all="ignore"):
            if kind in CODED:
                return Handle(to_bits(op(values(arg.data, kind)), kind), kind)
            return Handle(op(arg.data).astype(arg.data.dtype, copy=False), kind)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        kind = other.dtype.scalar
        output = op(lhs.data, rhs.data, other.data)
        dtype = numpy_type(kind)
        return Handle(output if output.dtype == dtype else output.astype(dtype), kind)

    def create_clampf(self, arg: Any, low: Any, high: Any, propagate_nans: Any) -> Any:
        kind = arg.dtype.scalar
        data, floor, ceiling = (values(handle.data, kind) for handle in (arg, low, high))
        least, most = (np.fmin, np.fmax) if "NONE" in str(propagate_nans).upper() else (np.minimum, np.maximum)
        output = least(most(data, floor), ceiling)
        return Handle(to_bits(output, kind) if kind in CODED else output.astype(data.dtype, copy=False), kind)

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_idiv(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, _divided)

    def create_srem(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, _remainder)

    create_urem = create_srem

    def create_ashr(self, lhs: Any, rhs: Any) -> Any:
        signed = np.dtype(f"i{lhs.data.dtype.itemsize}")
        output = lhs.data.view(signed) >> rhs.data.view(np.dtype(f"i{rhs.data.dtype.itemsize}"))
        wide = output.dtype.itemsize != lhs.data.dtype.itemsize
        return Handle(output if wide else output.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_lshr(self, lhs: Any, rhs: Any) -> Any:
        unsigned = np.dtype(f"u{lhs.data.dtype.itemsize}")
        output = lhs.data.view(unsigned) >> rhs.data.astype(unsigned)
        return Handle(output.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        kind = z.dtype.scalar
        given = [values(handle.data, kind) for handle in (x, y, z)]
        wide = [array.astype(np.float64) if array.dtype != np.float64 else array for array in given]
        with np.errstate(all="ignore"):
            output = wide[0] * wide[1] + wide[2]
        return Handle(to_bits(output, kind) if kind in CODED else output.astype(given[2].dtype), kind)

    def create_fabs(self, arg: Any) -> Any:
        return self.unary_op(arg, np.abs)

    def create_erf(self, arg: Any) -> Any:
        return self.unary_op(arg, libdevice.function("__nv_erf"))

    def create_rsqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, libdevice.function("__nv_rsqrt"))

    def create_dot(self, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        left, right = (values(handle.data, handle.dtype.scalar) for handle in (a, b))
        dtype = d.data.dtype
        wide = np.int32 if dtype.kind in "iu" else np.float64 if dtype == np.float64 else np.float32
        product = np.matmul(left.astype(wide), right.astype(wide))
        kind = d.dtype.scalar
        total = product + (values(d.data, kind) if kind in CODED else d.data)
        return Handle(to_bits(total, kind) if kind in CODED else total.astype(dtype), kind)

    def create_extern_elementwise(
        self, name: Any, path: Any, symbol: str, arguments: list[Any], kind: Any, pure: Any
    ) -> Any:
        function = libdevice.function(symbol)
        with np.errstate(all="ignore"):
            output = function(*(handle.data for handle in arguments))
        scalar = kind.scalar
        return Handle(np.asarray(output).astype(numpy_type(scalar), copy=False), scalar)

    def create_inline_asm(
        self, text: str, constraints: str, values_: list[Any], kinds: list[Any], pure: bool, pack: int
    ) -> Any:
        if pack != 1 or len(kinds) != 1:
            raise MissingInstruction(text)
        scalar = kinds[0].scalar
        output = function(text)(*(handle.data for handle in values_))
        return _InstructionResults([Handle(output.astype(numpy_type(scalar), copy=False), scalar)])


class _InstructionResults(list):
    """Holds an instruction's results in the form that the language expects."""

    def get_result(self, index: int) -> Any:
        return self[index]


def _mask(mask: Any, pointer: Any) -> np.ndarray:
    return np.ones(pointer.data.shape, bool) if mask is None else mask.data


def _divided(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Integer division toward zero, as in LLVM; division by zero, undefined on a GPU, gives all bits set."""
    zero = right == 0
    safe = np.where(zero, 1, right).astype(right.dtype)
    quotient = np.asarray((left - np.fmod(left, safe)) // safe)
    return np.where(zero, np.asarray(-1).astype(quotient.dtype), quotient) if zero.any() else quotient


def _remainder(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if left.dtype.kind == "f":
        return np.fmod(left, right)
    zero = right == 0
    return np.where(zero, left, np.fmod(left, np.where(zero, 1, right).astype(right.dtype)))


def _toward_zero(data: np.ndarray, kind: Any) -> np.ndarray:
    if kind == tl.bfloat16:
        return (np.ascontiguousarray(data, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    near = data.astype(np.float16)
    over = np.abs(near.astype(np.float64)) > np.abs(data.astype(np.float64))
    return np.where(over, np.nextafter(near, np.float16(0)), near)


def _added(kind: Any, old: Any, value: Any) -> Any:
    if kind in CODED:
        pair = np.array([old, value], numpy_type(kind))
        return to_bits(values(pair, kind).sum(keepdims=True, dtype=np.float32), kind)[0]
    with np.errstate(all="ignore"):
        return old + value


_UPDATES = {
    "add": _added,
    "fadd": _added,
    "max": lambda kind, old, value: max(old, value),
    "umax": lambda kind, old, value: _unsigned(old, value, max),
    "min": lambda kind, old, value: min(old, value),
    "umin": lambda kind, old, value: _unsigned(old, value, min),
    "and": lambda kind, old, value: old & value,
    "or": lambda kind, old, value: old | value,
    "xor": lambda kind, old, value: old ^ value,
    "xchg": lambda kind, old, value: value,
}


def _unsigned(old: Any, value: Any, choose: Any) -> Any:
    """Applies `choose` to integers whose bits are read as unsigned."""
    kind = np.dtype(f"u{old.dtype.itemsize}")
    return choose(np.asarray(old).view(kind)[()], np.asarray(value).view(kind)[()]).view(old.dtype)


def _refuse_another() -> None:
    """Raises EnvironmentLackError where this Triton's builder calls an operation with arguments that the method here
    does not take."""
    for name, ours in vars(Builder).items():
        theirs = getattr(InterpreterBuilder, name, None)
        if inspect.isfunction(ours) and inspect.isfunction(theirs):
            try:
                inspect.signature(ours).bind(*inspect.signature(theirs).parameters)
            except TypeError as error:
                what = "graphdbg does not know the interpreter of this version of Triton"
                raise PackageMissingError(what, f"{name}: {error}", "see graphdbg doctor") from error


_refuse_another()
BUILDER = Builder()
"""The builder that Triton's language calls."""
