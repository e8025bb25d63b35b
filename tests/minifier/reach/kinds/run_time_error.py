"""Run-time error: two inputs share memory, one is written, a row of the other is returned, rebuilt from the wrong base.

Source: https://github.com/pytorch/pytorch/issues/198095
"""

import torch

KIND, HOST, MODE = "run-time error", "gru", "plain"
SAYS, CORE, MOST = "after application of ViewMeta sequence", ("add_", "getitem|select"), 3


def f(x, base, tail):
    base.add_(100)
    return x, (tail[0],)


def given():
    base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    return base, base[1:]
