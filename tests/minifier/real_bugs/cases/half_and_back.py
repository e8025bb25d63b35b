"""Rounding to half precision and back is left out, as Inductor intends unless it is told to emulate casts.

Source: https://github.com/pytorch/pytorch/issues/185337
"""

import torch

NUMBER, MODE = "025", "no_grad"
RUNGS = ("inductor",)
SAYS = "rounding"
CORE, MOST = ("to|_to_copy|convert_element_type", "to|_to_copy|convert_element_type"), 2
MATCH = "rounding"


def f(x):
    y = x.to(torch.float16).to(torch.float32)
    return y, y.sum(1)


def inputs():
    return (torch.arange(20.0).reshape(5, 4).t() / 7.0,)
