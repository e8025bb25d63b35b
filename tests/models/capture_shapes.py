"""Programs of the capture matrix with symbols: backed ones with guards, unbacked ones with checks, numbers as inputs.

>>> function, arguments = dynamic_batch()
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.models.capture_hops import Made


def dynamic_batch() -> Made:
    """A batch marked dynamic, with a guard on its size."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            return y.relu() if x.shape[0] > 3 else y

    x = torch.randn(5, 6)
    torch._dynamo.mark_dynamic(x, 0)
    return Module(), (x,)


def dynamic_divisible() -> Made:
    """A view that needs an even size, and arithmetic on sizes."""

    def f(x: Tensor) -> Tensor:
        y = x.view(2, -1, x.shape[1])
        return y.softmax(1) * (x.shape[0] // 2) + x.shape[1]

    x = torch.randn(8, 3)
    torch._dynamo.mark_dynamic(x, 0)
    return f, (x,)


def dynamic_ranges() -> Made:
    """Two inputs of one size within bounds, another unequal."""
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    for item in (x, y):
        torch._dynamo.mark_dynamic(item, 0, min=2, max=64)
    return lambda a, b: torch.cat([a, b, a[:2]]).cumsum(0), (x, y)


def nonzero() -> Made:
    """Rows chosen by a mask: a size that depends on data."""

    def f(x: Tensor) -> Tensor:
        rows = (x[:, 0] > 0).nonzero().squeeze(1)
        torch._check(rows.shape[0] <= x.shape[0])
        return x[rows].sin() * 2

    return f, (torch.randn(8, 3),)


def item_checked() -> Made:
    """A number read from a tensor, bounded by torch._check."""

    def f(x: Tensor, count: Tensor) -> Tensor:
        size = count.item()
        torch._check(size >= 2)
        torch._check(size <= x.shape[0])
        return x.narrow(0, 0, size).exp()

    return f, (torch.randn(8, 3), torch.tensor(5))


def items_split() -> Made:
    """Sizes of pieces read from a tensor."""

    def f(x: Tensor, sizes: Tensor) -> list[Tensor]:
        pieces = sizes.tolist()
        for size in pieces:
            torch._check_is_size(size)
            torch._check(size <= x.shape[0])
        return [part * 2 for part in torch.split(x, pieces)]

    return f, (torch.randn(9, 2), torch.tensor([4, 2, 3]))


def item_float() -> Made:
    """A floating number read from a tensor, used as a scale."""
    return lambda x, scale: (x * scale.item()).relu(), (torch.randn(4, 4), torch.tensor(0.5))


def repeat_interleave() -> Made:
    """Repeats whose sum is known only when it runs."""
    return lambda x, times: x.repeat_interleave(times, 0) + 1, (torch.randn(3, 2), torch.tensor([1, 3, 2]))


def rounded() -> Made:
    """Sizes and numbers of the input rounded, and put into a tensor."""

    def f(x: Tensor, n: int) -> Tensor:
        return x * round(x.shape[0] * 0.7) + torch.tensor([n, round(x.sum().item())]).sum()

    return f, (torch.randn(6), 3)


def int_inputs() -> Made:
    """Whole numbers as arguments, one of them a size; symbols under dynamic=True."""
    return lambda x, size, shift: torch.arange(size).float()[:, None] * x + shift, (torch.randn(3), 7, 4)


def mask_training() -> Made:
    """A boolean mask over an activation, in training: an unbacked size in forward and backward."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor, keep: Tensor) -> Tensor:
            return self.layer(x)[keep].square()

    return Module(), (torch.randn(6, 3), torch.tensor([True, False, True, True, False, True]))


def dynamic_conv() -> Made:
    """Strides and paddings on a dynamic height."""
    module = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    x: Any = torch.randn(1, 2, 9, 8)
    torch._dynamo.mark_dynamic(x, 2)
    return module, (x,)
