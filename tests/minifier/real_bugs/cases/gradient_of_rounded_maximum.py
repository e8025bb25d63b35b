"""The backward recomputes the unrounded quotient and finds no element that equals the rounded maximum.

Source: https://github.com/pytorch/pytorch/issues/195214

The forward graph holds that comparison: triage blames it, by a mask that marks nothing.
"""

import torch

NUMBER, MODE = "049", "grad"
RUNGS = ("inductor",)
SAYS = "nan in compare|integers"
CORE, MOST = ("div|add", "amax"), 4
MATCH = "NaN or infinite|BUG: output"


def f(x):
    return (x / 1.7).amax(-1)


def inputs():
    return (torch.randn(16, 64, dtype=torch.bfloat16, requires_grad=True),)
