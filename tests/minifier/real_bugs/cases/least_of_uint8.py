"""The least element of bytes: the vectorised reduction starts from a wrong value.

Source: https://github.com/pytorch/pytorch/issues/191499
"""

import torch

NUMBER, MODE = "016", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "accuracy"
CORE, MOST = ("amin",), 1
MATCH = "BUG: output 0: (error|.* elements)"


def f(x):
    return torch.amin(x)


def inputs():
    return (torch.tensor([5, 1, 100, 3, 7, 8, 9, 13, 100, 120, 127, 2, 6, 4, 11, 12, 90, 80] * 2, dtype=torch.uint8),)
