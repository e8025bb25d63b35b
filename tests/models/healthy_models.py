"""Twenty programs with nothing wrong in them, for counting the alarms of a metadata checker. Each is small and runs on
the CPU.

A program is `make()` -> (callable, list of argument tuples to call it with, whether to run a backward). The second and
later argument tuples of a program with other sizes make it compile with dynamic shapes.

>>> function, calls, train = PROGRAMS["lstm"]()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Made = tuple[Callable[..., Any], list[tuple[Any, ...]], bool]


class Block(nn.Module):
    """A transformer block, written out."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in parts)
        weights = torch.softmax(q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Sdpa(nn.Module):
    """Attention by torch's own function, causal, with dropout in training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)


class Recurrent(nn.Module):
    """An LSTM or GRU with a head."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cell, self.head = kind(8, 16, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0])


class Experts(nn.Module):
    """A mixture of experts: top-2 routing by scatter and index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        mask = torch.zeros(x.shape[0], 4).scatter(1, chosen, weights)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            out = out + expert(x) * mask[:, index, None]
        return out.index_add(0, chosen[:, 0] % x.shape[0], x)


class UNet(nn.Module):
    """Down, up, skip."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 1, 1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.silu(self.norm(self.down1(x)))
        b = F.interpolate(F.max_pool2d(F.gelu(self.down2(a)), 2), scale_factor=2, mode="bilinear")
        return torch.sigmoid(self.out(torch.cat([a, self.up(b)], 1)))


def _convnet(dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=4),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(32, 5),
    )


def _lines(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def transformer() -> Made:
    return nn.Sequential(Block(16), Block(16)), [(_lines(2, 6, 16),), (_lines(3, 9, 16),), (_lines(4, 7, 16),)], True


def encoder_eval() -> Made:
    return (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval(),
        [(_lines(2, 6, 16),)],
        False,
    )


def encoder_train() -> Made:
    return (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2),
        [(_lines(2, 6, 16),)],
        True,
    )


def channels_last() -> Made:
    model = _convnet().to(memory_format=torch.channels_last)
    return model, [(_lines(2, 3, 8, 8).to(memory_format=torch.channels_last),)], True


def batch_norm_eval() -> Made:
    return _convnet(0.5).eval(), [(_lines(2, 3, 8, 8),), (_lines(3, 3, 9, 9),), (_lines(4, 3, 10, 10),)], False


def dropout_train() -> Made:
    return _convnet(0.5), [(_lines(2, 3, 8, 8),)], True


def lstm() -> Made:
    torch._dynamo.config.allow_rnn = True
    return Recurrent(nn.LSTM).eval(), [(_lines(2, 5, 8),)], False


def gru() -> Made:
    torch._dynamo.config.allow_rnn = True
    return Recurrent(nn.GRU), [(_lines(2, 5, 8),)], True


def embedding() -> Made:
    table, bag, head = nn.Embedding(50, 16, padding_idx=0), nn.EmbeddingBag(50, 16, mode="mean"), nn.Linear(16, 50)

    def f(index: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(head(table(index)).flatten(0, 1), index.flatten()) + bag(index).sum()

    return f, [(torch.randint(0, 50, (3, 7)),), (torch.randint(0, 50, (4, 9)),)], True


def experts() -> Made:
    return Experts(), [(_lines(6, 16),), (_lines(9, 16),)], True


def unet() -> Made:
    return UNet(), [(_lines(1, 3, 16, 16),)], True


def autocast() -> Made:
    model = nn.Sequential(Block(16), nn.Linear(16, 4))

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float()

    return f, [(_lines(2, 6, 16),)], True


def checkpointed() -> Made:
    block = Block(16)
    return lambda x: checkpoint(block, x, use_reentrant=False), [(_lines(2, 6, 16),)], True


def indexing() -> Made:
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[index] = x[index].flip(0)
        y = y.scatter_add(0, index[:, None].expand(-1, x.shape[1]), x.index_select(0, index))
        values, order = y.sort(dim=1)
        return values.gather(1, order).cumsum(1).masked_fill(values > 1, 0.0) + torch.roll(y, 1, 0)

    first = _lines(6, 5).requires_grad_(), torch.tensor([0, 3, 5])
    return f, [first, (_lines(8, 7).requires_grad_(), torch.tensor([1, 2, 4]))], True


def fft() -> Made:
    def f(x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x, dim=-1)
        both = torch.view_as_complex(torch.view_as_real(spectrum).contiguous()) * spectrum.conj()
        return torch.fft.irfft(both, dim=-1).abs() + torch.fft.fft2(x).real

    return f, [(_lines(4, 8).requires_grad_(),)], True


def sdpa() -> Made:
    return Sdpa(16), [(_lines(2, 6, 16),), (_lines(2, 9, 16),)], True


def nonzero() -> Made:
    def f(x: torch.Tensor) -> torch.Tensor:
        places = torch.nonzero(x > 0)
        kept = x[x > 0]
        return kept.view(-1, 1) * 2 + places.float().sum(), kept.unique().sum()

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    return f, [(_lines(5, 4),), (_lines(6, 7),)], False


def views() -> Made:
    def f(x: torch.Tensor) -> Any:
        a = x.as_strided((3, 4), (2, 1), 1) + 1
        b = x.view(2, -1).unfold(1, 3, 2).permute(2, 0, 1)
        c = x.view(4, 6)[1:, ::2].expand(2, 3, 3).diagonal(dim1=1, dim2=2)
        return a, b.squeeze(), c.movedim(0, 1).reshape(-1), x[4:8].unflatten(0, (2, 2)).t()

    return f, [(_lines(24),), (_lines(32)[8:],)], False


def in_place() -> Made:
    state = torch.zeros(4, 4)

    def f(x: torch.Tensor) -> torch.Tensor:
        state.add_(x.mean())
        y = x.relu().mul_(2)
        y[0].fill_(1)
        y.t().add_(state)
        return y.view(-1)[2:6].sigmoid_() + torch.where(y.view(-1)[:4] > 0, 1.0, 2.0)

    return f, [(_lines(4, 4),), (_lines(4, 4),)], False


def losses() -> Made:
    model = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 8))

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        distance = F.huber_loss(out, y) + F.kl_div(out.log_softmax(-1), y.softmax(-1))
        return distance + torch.linalg.vector_norm(out) + out.logsumexp(0).var()

    return f, [(_lines(5, 8), _lines(5, 8)), (_lines(6, 8), _lines(6, 8))], True


PROGRAMS: dict[str, Callable[[], Made]] = {
    make.__name__: make
    for make in (
        transformer,
        encoder_eval,
        encoder_train,
        channels_last,
        batch_norm_eval,
        dropout_train,
        lstm,
        gru,
        embedding,
        experts,
        unet,
        autocast,
        checkpointed,
        indexing,
        fft,
        sdpa,
        nonzero,
        views,
        in_place,
        losses,
    )
}
"""Name -> what makes it."""
