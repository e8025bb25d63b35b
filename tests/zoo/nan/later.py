"""A NaN in the fourth step."""

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x):
        return torch.log(1.5 - x.abs() * self.lin.weight.mean(0).abs().exp()).sum()


model = torch.compile(Net())
opt = torch.optim.SGD(model.parameters(), 0.001)
for step in range(6):
    opt.zero_grad()
    loss = model(torch.full((4, 8), 0.5 + 0.3 * step))
    loss.backward()
    opt.step()
    print(step, loss.item())
