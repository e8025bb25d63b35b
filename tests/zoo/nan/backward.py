"""A NaN in the backward alone: the gradient of a square root at zero times zero."""

import torch
from torch import nn

torch.manual_seed(0)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x):
        h = self.lin(x)
        return h.pow(2).sum(-1).sqrt().sum()


net = Norm()
with torch.no_grad():
    net.lin.bias.zero_()
model = torch.compile(net)
loss = model(torch.zeros(4, 8))
loss.backward()
print(loss, net.lin.bias.grad)
