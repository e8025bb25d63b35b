"""Dynamic shapes only: the index of the largest element of a permuted tensor, compiled with sizes that vary.

Source: https://github.com/pytorch/pytorch/issues/193492
"""

import torch

KIND, HOST, MODE = "dynamic-shape only", "transformer", "no_grad"
SAYS, CORE, MOST = "accuracy", ("argmax|max",), 3
DYNAMIC = True


def f(x):
    where = torch.argmax(x.permute(2, 0, 1).softmax(0))
    return x + where * 1e-4, (where,)


def calls():
    return [(torch.randint(0, 50, (2, 16)),), (torch.randint(0, 50, (3, 12)),)]
