"""How many floating-point operations a node takes, from its shapes alone: matrix products, convolutions, attention.

Counts as torch.utils.flop_counter does: a multiplication and an addition are two operations, and other ops count
nothing. Nothing is guessed: a symbol without a number, or a node that uses one value twice where that hides a shape,
gives None.

>>> Flops(["aten.mm.default"])(0, [8, 256], [[8, 64], [64, 256]])
262144
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

Shape = list[int]
Formula = Callable[[list[Shape], list[Shape]], "int | None"]
"""From the shapes of the results and of the inputs."""


def _product(out: list[Shape], used: list[Shape]) -> int | None:
    """Any (batched) matrix product; `used` ends with both factors (or one, used twice)."""
    factors = [shape for shape in used[-2:] if shape]
    return 2 * prod(out[0]) * factors[0][-1] if out and factors else None


def _linear(out: list[Shape], used: list[Shape]) -> int | None:
    return 2 * prod(out[0]) * used[0][-1] if out and used and used[0] else None


def _convolution(out: list[Shape], used: list[Shape]) -> int | None:
    """Input and weight first. The weight of a transposed one begins with the channels of the input."""
    if not out or len(used) < 2 or len(used[1]) < 2:
        return None
    image, weight = used[0], used[1]
    transposed = weight[0] != out[0][1] if len(out[0]) > 1 else False
    return 2 * prod(image if transposed else out[0]) * prod(weight[1:])


def _convolution_backward(out: list[Shape], used: list[Shape]) -> int | None:
    """The operations of a convolution's backward: as many as forward for each gradient that is computed, of the input
    and of the weight."""
    if len(used) < 3 or len(used[2]) < 2:
        return None
    gradient, image, weight = used[:3]
    transposed = len(gradient) > 1 and weight[0] != gradient[1]
    wanted = sum(shape in (image, weight) for shape in out)
    return 2 * prod(image if transposed else gradient) * prod(weight[1:]) * wanted


def _attention(out: list[Shape], used: list[Shape]) -> int | None:
    if len(used) < 3 or any(len(shape) < 2 for shape in used[:3]):
        return None
    query, key, value = used[:3]
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention_backward(out: list[Shape], used: list[Shape]) -> int | None:
    """Scores again, two products for the gradient of the scores and of value, two for query and key."""
    if len(used) < 4 or any(len(shape) < 2 for shape in used[1:4]):
        return None
    query, key, value = used[1:4]
    return 2 * prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1])


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "addmv", "mv", "_scaled_mm"), _product),
    **dict.fromkeys(("linear", "linear_unary"), _linear),
    **dict.fromkeys(
        (
            "convolution",
            "_convolution",
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
        ),
        _convolution,
    ),
    "convolution_backward": _convolution_backward,
    "scaled_dot_product_attention": _attention,
}


def formula_of(target: str) -> Formula | None:
    """The formula for a target, as it is written in a graph: "aten.mm.default", "torch.nn.functional.linear",
    "matmul"."""
    parts = target.split(".")
    name = parts[1] if parts[0] in ("aten", "prims", "mkldnn") and len(parts) > 1 else parts[-1]
    if name.startswith("_scaled_dot_product") or name in ("_flash_attention_forward", "_flash_attention_backward"):
        return _attention_backward if name.endswith("_backward") else _attention
    return FORMULAS.get(name)


class Flops:
    """The count of a node, found once for the same target and shapes."""

    def __init__(self, text: Sequence[str]) -> None:
        self._text = text
        self._formulas: dict[int, Formula | None] = {}

    def counts(self, target: int) -> bool:
        """Whether a target (a position among the texts) has a formula at all."""
        if target not in self._formulas:
            self._formulas[target] = formula_of(self._text[target])
        return self._formulas[target] is not None

    def __call__(self, target: int, shape: Any, inputs: Sequence[Any]) -> int | None:
        formula = self._formulas[target] if self.counts(target) else None
        if formula is None:
            return None
        out, used = tensors(shape), [tensor_shape for item in inputs for tensor_shape in tensors(item)]
        if not all(isinstance(dim, int) for tensor_shape in (*out, *used) for dim in tensor_shape):
            return None
        return formula(out, used)


def tensors(shape: Any) -> list[list[Any]]:
    """The shapes of the tensors in a value: one for a tensor, several for a multi-output node."""
    if not isinstance(shape, list):
        return []
    items = cast("list[Any]", shape)
    if any(isinstance(item, list) or item is None for item in items):
        return [tensor_shape for item in items for tensor_shape in tensors(item)]
    return [items]
