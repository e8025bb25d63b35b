"""Recorded with dynamic shapes, which the failure does not need: acosh of a large double, as in `nan`.

Source: https://github.com/pytorch/pytorch/issues/198134
"""

import torch

KIND, HOST, MODE = "NaN, recorded with dynamic shapes", "mixture", "no_grad"
SAYS, CORE, MOST = "nan in compare", ("acosh",), 2
DTYPE = torch.float64


def f(x):
    return x + torch.acosh(x.abs() * 1e170 + 2) / 400, ()


def calls():
    return [(torch.randn(12, 10),), (torch.randn(7, 10),)]
