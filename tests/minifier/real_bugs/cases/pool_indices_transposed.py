"""Indices of an adaptive maximum over a transposed image count along the wrong dimension.

Source: https://github.com/pytorch/pytorch/issues/197434
"""

import torch
import torch.nn.functional as F

NUMBER, MODE = "031", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "accuracy"
CORE, MOST = ("max_pool",), 2
MATCH = "BUG: output"


def f(x):
    return F.adaptive_max_pool2d(x, (2, 2), return_indices=True)[1]


def inputs():
    return (torch.randn(2, 4, 12, 12).transpose(2, 3),)
