"""A NaN that compiled code alone has: the bfloat16 maximum's gradient (github.com/pytorch/pytorch/issues/195214)."""

import torch
from torch import nn

torch.manual_seed(0)


class Top(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(64, dtype=torch.bfloat16))

    def forward(self, x):
        return (x * self.gain / 1.7).amax(-1).sum()


model = torch.compile(Top())
model(torch.randn(16, 64, dtype=torch.bfloat16)).backward()
print(model._orig_mod.gain.grad.isnan().any())
