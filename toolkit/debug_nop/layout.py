"""What is compared of a value: size, dtype, significant strides, storage offset, device, layout; of a number its value.

Also the symbol expressions that a trace has for these: sympy -> text -> `dumps.expr` -> its arithmetic, so that a saved
graph and a live one are read by the same code, no text is evaluated, and no ShapeEnv is asked anything, which would add
guards.

Strides count where a dimension has more than one element and the tensor has any; so does the offset of a tensor with
elements. Reads no data.

>>> cpu = torch.device("cpu")
>>> differences(Layout((4, 8), (8, 1), torch.float32, cpu, 0), layout_of(torch.ones(8, 4).t()))
{'stride': ((8, 1), (1, 4))}
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...dumps import expr as expressions
from ...dumps.expr import evaluate as number_of
from ...dumps.torchside import sympy_text
from .. import torch_private as t

Values = Mapping[str, Any]


class Expression(NamedTuple):
    """One expression: its text, its symbols, and its parsed form."""

    text: str
    symbols: frozenset[str]
    parsed: expressions.Expr

    def at(self, values: Values) -> Any:
        """The number that it stands for. Raises KeyError for a symbol without value, UnreadableError where it has no
        number."""
        return number_of(self.parsed, {name: values[name] for name in self.symbols})


def expression(value: Any) -> Any:
    """A SymInt, SymFloat or SymBool as an Expression, or as a number where it stands for one; anything else as it
    is."""
    node = getattr(value, "node", None)
    if node is None or isinstance(value, (bool, int, float)):
        return value
    expr = node.expr
    if getattr(expr, "is_number", False):
        return int(expr) if getattr(expr, "is_Integer", False) else float(expr)
    if expr in _TRUTH:
        return _TRUTH[expr]
    return _expression(expr)


_TRUTH: dict[Any, bool] = {True: True, False: False}


def evaluate(value: Any, values: Values) -> Any:
    """The number of a size, stride or offset under these symbol values."""
    return value.at(values) if isinstance(value, Expression) else value


def text_of(value: Any) -> str:
    """A size, stride or offset, or a tuple of them, as it was traced: "(2*s0, 1)"."""
    if isinstance(value, tuple) and not isinstance(value, Expression):
        return "(" + ", ".join(map(text_of, value)) + ("," if len(value) == 1 else "") + ")"
    return value.text if isinstance(value, Expression) else str(value)


@functools.lru_cache(maxsize=65_536)
def _expression(expr: Any) -> Expression:
    text = sympy_text.write(expr)
    parsed = expressions.parse(text)
    return Expression(text, frozenset(expressions.symbols(parsed)), parsed)


class Layout(NamedTuple):
    """The metadata of one tensor. A size, stride or offset of None stands for any: it depends on data."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Any = 0
    layout: torch.layout = torch.strided


Difference = tuple[Any, Any]
"""(expected, got)."""


def layout_of(tensor: torch.Tensor) -> Layout:
    """The layout of a real or fake tensor; one that is not strided has no strides and no offset."""
    shape = tuple(map(_number, tensor.shape))
    if tensor.layout is not torch.strided:
        return Layout(shape, (), tensor.dtype, tensor.device, 0, tensor.layout)
    try:
        stride, offset = tuple(map(_number, tensor.stride())), _number(tensor.storage_offset())
    except (RuntimeError, NotImplementedError):  # a wrapper of vmap, an opaque layout
        stride, offset = (None,) * len(shape), None
    return Layout(shape, stride, tensor.dtype, tensor.device, offset)


def _number(size: Any) -> Any:
    if isinstance(size, torch.SymInt):
        expr = size.node.expr
        return int(expr) if expr.is_number else None
    return size


def differences(expected: Any, got: Any) -> dict[str, Difference]:
    """Property -> (expected, got) for two layouts, or two numbers; {} when they agree in all that counts."""
    if isinstance(expected, Layout) and isinstance(got, Layout):
        return _of_tensors(expected, got)
    if isinstance(expected, Layout) or isinstance(got, Layout):
        return {"kind": (_kind(expected), _kind(got))}
    return {} if expected is None or got is None or _equal_numbers(expected, got) else {"value": (expected, got)}


def _of_tensors(expected: Layout, got: Layout) -> dict[str, Difference]:
    strided = expected.layout is got.layout is torch.strided and 0 not in got.shape
    counted = zip(expected.shape, got.shape, expected.stride, got.stride, strict=False) if strided else ()
    same = {
        "dtype": expected.dtype == got.dtype,
        "device": same_device(expected.device, got.device),
        "layout": expected.layout == got.layout,
        "shape": _same(expected.shape, got.shape),
        "stride": len(expected.stride) != len(got.stride)
        or all(_same_number(stride, other) for size, real, stride, other in counted if 1 not in (size, real)),
        "offset": not strided or _same_number(expected.offset, got.offset),
    }
    fields = [name for name, agree in same.items() if not agree]
    return {_SIZE.get(name, name): (getattr(expected, name), getattr(got, name)) for name in fields}


_SIZE = {"shape": "size"}


def same_device(device: torch.device, other: torch.device) -> bool:
    """Whether two devices are the same; a device without an index is the current one of its kind."""
    return device.type == other.type and (device.index == other.index or device.index is None or other.index is None)


def _same(numbers: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(numbers) == len(other) and all(map(_same_number, numbers, other))


def _same_number(number: Any, other: Any) -> bool:
    return number is None or other is None or number == other


def _equal_numbers(number: Any, other: Any) -> bool:
    if isinstance(number, float) or isinstance(other, float):
        return math.isclose(number, other, rel_tol=1e-12) or number != number
    return number == other


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, Layout) else "None" if value is None else f"the number {value}"


def layout_guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """A function that says in one call whether tensors have the sizes, strides, dtypes and devices of these; it keeps
    none of them.

    Uses Dynamo's own guards on inputs, which take a third of the time of a comparison in Python. They also look at
    dispatch keys and `requires_grad`, so what they refuse has to be compared again. Where this torch lacks them, Python
    compares.
    """
    guards = t.optional("dynamo_guards")
    try:
        sizes, strides = [list(tensor.shape) for tensor in tensors], [list(tensor.stride()) for tensor in tensors]
        return guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check  # type: ignore[union-attr]
    except (AttributeError, RuntimeError, TypeError, ValueError):
        known = [_layout(tensor) for tensor in tensors]
        return lambda *given: [_layout(tensor) for tensor in given] == known


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
