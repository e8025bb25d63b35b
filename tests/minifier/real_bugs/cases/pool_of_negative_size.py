"""Fractional max pooling with a kernel of size -2 in a U-Net: the windows hold nothing, lowering reduces over no
values.

Source: https://github.com/pytorch/pytorch/issues/188217
"""

import torch
from torch import nn
from torch.nn import functional as F

NUMBER, MODE = "106", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "reduce\\(\\) of empty"
CORE, MOST = ("fractional_max_pool2d",), 3


def f(x):
    y = F.fractional_max_pool2d(x, -2, output_size=(2, 2))
    return x + torch.nan_to_num(y, 0.0, 0.0, 0.0).mean((2, 3), keepdim=True)


def inputs():
    return (torch.randn(2, 16, 8, 8),)


class Twice(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.one, self.two = nn.Conv2d(before, after, 3, 1, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.first, self.second = nn.GroupNorm(4, after), nn.GroupNorm(4, after)

    def forward(self, x):
        return F.silu(self.second(self.two(F.silu(self.first(self.one(x))))))


class UNet(nn.Module):
    def __init__(self, width=8, depth=3):
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.start, self.end = Twice(3, width), nn.Conv2d(width, 3, 1)
        self.down = nn.ModuleList(Twice(widths[i], widths[i + 1]) for i in range(depth))
        self.up = nn.ModuleList(Twice(widths[i + 1] + widths[i], widths[i]) for i in reversed(range(depth)))

    def forward(self, x):
        kept = [self.start(x)]
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2)))
        x = f(kept.pop())
        for block in self.up:
            beside = kept.pop()
            x = block(torch.cat([F.interpolate(x, size=beside.shape[2:], mode="bilinear"), beside], 1))
        return self.end(x)


def middle():
    return UNet(), (torch.randn(2, 3, 32, 32),)
