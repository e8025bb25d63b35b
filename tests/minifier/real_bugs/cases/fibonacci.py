"""Sums and products of the two values before, fourteen deep: inlined pointwise code doubles at each step.

Source: https://github.com/pytorch/pytorch/issues/148073
"""

import torch

NUMBER, MODE = "010", "grad"
RUNGS = ("inductor_nofuse", "inductor")
CHECK, SAYS = "hang", "hang"
CORE, MOST = ("add", "mul"), 60


def f(a, b):
    values = [a, b]
    for _ in range(13):
        total, product = values[-1] + values[-2], values[-1] * values[-2]
        values += [total, product]
    return values[-2] + values[-1]


def inputs():
    return torch.zeros((), requires_grad=True), torch.zeros((), requires_grad=True)
