"""Batch statistics taken twice in a decoder in float16: the same accumulator is declared twice in one C++ kernel.

Source: https://github.com/pytorch/pytorch/issues/194706
"""

import torch

NUMBER, MODE, IN_LAYER = "101", "no_grad", True
RUNGS = ("inductor",)
SAYS = "conflicting declaration"
CORE, MOST = ("sum", "sum"), 8
DTYPE = torch.float16


def f(x):
    flat = x.reshape(-1, x.shape[-1])
    centred = flat - flat.sum(0) / flat.shape[0]
    return (centred * (flat.sum(0) / flat.shape[0]).sigmoid()).view(x.shape) + x


def inputs():
    return (torch.randn(2, 16, 32).half(),)
