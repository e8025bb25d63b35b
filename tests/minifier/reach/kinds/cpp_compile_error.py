"""C++ compile error: the batch statistics of a half tensor are taken twice; one kernel declares its accumulator twice.

Source: https://github.com/pytorch/pytorch/issues/194706
"""

import torch

KIND, HOST, MODE = "C++ compile error", "mixture", "no_grad"
SAYS, CORE, MOST = "conflicting declaration", ("sum", "sum"), 5
MORE_THAN_8 = "with 6 rows in place of 12 it passes"
DTYPE = torch.float16


def f(x):
    rows = x.reshape(-1, x.shape[-1])
    centred = rows - rows.sum(0) / rows.shape[0]
    return (centred * (rows.sum(0) / rows.shape[0]).sigmoid()).view(x.shape) + x, ()
