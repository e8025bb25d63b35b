"""Two arguments share memory, one is written, a row of the other is returned: AOTAutograd rebuilds the view from the
wrong base.

Source: https://github.com/pytorch/pytorch/issues/198095
"""

import torch

NUMBER, MODE = "013", "plain"
RUNGS = ("decomposed",)
SAYS = "after application of ViewMeta sequence"
CORE, MOST = ("add_", "getitem|select"), 3


def f(base, tail):
    base.add_(100)
    return tail[0]


def inputs():
    base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    return base, base[1:]
