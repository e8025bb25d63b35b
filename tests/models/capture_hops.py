"""Programs of the capture matrix with higher-order operators and custom operators. Each builder gives (function,
arguments).

Importing this registers the custom operators `capture_matrix::*`.

>>> function, arguments = cond()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def cond() -> Made:
    """torch.cond on a value, both branches with a closure."""
    weight = torch.randn(4, 4)

    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: (y @ weight).sin(), lambda y: (y - weight).cos(), (x,)) * 2

    return f, (torch.randn(4, 4),)


def cond_nested() -> Made:
    """A branch that branches again."""

    def inner(y: Tensor) -> Tensor:
        return torch.cond(y.max() > 1, lambda z: z.exp(), lambda z: z.tanh(), (y,))

    return lambda x: torch.cond(x.mean() > 5, lambda y: y * 3, inner, (x,)), (torch.randn(3, 5),)


def cond_training() -> Made:
    """Gradients through both branches."""
    layer = nn.Linear(4, 4)

    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: layer(y).sin(), lambda y: layer(y) * 2, (x,))

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return f(x)

    return Module(), (torch.randn(3, 4),)


def while_loop() -> Made:
    """A loop until a counter runs out, with a tensor carried along."""
    from torch._higher_order_ops.while_loop import while_loop as loop

    def f(count: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return loop(lambda i, _: i > 0, lambda i, y: (i - 1, y * 1.5 + i), (count, x))

    return f, (torch.tensor(4), torch.randn(3, 3))


def scan() -> Made:
    """A running combination along a dimension."""
    from torch._higher_order_ops.scan import scan as run

    def f(start: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
        return run(lambda carry, x: (carry * 0.5 + x, (carry + x).sin()), start, xs)

    return f, (torch.randn(3), torch.randn(5, 3))


def mapped() -> Made:
    """A function mapped over a dimension."""
    from torch._higher_order_ops.map import map as run

    return lambda xs, y: run(lambda x, z: (x + z).relu(), xs, y), (torch.randn(4, 3), torch.randn(3))


def associative_scan() -> Made:
    """A parallel prefix sum with decay."""
    from torch._higher_order_ops.associative_scan import associative_scan as run

    return lambda xs: run(lambda a, b: a * 0.5 + b, xs, 0, combine_mode="generic"), (torch.randn(6, 3),)


def flex_attention() -> Made:
    """Flex attention with a causal block mask and a score modification."""
    from torch.nn.attention.flex_attention import create_block_mask
    from torch.nn.attention.flex_attention import flex_attention as run

    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device="cpu")

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return run(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.01, block_mask=mask)

    return f, tuple(torch.randn(1, 2, 128, 16) for _ in range(3))


def checkpointed() -> Made:
    """A checkpointed region, recomputed in the backward."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(lambda y: self.down(F.gelu(self.up(y))), x, use_reentrant=False) + x

    return Module(), (torch.randn(4, 8),)


def invoke_subgraph() -> Made:
    """One region compiled once and called twice."""
    layer = nn.Linear(8, 8)

    @torch.compiler.nested_compile_region
    def region(x: Tensor, weight: Tensor) -> Tensor:
        return (x @ weight).sin() + x

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return region(region(x, self.layer.weight), self.layer.weight)

    return Module(), (torch.randn(4, 8),)


def _register() -> None:
    if hasattr(torch.ops.capture_matrix, "add_into"):
        return

    @torch.library.custom_op("capture_matrix::add_into", mutates_args=("out",))
    def add_into(x: Tensor, out: Tensor) -> None:
        out += x.sin()

    @torch.library.custom_op("capture_matrix::scale", mutates_args=())
    def scale(x: Tensor, factor: float) -> Tensor:
        return x * factor

    scale.register_fake(lambda x, factor: torch.empty_like(x))
    scale.register_autograd(
        lambda ctx, grad: (scale(grad, ctx.factor), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )

    @torch.library.custom_op("capture_matrix::where_list", mutates_args=())
    def where_list(x: Tensor) -> list[Tensor]:
        return [x.clone(), x.flip(0)]

    where_list.register_fake(lambda x: [torch.empty_like(x), torch.empty_like(x)])


_register()


def auto_functionalized() -> Made:
    """A custom operator that writes to its argument: becomes auto_functionalized_v2, and is put back in place later."""

    def f(x: Tensor, out: Tensor) -> Tensor:
        mine = out + 1
        torch.ops.capture_matrix.add_into(x, mine)
        return mine * 2

    return f, (torch.randn(4, 3), torch.randn(4, 3))


def auto_functionalized_input() -> Made:
    """The same, on a view of an input: the write reaches the caller."""

    def f(x: Tensor, out: Tensor) -> Tensor:
        torch.ops.capture_matrix.add_into(x, out[1])
        return out.sum(0)

    return f, (torch.randn(3), torch.randn(4, 3))


def custom_op() -> Made:
    """A functional custom operator with a backward of its own."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.capture_matrix.scale(self.layer(x), 0.5).relu()

    return Module(), (torch.randn(3, 4),)


def custom_op_list() -> Made:
    """A custom operator that returns a list."""
    return lambda x: sum(torch.ops.capture_matrix.where_list(x * 2)), (torch.randn(5, 2),)
