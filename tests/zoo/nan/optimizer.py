"""A NaN in a compiled optimizer: zero gradients without an epsilon."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 8)
opt = torch.optim.RMSprop(model.parameters(), lr=0.1, eps=0.0)


@torch.compile
def step():
    opt.step()


for _ in range(3):
    x = torch.randn(4, 8)
    x[:, 0] = 0
    model(x).pow(2).mean().backward()
    step()
    opt.zero_grad()
print(model.weight.isnan().any())
