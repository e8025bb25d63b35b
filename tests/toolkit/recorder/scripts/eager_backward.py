"""A small training run that compiles nothing: hooks, a custom Function, accumulation, a longer batch in the last
step."""

from __future__ import annotations

import torch
from torch import nn


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def clip(grad):
    return grad.relu() - (-grad).clamp(0, 0.01)


torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3))
net[1].weight.register_hook(clip)
net[3].bias.register_post_accumulate_grad_hook(lambda parameter: print("accumulated", parameter.grad.sum().item()))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    ids = torch.randint(0, 20, (2, 5 if step < 3 else 7))
    loss = Square.apply(net(ids)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), sum(p.grad.double().abs().sum().item() for p in net.parameters()))
