"""A NaN from the branch of a `where` that is never taken: no output has it, the gradient does."""

import torch
from torch import nn

torch.manual_seed(0)


class Safe(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x):
        h = self.lin(x)
        return torch.where(h > 0, torch.sqrt(h), torch.zeros_like(h)).sum()


model = torch.compile(Safe())
loss = model(torch.randn(4, 8))
loss.backward()
print(loss, model._orig_mod.lin.weight.grad.isnan().any())
