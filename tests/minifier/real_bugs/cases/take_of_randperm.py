"""`take` at `randperm` indices of a tensor written in place: the joint graph's pattern replacement is built without an
input.

Source: https://github.com/pytorch/pytorch/issues/188223
"""

import torch

NUMBER, MODE = "001", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "Not all inputs to pattern found"
CORE, MOST = ("randperm", "take|index"), 6


def f(t):
    s = torch.sigmoid_(t)
    return torch.take(s, torch.randperm(10))


def inputs():
    return (torch.rand(4, 32, dtype=torch.float16),)
