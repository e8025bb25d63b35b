"""Ours beside torch's `extract_compiled_graph`: what that takes, ours takes with the same numbers; what falls back is
named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.compilers import lazy_compile, lazy_tracing
from graphdbg.toolkit.compilers.lazy_tracing import NotExtractedError

X, W = torch.linspace(0.1, 2, 12).reshape(3, 4), torch.linspace(-1, 1, 16).reshape(4, 4)
PLACES = torch.tensor([0, 2])
IMAGE, KERNEL = torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4), torch.linspace(-1, 1, 81).reshape(3, 3, 3, 3)
F = torch.nn.functional

OPS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (X, W)),
    "addmm": (torch.addmm, (W[0], X, W)),
    "mul": (torch.mul, (X, X)),
    "relu": (torch.relu, (X,)),
    "gelu": (F.gelu, (X,)),
    "silu": (F.silu, (X,)),
    "sigmoid": (torch.sigmoid, (X,)),
    "tanh": (torch.tanh, (X,)),
    "sin": (torch.sin, (X,)),
    "exp": (torch.exp, (X,)),
    "log": (torch.log, (X,)),
    "rsqrt": (torch.rsqrt, (X,)),
    "erf": (torch.erf, (X,)),
    "where": (lambda x: torch.where(x > 1, x, 0.0), (X,)),
    "sum": (lambda x: x.sum(-1), (X,)),
    "mean": (lambda x: x.mean(-1), (X,)),
    "amax": (lambda x: x.amax(-1), (X,)),
    "var": (lambda x: x.var(-1), (X,)),
    "softmax": (lambda x: x.softmax(-1), (X,)),
    "layer_norm": (lambda x: F.layer_norm(x, [4]), (X,)),
    "permute": (lambda x: x.permute(1, 0) * 2, (X,)),
    "expand": (lambda x: x[None].expand(2, 3, 4) * 2, (X,)),
    "cat": (lambda x: torch.cat([x, x]), (X,)),
    "slice": (lambda x: x[1:] * 2, (X,)),
    "index": (lambda x, i: x[i], (X, PLACES)),
    "embedding": (lambda i, w: F.embedding(i, w), (PLACES, W)),
    "split": (lambda x: x.split(1)[0] * 2, (X,)),
    "topk": (lambda x: x.topk(2)[0], (X,)),
    "argmax": (lambda x: x.argmax(-1), (X,)),
    "cumsum": (lambda x: x.cumsum(0), (X,)),
    "conv2d": (lambda x, k: torch.conv2d(x, k, padding=1), (IMAGE, KERNEL)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,)),
    "add_": (lambda x: x.add_(1), (X,)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (IMAGE,)),
    "clone": (torch.clone, (X,)),
    "full": (lambda x: torch.full((4,), 2.0) + x, (X,)),
    "constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), (X,)),
    "twice": (lambda x: (lambda h: (h, h))(x + 1), (X,)),
    "half": (lambda x: x.half(), (X,)),
}


def clones(values: Any) -> list[Any]:
    return [value.clone() for value in values]


def stocks(gm: fx.GraphModule, given: tuple[torch.Tensor, ...]) -> Callable[..., Any] | str:
    """What stock compiles, or why it does not."""
    from torch._lazy.extract_compiled_graph import extract_compiled_graph

    lazy_tracing.start_lazy()
    try:
        return extract_compiled_graph(copy.deepcopy(gm), clones(given))
    except RuntimeError as error:
        return str(error)


def test_forty_operators() -> None:
    extracted, refused = [], []
    for name, (function, given) in OPS.items():
        gm = make_fx(lambda *args, called=function: called(*args))(*clones(given))
        stock = stocks(gm, given)
        if isinstance(stock, str):
            fallbacks = {part.partition("=")[0] for part in stock.rpartition("fallback: ")[2].split(",")}
            try:
                lazy_compile(gm, given)
            except NotExtractedError as error:
                assert {fallback.op for fallback in error.fallbacks} == fallbacks, name
                refused.append(name)
            continue
        item, other = clones(given), clones(given)
        results, wanted = stock(*item), lazy_compile(gm, given)(other)
        for left, right in zip(results, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
            assert torch.equal(left, right), name
        assert all(torch.equal(left, right) for left, right in zip(item, other, strict=True)), name
        extracted.append(name)
    assert {"sin", "where"} <= set(refused)
    assert len(extracted) >= 30
    assert len(extracted) + len(refused) == len(OPS)


def test_where_stock_is_wrong_ours_is_not() -> None:
    """Two equal numbers in memory are one to stock; what an optimizer writes is not seen; an update by `copy_` falls
    back."""
    gm = make_fx(lambda x, s, r: x * s + r)(X, torch.ones(()), torch.ones(()))
    given = [X, torch.tensor(2.0), torch.tensor(3.0)]
    assert torch.equal(lazy_compile(gm, [X, torch.ones(()), torch.ones(())])(given), X * 2 + 3)

    net = torch.nn.Linear(4, 4)
    compiled = lazy_compile(fx.symbolic_trace(net), [X])
    with torch.no_grad():
        net.weight.mul_(2)
    torch.testing.assert_close(compiled([X]), net(X).detach())

    copied = make_fx(lambda x: x.copy_(x + 1))(X.clone())
    x = X.clone()
    lazy_compile(copied, [x])([x])
    assert torch.equal(x, X + 1)
