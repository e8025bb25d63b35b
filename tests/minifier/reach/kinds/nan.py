"""NaN: acosh of a large double overflows in a vectorised kernel.

Source: https://github.com/pytorch/pytorch/issues/198134
"""

import torch

KIND, HOST, MODE = "NaN", "transformer", "no_grad"
SAYS, CORE, MOST = "nan in compare", ("acosh",), 2
DTYPE = torch.float64


def f(x):
    return x + torch.acosh(x.abs() * 1e170 + 2) / 400, ()
