"""Functions of tensors: views and writes, indices, integers, complex numbers, transforms of torch.func, control flow.

python functions.py hessian
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return torch.compile(function, **options)(*arguments)


def written_view() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y[1:, ::2] = 0
        y.t()[0].add_(1)
        y.diagonal().fill_(3)
        return y

    _call(f, torch.randn(4, 6))


def written_input() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        y[0].copy_(x[1])
        return x.sum() + y

    _call(f, torch.randn(3, 4), torch.randn(2, 4))


def written_not_leaf() -> None:
    x = torch.randn(4, 4, requires_grad=True) * 2
    _call(lambda y: y.mul_(3).relu_() + 1, x).sum().backward()


def overlapping_views() -> None:
    base = torch.arange(12.0)

    def f(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return a[2:] * b[:-2]

    _call(f, base[:8], base[2:10])


def expanded_and_unfolded() -> None:
    _call(
        lambda x: x.expand(3, 4, 5).unfold(2, 2, 1).sum(-1) + x[None].as_strided((3, 4, 4), (0, 5, 1)),
        torch.randn(4, 5),
    )


def resized_output() -> None:
    def f(x: Tensor) -> Tensor:
        out = torch.empty(0)
        torch.mul(x, 2, out=out)
        return out + 1

    _call(f, torch.randn(3, 3))


def split_and_joined() -> None:
    def f(x: Tensor) -> Tensor:
        a, b, c = x.split([1, 2, 3], 1)
        return torch.cat([torch.hstack([c, a]), F.pad(b, (0, 2), value=1.0)], 0).movedim(0, 1)

    _call(f, torch.randn(3, 6))


def zero_dim_index() -> None:
    _call(lambda x, i: x[i] + x[:, i], torch.randn(4, 4), torch.tensor(2))


def index_put_accumulated() -> None:
    def f(x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        return torch.zeros(4, 5).index_put((rows, cols), x, accumulate=True).index_fill(0, rows[:1], 2.0)

    _call(f, torch.randn(6), torch.randint(0, 4, (6,)), torch.randint(0, 5, (6,)))


def scatters() -> None:
    def f(x: Tensor, index: Tensor) -> Tensor:
        start = torch.ones(4, 5)
        kinds = [
            start.scatter_reduce(0, index, x, kind, include_self=False) for kind in ("sum", "amax", "mean", "prod")
        ]
        return torch.stack([*kinds, start.scatter_add(0, index, x)])

    _call(f, torch.rand(6, 5), torch.randint(0, 4, (6, 5)))


def masked() -> None:
    def f(x: Tensor, keep: Tensor) -> Tensor:
        return torch.where(keep, x, -x).masked_fill(~keep, 0.0).masked_scatter(keep, torch.arange(20.0))

    _call(f, torch.randn(4, 5), torch.rand(4, 5) > 0.5)


def boolean_mask_rows() -> None:
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    _call(lambda x: x[x.sum(1) > 0].mean(0), torch.randn(8, 3))


def item_sized() -> None:
    torch._dynamo.config.capture_scalar_outputs = True

    def f(x: Tensor, n: Tensor) -> Tensor:
        size = n.item()
        torch._check(size > 0)
        return torch.zeros(size) + x.sum()

    _call(f, torch.randn(4), torch.tensor(3))


def item_breaks() -> None:
    _call(lambda x, n: x[: int(n)] * 2, torch.randn(6), torch.tensor(4))


def sorted_and_chosen() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        values, order = x.sort(1, descending=True)
        return values, order, *x.topk(2), x.argmax(1), *x.median(1), *x.cummax(1), x.kthvalue(2).values

    _call(f, torch.randn(4, 6))


def searched_and_counted() -> None:
    def f(x: Tensor, edges: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.bucketize(x, edges),
            torch.searchsorted(edges, x, right=True),
            torch.bincount(edges.long(), minlength=9),
        )

    _call(f, torch.rand(5) * 8, torch.arange(8.0))


def integers() -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x // y, x % y, x & y, x ^ 3, x << 2, -x >> 1, x.div(y, rounding_mode="trunc"), x.gcd(y), (x * y).sum()

    _call(f, torch.randint(-9, 9, (12,)), torch.randint(1, 5, (12,)))


def small_integers() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x + 200, x.to(torch.int16) * 300, x.float() / 3, x.sum(), x.bitwise_not()

    _call(f, torch.randint(0, 255, (12,), dtype=torch.uint8))


def booleans() -> None:
    _call(
        lambda x, y: ((x > 0) & (y > 0) | x.isnan(), (x > y).any(0), (x == y).all(), (x > 0).sum()),
        *torch.randn(2, 3, 4),
    )


def complex_product() -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x * y.conj(), (x @ y.t()).abs(), x.angle(), torch.view_as_real(x).sum(), x.exp().real

    _call(f, *(torch.randn(3, 3, dtype=torch.complex64) for _ in range(2)))


def fourier() -> None:
    x = torch.randn(3, 8, requires_grad=True)
    _call(lambda y: torch.fft.irfft(torch.fft.rfft(y) * torch.hann_window(5), n=8).square().sum(), x).backward()


def short_time_fourier() -> None:
    _call(lambda x: torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).abs(), torch.randn(2, 32))


def doubles() -> None:
    _call(lambda x: (x.double().cumsum(0).sin(), x.to(torch.float16).exp(), x.bfloat16().sum()), torch.randn(5, 4))


def special_functions() -> None:
    _call(lambda x: (x.erf(), (x + 1).lgamma(), (x + 1).digamma(), torch.special.i0(x), (-x).expm1()), torch.rand(9))


def reductions() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.var(1), x.std(), x.norm(dim=0), x.prod(1), x.amax((0, 1)), x.logsumexp(0), x.cumprod(1), x.nanmean()

    _call(f, torch.randn(4, 7))


def random_numbers() -> None:
    _call(
        lambda x: (
            torch.rand_like(x),
            torch.randint(0, 9, (4,)),
            torch.randn(3) + x[:3, 0],
            torch.bernoulli(x.sigmoid()),
        ),
        torch.randn(4, 4),
    )


def vmapped() -> None:
    _call(torch.func.vmap(lambda x, w: (w @ x).softmax(-1), in_dims=(0, None)), torch.randn(5, 3), torch.randn(4, 3))


def func_gradient() -> None:
    _call(torch.func.grad(lambda x: (x.sin() * x).sum()), torch.randn(5))


def per_sample_gradients() -> None:
    layer = torch.nn.Linear(4, 2)
    given = {name: item.detach() for name, item in layer.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, weights, (x,)).square().sum()

    _call(torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0)), given, torch.randn(5, 4))


def jacobian() -> None:
    _call(torch.func.jacrev(lambda x: x.sin().cumsum(0)), torch.randn(4))


def jacobian_forward() -> None:
    _call(torch.func.jacfwd(lambda x: x.exp() * x.sum()), torch.randn(4))


def hessian() -> None:
    _call(torch.func.hessian(lambda x: (x**3).sum() * x[0]), torch.randn(4))


def conditional() -> None:
    _call(lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos() * 2, (x,)) + 1, torch.randn(4))


def looped() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    _call(
        lambda n, x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (n, x)),
        torch.tensor(0),
        torch.randn(3),
    )


def flex_sliding() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 32), None, None, 128, 128, device="cpu")
    _call(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), *torch.randn(3, 1, 2, 128, 16))


def nested_region() -> None:
    @torch.compiler.nested_compile_region
    def region(x: Tensor, w: Tensor) -> Tensor:
        return F.gelu(x @ w)

    w = torch.randn(4, 4, requires_grad=True)
    _call(lambda x: region(region(x, w), w).sum(), torch.randn(3, 4)).backward()


def numpy_inside() -> None:
    import numpy as np

    _call(lambda x: torch.from_numpy(np.clip(x.numpy(), -1, 1) * 2), torch.randn(5))


def inference_mode() -> None:
    with torch.inference_mode():
        _call(lambda x: x.view(-1).sigmoid() + 1, torch.randn(3, 4))


def wrapped_outputs() -> None:
    _call(
        lambda x, named: {"a": [x + 1, None], "b": (named["y"].sum(), 3)}, torch.randn(3), {"y": torch.randn(2), "z": 4}
    )


def empty_and_scalar() -> None:
    _call(lambda x, y: (x.sum(), torch.cat([x, y]), y * 2, x.new_ones(())), torch.zeros(0), torch.tensor([1.5]))


def recompiled_types() -> None:
    compiled = torch.compile(lambda x, scale=2: x * scale)
    for x in (torch.randn(3), torch.arange(3), torch.randn(3, 2), torch.randn(3, dtype=torch.float64)):
        compiled(x)
    compiled(torch.randn(3), scale=3.5)


def lists_of_tensors() -> None:
    _call(lambda many: torch.stack(torch._foreach_mul(many, 2.0)).sum(0), [torch.randn(3) for _ in range(4)])


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
