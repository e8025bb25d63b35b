"""Attention in which one row is masked whole."""

import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x, keep):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / 4
        scores = scores.masked_fill(~keep[:, None, :], float("-inf"))
        return torch.softmax(scores, -1) @ v


keep = torch.ones(3, 5, dtype=torch.bool)
keep[1] = False
print(torch.compile(Attention())(torch.randn(3, 5, 16), keep).isnan().any())
