"""Fractional max pooling with a kernel of size 0: lowering asks for the largest of no numbers, where eager gives -inf.

Source: https://github.com/pytorch/pytorch/issues/188218
"""

import torch
from torch import nn

NUMBER, MODE = "004", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "max not supported for zero-dimension tensors|reduce\\(\\) of empty"
CORE, MOST = ("fractional_max_pool2d",), 5


def f(x):
    up, pool, pad = nn.AdaptiveMaxPool2d((58, 83)), nn.FractionalMaxPool2d(0, output_size=(39, 24)), nn.ZeroPad2d(5)
    return pad(pool(up(x)))


def inputs():
    return (torch.randn(2, 8, 16, 16),)
