"""The largest int64 as a float is out of range for the cast back: eager wraps around, a kernel does not.

Source: https://github.com/pytorch/pytorch/issues/151510
"""

import torch

NUMBER, MODE = "028", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "integers"
CORE, MOST = ("long|_to_copy|convert_element_type",), 3
MATCH = "BUG: output"


def f(x):
    limits = torch.iinfo(torch.int64)
    return torch.nan_to_num(x, nan=0, posinf=limits.max, neginf=limits.min).long()


def inputs():
    return (torch.tensor([[float("inf")]]),)
