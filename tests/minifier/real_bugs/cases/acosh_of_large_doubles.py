"""`acosh` of a large double overflows in a vectorised kernel; the middle is a dense graph network.

Source: https://github.com/pytorch/pytorch/issues/198134
"""

import torch
import torch.nn.functional as F
from torch import nn

NUMBER, MODE = "111", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "nan in compare"
CORE, MOST = ("acosh",), 2
MATCH = "NaN or infinite"


def f(x):
    return x + torch.acosh(x.abs() * 1e170 + 2) / 400


def inputs():
    return (torch.randn(30, 16, dtype=torch.float64),)


class Network(nn.Module):
    def __init__(self, layers=6, width=16):
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.near = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.out = nn.Linear(width, 3)

    def forward(self, x, edges):
        degree = edges.sum(1, keepdim=True).clamp(min=1)
        for number in range(len(self.own)):
            x = self.norm[number](x + F.silu(self.own[number](x) + self.near[number](edges @ x / degree)))
            if number == len(self.own) // 2:
                x = f(x)
        return self.out(x)


def middle():
    edges = (torch.rand(30, 30) > 0.7).double()
    return Network().double(), (torch.randn(30, 16, dtype=torch.float64), edges)
