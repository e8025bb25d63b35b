"""Models of at least 300 nodes, what a case is put into the middle of; `chain` writes this file's source before that of
a case.

Each takes `call`, a function of the hidden state, and of further inputs of the model, that gives the next hidden state
and a tuple of what is returned beside the model's own output. `host(name, call)` gives a model and the arguments of one
call.
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


class Transformer(nn.Module):
    """A decoder of 12 layers over (batch, length) token ids; the hidden state is (batch, length, 32)."""

    def __init__(self, call, layers=12, width=32, heads=4, words=50, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, length, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head, self.call = nn.LayerNorm(width), nn.Linear(width, words), call

    def forward(self, tokens, *given):
        x = self.words(tokens) + self.places[:, : tokens.shape[1]]
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == len(self.blocks) // 2:
                x, more = self.call(x, *given)
        return self.head(self.norm(x)), *more


class Experts(nn.Module):
    """A mixture of 4 experts, the two best of which are weighted for each row of (rows, width)."""

    def __init__(self, width, count=4):
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, count)
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(count))

    def forward(self, x):
        y = self.norm(x)
        best, chosen = self.gate(y).softmax(-1).topk(2, -1)
        total = torch.zeros_like(y)
        for number in range(len(self.up)):
            share = (best * (chosen == number)).sum(-1, keepdim=True)
            total = total + share * self.down[number](F.silu(self.up[number](y)))
        return x + total


class Mixture(nn.Module):
    """Six layers of experts; the hidden state is (rows, 24)."""

    def __init__(self, call, layers=6, width=24):
        super().__init__()
        self.start, self.end = nn.Linear(10, width), nn.Linear(width, 4)
        self.layers, self.call = nn.ModuleList(Experts(width) for _ in range(layers)), call

    def forward(self, x, *given):
        x = self.start(x)
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == len(self.layers) // 2:
                x, more = self.call(x, *given)
        return self.end(x), *more


class Twice(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.one, self.two = nn.Conv2d(before, after, 3, 1, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.first, self.second = nn.GroupNorm(4, after), nn.GroupNorm(4, after)
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, x):
        return F.silu(self.second(self.two(F.silu(self.first(self.one(x))))) + self.skip(x))


class UNet(nn.Module):
    """Convolutions down and up again; the hidden state at the bottom is (batch, 32, 4, 4)."""

    def __init__(self, call, width=4, depth=3, repeats=3):
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]

        def several(before, after):
            return nn.Sequential(Twice(before, after), *(Twice(after, after) for _ in range(repeats - 1)))

        self.start, self.end, self.call = several(3, width), nn.Conv2d(width, 3, 1), call
        self.down = nn.ModuleList(several(widths[i], widths[i + 1]) for i in range(depth))
        self.up = nn.ModuleList(several(widths[i + 1] + widths[i], widths[i]) for i in reversed(range(depth)))

    def forward(self, x, *given):
        kept = [self.start(x)]
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2)))
        x, more = self.call(kept.pop(), *given)
        for block in self.up:
            beside = kept.pop()
            x = block(torch.cat([F.interpolate(x, size=beside.shape[2:], mode="nearest"), beside], 1))
        return self.end(x), *more


class Cell(nn.Module):
    def __init__(self, before, width):
        super().__init__()
        self.given, self.kept = nn.Linear(before, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, x, h):
        a, b, c = self.given(x).chunk(3, -1)
        d, e, f = self.kept(h).chunk(3, -1)
        r, z = torch.sigmoid(a + d), torch.sigmoid(b + e)
        return (1 - z) * torch.tanh(c + r * f) + z * h


class GRU(nn.Module):
    """Two stacked cells over 8 steps; the hidden state is (batch, 16)."""

    def __init__(self, call, width=16, steps=8):
        super().__init__()
        self.low, self.high, self.out = Cell(8, width), Cell(width, width), nn.Linear(width, 4)
        self.width, self.steps, self.call = width, steps, call

    def forward(self, x, *given):
        low = high = x.new_zeros(x.shape[0], self.width)
        results = []
        for step in range(self.steps):
            low = self.low(x[:, step], low)
            high = self.high(low, high)
            if step == self.steps // 2:
                high, more = self.call(high, *given)
            results.append(self.out(high))
        return torch.stack(results, 1), *more


HOSTS = {
    "transformer": (Transformer, lambda: torch.randint(0, 50, (2, 16))),
    "mixture": (Mixture, lambda: torch.randn(12, 10)),
    "unet": (UNet, lambda: torch.randn(2, 3, 32, 32)),
    "gru": (GRU, lambda: torch.randn(4, 8, 8)),
}


def host(name, call):
    result, arguments = HOSTS[name]
    return result(call), (arguments(),)
