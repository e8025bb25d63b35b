"""`default_decompositions`: the operators that functorch takes apart before a debug compiler sees them, and how.

Backward formulas and activations become arithmetic that every compiler here knows. The same operators as functorch's
own table, each with torch's own decomposition, so results are the same.

>>> torch.ops.aten.tanh_backward.default in default_decompositions
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import torch_private as t

aten = torch.ops.aten

OPERATORS = (
    aten.detach, aten.is_same_size, aten.conj_physical,
    aten.masked_fill.Scalar, aten.masked_fill.Tensor,
    aten.elu, aten.leaky_relu, aten.hardtanh, aten.hardswish, aten.hardsigmoid,
    aten.gelu_backward, aten.leaky_relu_backward, aten.sigmoid_backward, aten.threshold_backward,
    aten.hardtanh_backward,
    aten.hardsigmoid_backward, aten.hardswish_backward, aten.tanh_backward, aten.silu_backward, aten.elu_backward,
    aten.cudnn_batch_norm, aten.cudnn_batch_norm_backward,
)  # fmt: skip
"""What is taken apart; a packet stands for all its overloads."""

default_decompositions: dict[Any, Callable[..., Any]] = t.get_decompositions(OPERATORS)
"""Overload -> its decomposition, as `torch.compile` and `aot_function` take it."""
