"""Compile crash: fractional max pooling with a kernel of size -2, whose windows hold nothing; lowering reduces over no
values.

Source: https://github.com/pytorch/pytorch/issues/188217
"""

import torch
from torch.nn import functional as F

KIND, HOST, MODE = "compile crash", "unet", "no_grad"
SAYS, CORE, MOST = "reduce\\(\\) of empty", ("fractional_max_pool2d",), 3


def f(x):
    y = F.fractional_max_pool2d(x, -2, output_size=(2, 2))
    return x + torch.nan_to_num(y, 0.0, 0.0, 0.0).mean((2, 3), keepdim=True), ()
