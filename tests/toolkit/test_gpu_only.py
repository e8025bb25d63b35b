"""Fused attention and cuDNN's batch norm on the CPU, against torch's own CPU operators and autograd, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from graphdbg.toolkit.live import gpu_only

aten = torch.ops.aten


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    if torch.cuda.is_available():
        pytest.skip("the operators have kernels of their own here")
    gpu_only.register()


def flash(q: Tensor, k: Tensor, v: Tensor, go: Tensor, causal: bool) -> tuple[Tensor, Any]:
    r = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    return r[0], aten._scaled_dot_product_flash_attention_backward(go, q, k, v, *r[:6], 0.0, causal, r[6], r[7])


def efficient(q: Tensor, k: Tensor, v: Tensor, go: Tensor, causal: bool) -> tuple[Tensor, Any]:
    r = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    mask = [True, True, True, False]
    return r[0], aten._scaled_dot_product_efficient_attention_backward(go, q, k, v, None, *r, 0.0, mask, causal)


def cudnn(q: Tensor, k: Tensor, v: Tensor, go: Tensor, causal: bool) -> tuple[Tensor, Any]:
    r = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
    return r[0], aten._scaled_dot_product_cudnn_attention_backward(
        go, q, k, v, r[0], r[1], r[6], r[7], None, r[2], r[3], r[4], r[5], 0.0, causal
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("operator", [flash, efficient, cudnn])
def test_attention_and_its_gradients(operator: Callable[..., Any], causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 16, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    go = torch.randn_like(wanted)
    gradients = torch.autograd.grad(wanted, (q, k, v), go)
    out, got = operator(q.detach(), k.detach(), v.detach(), go, causal)
    torch.testing.assert_close(out, wanted.detach())
    for item, other in zip(got[:3], gradients, strict=True):
        torch.testing.assert_close(item, other)


def test_a_bias_has_a_gradient() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 8, 8, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(1, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    go = torch.randn_like(wanted)
    (gradient,) = torch.autograd.grad(wanted, bias, go)
    r = aten._scaled_dot_product_efficient_attention(q, k, v, bias.detach(), True)
    got = aten._scaled_dot_product_efficient_attention_backward(go, q, k, v, bias.detach(), *r, 0.0, [True] * 4)
    torch.testing.assert_close(got[3], gradient)


def test_dropout_drops_the_same_in_every_run() -> None:
    q, k, v = (torch.randn(1, 2, 64, 8) for _ in range(3))
    item, other, whole = (aten._scaled_dot_product_flash_attention(q, k, v, p)[0] for p in (0.5, 0.5, 0.0))
    assert torch.equal(item, other) and not torch.allclose(item, whole)


def test_batch_norm_and_its_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    weight, bias = torch.rand(3, requires_grad=True), torch.randn(3, requires_grad=True)
    means = torch.zeros(3), torch.ones(3)
    mine = [mean.clone() for mean in means]
    wanted = F.batch_norm(x, *means, weight, bias, True, 0.1, 1e-5)
    go = torch.randn_like(wanted)
    gradients = torch.autograd.grad(wanted, (x, weight, bias), go)
    result = aten.cudnn_batch_norm(x.detach(), weight.detach(), bias.detach(), *mine, True, 0.1, 1e-5)
    torch.testing.assert_close(result[0], wanted.detach())
    torch.testing.assert_close(mine[0], means[0])
    got = aten.cudnn_batch_norm_backward(x.detach(), go, weight.detach(), *mine, result[1], result[2], 1e-5, result[3])
    for item, other in zip(got, gradients, strict=True):
        torch.testing.assert_close(item, other)


def test_what_a_graph_uses_is_named() -> None:
    graph = fx.Graph()
    q = graph.placeholder("q")
    call = graph.call_function(aten._scaled_dot_product_flash_attention.default, (q, q, q))
    graph.output(graph.call_function(torch.ops.aten.relu.default, (call,)))
    assert gpu_only.used(fx.GraphModule({}, graph)) == ["_scaled_dot_product_flash_attention"]
