"""Floor division of and by infinite numbers: eager gives NaN and -1, a kernel Inf and -0.

Source: https://github.com/pytorch/pytorch/issues/188048
"""

import torch

NUMBER, MODE = "022", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "nan in compare|accuracy"
CORE, MOST = ("div|floor_div",), 2
MATCH = "where eager and float64 give|error to float64"


def f(a, b):
    return torch.div(a, b, rounding_mode="floor")


def inputs():
    a = torch.tensor([float("inf"), -float("inf"), -3.5, 5.0] * 8)
    return a, torch.tensor([2.0, 1.0, float("inf"), 2.0] * 8)
