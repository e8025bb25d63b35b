"""`ldexp` of a half and a float is a float in eager and a half in compiled code.

Source: https://github.com/pytorch/pytorch/issues/197091
"""

import torch

NUMBER, MODE = "037", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "dtype"
CORE, MOST = ("ldexp|mul",), 2
MATCH = "torch.float16"


def f(x, y):
    return torch.ldexp(x, y)


def inputs():
    return torch.randn(3, 4).half(), torch.randn(3, 4)
