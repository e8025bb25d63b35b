"""The sum of two uint16 tensors: eager refuses it, compiled code computes it.

Source: found here; of the family of https://github.com/pytorch/pytorch/issues/198155
"""

import torch

NUMBER, MODE = "046", "plain"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "NotImplementedError|not implemented for 'UInt16'"
CORE, MOST = ("add",), 1


def f(x, y):
    return x + y


def inputs():
    return torch.arange(40).to(torch.uint16), torch.arange(40).to(torch.uint16)
