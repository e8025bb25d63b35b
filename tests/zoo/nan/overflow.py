"""An overflow that becomes a NaN three lines later."""

import torch


@torch.compile
def f(x):
    e = torch.exp(x * 100)
    s = e.sum(-1, keepdim=True)
    t = e * 2
    return (t / s).mean()


torch.manual_seed(0)
print(f(torch.randn(4, 8)))
