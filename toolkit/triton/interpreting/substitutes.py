# pyright: basic
"""Operators that only a GPU has, for a wrapper that runs on the CPU: the same mathematics by operators that both have.

To add one: a function here with the operator's arguments, and a row of SUBSTITUTES. One that is missing is refused by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...rungs.base import CannotRun

SIZED_OTHERWISE = frozenset({"torch.ops.aten._embedding_bag.default", "torch.ops.aten._embedding_bag_forward_only.default"})
"""Operators that leave results empty on the CPU that a GPU fills, which only their own backward reads (an empty input of a
backward is such a one)."""
Maybe = torch.Tensor | None


def _scores(
    query: torch.Tensor, key: torch.Tensor, bias: Maybe, dropout: float, causal: bool, scale: float | None
) -> torch.Tensor:
    if dropout:
        raise CannotRun("attention with dropout draws numbers that only the GPU's own operator draws")
    if query.shape[1] != key.shape[1]:
        raise CannotRun("attention with fewer heads of keys than of queries, by an operator that only a GPU has")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    made = query.float() @ key.float().transpose(-1, -2) * factor
    if bias is not None:
        made = made + bias.float()
    if causal:
        keep = torch.ones(made.shape[-2:], dtype=torch.bool).tril()
        made = made.masked_fill(~keep, -math.inf)
    return made


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Maybe, dropout: float, causal: bool, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithm of each row's sum, as the fused operators save it."""
    scores = _scores(query, key, bias, dropout, causal, scale)
    return (scores.softmax(-1) @ value.float()).to(query.dtype), scores.logsumexp(-1)


def _backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Maybe, dropout: float, causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Gradients of query, key, value and scores."""
    weights = _scores(query, key, bias, dropout, causal, scale).softmax(-1)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    of_weights = grad.float() @ value.float().transpose(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
    of_query, of_key = of_scores @ key.float() * factor, of_scores.transpose(-1, -2) @ query.float() * factor
    of_value = weights.transpose(-1, -2) @ grad.float()
    return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype), of_scores


def _flash(query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *,
           scale: float | None = None) -> Any:  # fmt: skip
    made, sums = _forward(query, key, value, None, dropout_p, is_causal, scale)
    state = torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64), torch.empty(0, dtype=query.dtype)
    return made, sums, None, None, query.shape[2], key.shape[2], *state


def _flash_backward(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, cum_seq_q: Any, cum_seq_k: Any,
                    max_q: Any, max_k: Any, dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *,
                    scale: float | None = None) -> Any:  # fmt: skip
    return _backward(grad_out, query, key, value, None, dropout_p, is_causal, scale)[:3]


def _efficient(query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, dropout_p: float = 0.0,
               is_causal: bool = False, *, scale: float | None = None) -> Any:  # fmt: skip
    made, sums = _forward(query, key, value, attn_bias, dropout_p, is_causal, scale)
    rows = -(-query.shape[2] // 32) * 32 if compute_log_sumexp else 0  # in whole warps
    padded = torch.full((*sums.shape[:2], rows), math.inf)
    padded[..., : min(rows, sums.shape[2])] = sums[..., :rows]
    return made, padded, torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)


def _efficient_backward(grad_out_: Any, query: Any, key: Any, value: Any, attn_bias: Any, out: Any, logsumexp: Any,
                        philox_seed: Any, philox_offset: Any, dropout_p: float, grad_input_mask: Any, is_causal: bool = False, *,
                        scale: float | None = None) -> Any:  # fmt: skip
    *made, of_scores = _backward(grad_out_, query, key, value, attn_bias, dropout_p, is_causal, scale)
    of_bias = None if attn_bias is None else of_scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype)
    return tuple(one if wanted else None for one, wanted in zip((*made, of_bias), grad_input_mask, strict=True))


def _cudnn(query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, dropout_p: float = 0.0,
           is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None) -> Any:  # fmt: skip
    made, sums = _forward(query, key, value, attn_bias, dropout_p, is_causal, scale)
    state = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64), torch.empty(0, dtype=query.dtype)
    return made, sums.unsqueeze(-1), None, None, query.shape[2], key.shape[2], *state


def _cudnn_backward(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, philox_seed: Any,
                    philox_offset: Any, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any, max_q: Any, max_k: Any, dropout_p: float,
                    is_causal: bool, *, scale: float | None = None) -> Any:  # fmt: skip
    return _backward(grad_out, query, key, value, attn_bias, dropout_p, is_causal, scale)[:3]


_aten = torch.ops.aten
SUBSTITUTES: dict[Any, Callable[..., Any]] = {
    _aten._scaled_dot_product_flash_attention.default: _flash,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _aten._scaled_dot_product_efficient_attention.default: _efficient,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _aten._scaled_dot_product_cudnn_attention.default: _cudnn,
    _aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_backward,
}
"""Operator overload -> function."""


def called(operator: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives on the CPU. Raises CannotRun, by its name, for one that only a GPU has."""
    substitute = SUBSTITUTES.get(operator)
    if substitute is not None:
        return substitute(*args, **kwargs)
    try:
        return operator(*args, **kwargs)
    except NotImplementedError as error:
        if "Could not run" not in str(error):
            raise
        raise CannotRun(f"{operator} has no kernel for the CPU, and nothing here stands for it") from error
