"""The lesser of -0.0 and 0.0 is -0.0 in eager, 0.0 in a kernel.

Source: https://github.com/pytorch/pytorch/issues/194347
"""

import torch

NUMBER, MODE = "019", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "signed zero"
CORE, MOST = ("minimum",), 1
MATCH = "zeros have the other sign"
INPUTS = "first"


def f(x, y):
    return torch.minimum(x, y)


def inputs():
    return torch.tensor([-0.0]), torch.tensor([0.0])
