"""A convolution of boolean tensors: eager refuses it, compiled code computes something.

Source: https://github.com/pytorch/pytorch/issues/198155
"""

import torch

NUMBER, MODE = "043", "plain"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "NotImplementedError|not implemented for 'Bool'"
CORE, MOST = ("conv",), 1


def f(a, b):
    return torch.nn.functional.conv2d(a, b)


def inputs():
    return torch.ones(1, 1, 4, 4, dtype=torch.bool), torch.ones(1, 1, 2, 2, dtype=torch.bool)
