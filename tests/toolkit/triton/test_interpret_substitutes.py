"""Operators that only a GPU has, by other means on the CPU, beside torch's own attention and its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from torch.nn.functional import scaled_dot_product_attention

from graphdbg.toolkit.live.gpu_only import KERNELS
from graphdbg.toolkit.rungs import CannotRun
from graphdbg.toolkit.triton.interpreting.on_cpu import called

from .interpreted import compare, run

aten = torch.ops.aten
torch.manual_seed(0)
Q, K, V, G = (torch.randn(2, 3, 8, 16) for _ in range(4))
BIAS = torch.randn(2, 3, 8, 8)
OWN = {
    "flash": (Q, K, V, 0.0, True),
    "efficient": (Q, K, V, BIAS, True, 0.0, True),
    "cudnn": (Q, K, V, BIAS, True, 0.0, True),
}


@pytest.mark.parametrize("kind", OWN)
def test_attention_of_a_gpu_is_attention(kind: str) -> None:
    given = [item.clone().requires_grad_() for item in (Q, K, V)]
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    bias = torch.zeros(8, 8).masked_fill(~mask, -torch.inf) + (0 if kind == "flash" else BIAS)
    wanted = scaled_dot_product_attention(*given, attn_mask=bias)
    gradients = torch.autograd.grad(wanted, given, G)
    forward: Any = getattr(aten, f"_scaled_dot_product_{kind}_attention").default
    backward: Any = getattr(aten, f"_scaled_dot_product_{kind}_attention_backward").default
    result = called(forward, OWN[kind], {})
    assert len(result) == len(forward._schema.returns)
    compare([result[0]], [wanted.detach()], 1e-5, 1e-5)
    saved = {"out": result[0], "logsumexp": result[1], "dropout_p": 0.0, "is_causal": True}
    saved |= {"attn_bias": None if kind == "flash" else BIAS, "grad_input_mask": [True] * 4}
    saved |= {"max_q": 8, "max_k": 8, "grad_out": G, "grad_out_": G, "query": Q, "key": K, "value": V}
    names = [argument.name for argument in backward._schema.arguments if not argument.kwarg_only]
    compare(list(called(backward, [saved.get(name) for name in names], {}))[:3], list(gradients), 1e-4, 1e-5)


def test_a_kernel_behind_such_an_operator_runs() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return aten._scaled_dot_product_flash_attention(q.sin(), k, v)[0] * 2

    got = run(attend, Q, K, V, mode="fake")[0]
    compare([got], [scaled_dot_product_attention(Q.sin(), K, V) * 2], 1e-5, 1e-5)


def test_dropout_is_the_same_for_eager_and_for_kernels() -> None:
    """A kernel that reads attention with dropout is judged: both draw what `gpu_only` draws."""
    item, other = (called(aten._scaled_dot_product_flash_attention.default, (Q, K, V, 0.5), {})[0] for _ in range(2))
    assert torch.equal(item, other)
    assert not torch.allclose(item, called(aten._scaled_dot_product_flash_attention.default, (Q, K, V), {})[0])


def test_what_nothing_stands_for_is_refused_by_name() -> None:
    with pytest.raises(CannotRun, match=r"aten\.cudnn_convolution\.default has no kernel for the CPU"):
        given = (torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), [0, 0], [1, 1], [1, 1], 1, False, False, False)
        called(aten.cudnn_convolution.default, given, {})


def test_each_finds_its_arguments_among_those_of_its_operator() -> None:
    for name in KERNELS:
        there = {argument.name for argument in getattr(aten, name).default._schema.arguments}
        if "attention" in name:
            assert {"query", "key", "value", "dropout_p", "is_causal", "scale"} <= there, name
            assert ("flash" in name) == ("attn_bias" not in there), name
            assert name.endswith("backward") == bool({"grad_out", "grad_out_"} & there and "out" in there), name
    names = {name: [argument.name for argument in getattr(aten, name).default._schema.arguments] for name in KERNELS}
    assert names["cudnn_batch_norm"] == [
        "input",
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "training",
        "exponential_average_factor",
        "epsilon",
    ]
    assert names["cudnn_batch_norm_backward"] == [
        "input",
        "grad_output",
        "weight",
        "running_mean",
        "running_var",
        "save_mean",
        "save_var",
        "epsilon",
        "reserveSpace",
    ]
