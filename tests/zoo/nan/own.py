"""The model's own NaN: the logarithm of a negative scale."""

import torch

scale = torch.tensor(-0.02)


@torch.compile
def loss(x, scale):
    h = torch.relu(x @ x.t())
    return (h * torch.log(scale)).mean()


print(loss(torch.randn(4, 4), scale))
