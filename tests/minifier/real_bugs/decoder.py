"""A small decoder, what a case is put into the middle of; `chain` writes its source behind that of a case, whose `f` it
calls.

With `in_layer`, `f` takes the hidden state and gives the next. Else it takes inputs of its own beside the tokens, and
its results are both returned and added to the hidden state, as far as they are tensors.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.mix(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-1, -2)) * (width // self.heads) ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, -1e4).softmax(-1) @ value
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    def __init__(self, call, in_layer, layers=4, width=32, heads=4, words=50, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, length, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)
        self.call, self.in_layer = call, in_layer

    def forward(self, tokens, *more):
        x = self.words(tokens) + self.places
        returned = ()
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == len(self.blocks) // 2:
                if self.in_layer:
                    x = self.call(x)
                else:
                    returned = self.call(*more)
                    for item in returned if isinstance(returned, tuple) else (returned,):
                        if isinstance(item, torch.Tensor):
                            x = x + item.to(x.dtype).mean() * 0.001
        return self.head(self.norm(x)), returned
