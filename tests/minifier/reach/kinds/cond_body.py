"""Body of cond: the branches' results differ in their inner size; code inside uses a size that is bound behind it.

Source: https://github.com/pytorch/pytorch/issues/189528
"""

import torch

KIND, HOST, MODE = "cond body", "mixture", "no_grad"
SAYS, CORE, MOST = "u0.* is not defined", ("cond",), 6
SYMBOLS = 1  # u0, which is known only as it runs


def f(x):
    def some(x):
        return x[:, :7].sin()

    def others(x):
        return x[:, 7:].cos()

    return x + torch.cond(x.sum() > 0, some, others, (x,)).sum(1, keepdim=True), ()
