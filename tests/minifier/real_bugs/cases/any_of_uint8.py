"""`any` of bytes is a byte in eager and a boolean in compiled code.

Source: found here
"""

import torch

NUMBER, MODE = "040", "no_grad"
RUNGS = ("inductor_nofuse", "inductor")
SAYS = "dtype"
CORE, MOST = ("any",), 2
MATCH = "torch.bool"


def f(x):
    return x.any(0)


def inputs():
    return (torch.randint(0, 2, (20, 20), dtype=torch.uint8),)
