"""The index of the largest element of a permuted tensor, compiled with sizes that vary.

Source: https://github.com/pytorch/pytorch/issues/193492
"""

import torch

NUMBER, MODE = "052", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "accuracy"
CORE, MOST = ("argmax|max",), 3
MATCH = "BUG: output"
DYNAMIC = True


def f(x):
    return torch.argmax(x.softmax(0)), x.max(1)[1]


def inputs():
    return (torch.rand(4, 5, 6).permute(2, 0, 1),)


def CALLS():
    return [inputs(), (torch.rand(5, 7, 8).permute(2, 0, 1),)]
