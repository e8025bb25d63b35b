"""Wrong gradient: the backward recomputes the unrounded quotient and finds no element that equals the rounded maximum.

Source: https://github.com/pytorch/pytorch/issues/195214
"""

import torch

KIND, HOST, MODE = "wrong gradient", "gru", "grad"
SAYS, CORE, MOST = "nan|accuracy", ("div|mul|add", "amax"), 5


def f(x):
    return x + (x.to(torch.bfloat16) / 1.7).amax(-1, keepdim=True).to(x.dtype), ()
