"""One column sum of a half matrix, written twice: the C++ kernel declares its accumulator twice.

Source: https://github.com/pytorch/pytorch/issues/194706
"""

import torch

NUMBER, MODE = "007", "no_grad"
RUNGS = ("inductor",)
SAYS = "conflicting declaration"
CORE, MOST = ("sum", "sum"), 5


def f(a):
    return a.sum(0) + a, a.sum(0) * a


def inputs():
    return (torch.rand(40, 64).half(),)
