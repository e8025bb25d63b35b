"""The models of `compile_models.py` that are neither attention nor images: recurrent, sparse, mixed, random, scanning.

>>> import compile_models
>>> compile_models.MODELS["lstm"].about
'One LSTM layer and a head on its last state.'
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.compile_models import Made, model


class _Last(nn.Module):
    """A recurrent layer of torch with a head on its last state."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


@model({0: 0})
def lstm(size: int) -> Made:
    """One LSTM layer and a head on its last state."""
    return _Last(nn.LSTM(6, 12, batch_first=True)), (torch.randn(size, 4, 6),)


@model({0: 0})
def gru(size: int) -> Made:
    """A GRU cell unrolled over four steps, with a head on the last state."""

    class Gru(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRUCell(6, 12), nn.Linear(12, 4)

        def forward(self, x: Tensor) -> Tensor:
            state = x.new_zeros(x.shape[0], 12)
            for step in x.unbind(1):
                state = self.cell(step, state)
            return self.head(state)

    return Gru(), (torch.randn(size, 4, 6),)


@model({0: 0})
def embedding_bag(size: int) -> Made:
    """Five bags of indices summed from a table, crossed with dense features (a recommender); how many indices is
    dynamic."""

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.dense = nn.EmbeddingBag(40, 8, mode="sum"), nn.Linear(5, 8)
            self.top = nn.Sequential(nn.Linear(17, 8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, indices: Tensor, starts: Tensor, dense: Tensor) -> Tensor:
            bag, features = self.table(indices, starts), self.dense(dense).relu()
            return self.top(torch.cat([bag, features, (bag * features).sum(-1, keepdim=True)], -1)).sigmoid()

    return Recommender(), (torch.randint(0, 40, (size,)), torch.tensor([0, 2, 3, 3, 6]), torch.randn(5, 5))


@model({0: 0})
def mixture_of_experts(size: int) -> Made:
    """Each token's two best of four experts, gathered weights by batched products, and a balance loss as second
    output."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(8, 4)
            self.up, self.down = nn.Parameter(torch.randn(4, 8, 16)), nn.Parameter(torch.randn(4, 16, 8))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            odds = self.router(x).softmax(-1)
            weight, chosen = odds.topk(2)
            hidden = F.gelu(torch.einsum("ti,tkio->tko", x, self.up[chosen]))
            mixed = torch.einsum("tko,tkoi->tki", hidden, self.down[chosen])
            load = F.one_hot(chosen, 4).sum(1).to(x.dtype).mean(0)
            return (mixed * weight[..., None]).sum(1), (load * odds.mean(0)).sum()

    return Experts(), (torch.randn(size, 8),)


@model({0: 0})
def mlp_mixer(size: int) -> Made:
    """Two-layer nets over places and over channels in turn."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            net = lambda width: nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width))  # noqa: E731
            self.norm1, self.norm2, self.places, self.channels = nn.LayerNorm(8), nn.LayerNorm(8), net(6), net(8)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    return Mixer(), (torch.randn(size, 6, 8),)


@model({0: 0}, random=True)
def variational_autoencoder(size: int) -> Made:
    """Encoder, a draw by reparametrisation, dropout, decoder; returns the image and the divergence."""

    class Vae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder, self.dropout = nn.Linear(16, 8), nn.Linear(4, 16), nn.Dropout(0.3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_variance = self.encoder(x).chunk(2, -1)
            drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()
            divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
            return self.decoder(self.dropout(drawn)).sigmoid(), divergence

    return Vae(), (torch.randn(size, 16),)


@model({1: 1})
def graph_convolution(size: int) -> Made:
    """Messages along edges, added up by index_add and kept at their largest by scatter_reduce; the number of edges is
    dynamic."""

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.message, self.update = nn.Linear(12, 6), nn.Linear(18, 6)

        def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
            source, target = edges
            message = self.message(torch.cat([nodes[source], nodes[target]], -1)).relu()
            total = message.new_zeros(nodes.shape).index_add(0, target, message)
            index = target[:, None].expand_as(message)
            largest = message.new_zeros(nodes.shape).scatter_reduce(0, index, message, "amax")
            return self.update(torch.cat([nodes, total, largest], -1)).tanh()

    return Graph(), (torch.randn(7, 6), torch.randint(0, 7, (2, size)))


@model({0: 0})
def state_space(size: int) -> Made:
    """A diagonal state-space layer: a gated linear recurrence over six steps in a loop, and a cumulative sum beside
    it."""

    class StateSpace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decay, self.inside, self.outside = nn.Parameter(torch.randn(8)), nn.Linear(4, 16), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            value, gate = self.inside(x).chunk(2, -1)
            state, states = torch.zeros_like(value[:, 0]), []
            for step in range(6):
                state = state * self.decay.sigmoid() + value[:, step]
                states.append(state)
            return self.outside(torch.stack(states, 1) * F.silu(gate)) + x.cumsum(1)

    return StateSpace(), (torch.randn(size, 6, 4),)


@model({0: 0, 1: 0})
def cross_entropy_head(size: int) -> Made:
    """RMS norm, logits, and a cross entropy with smoothed labels and an ignored class."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.logits = nn.Parameter(torch.ones(12)), nn.Linear(12, 30, bias=False)

        def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
            logits = self.logits(x)
            return F.cross_entropy(logits, labels, ignore_index=0, label_smoothing=0.1), logits.softmax(-1)

    return Head(), (torch.randn(size, 12), torch.randint(1, 30, (size,)))


@model({0: 0})
def wavenet(size: int) -> Made:
    """Gated, dilated convolutions over time with residuals, and weights under weight normalisation written out."""

    class Wavenet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**i) for i in range(2))
            self.gains = nn.ParameterList(torch.ones(8, 1, 1) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for i, (layer, gain) in enumerate(zip(self.layers, self.gains, strict=True)):
                weight = layer.weight * (gain / layer.weight.norm(dim=(1, 2), keepdim=True))
                value, gate = F.conv1d(F.pad(x, (2**i, 0)), weight, layer.bias, dilation=2**i).chunk(2, 1)
                x = x + value.tanh() * gate.sigmoid()
            return x

    return Wavenet(), (torch.randn(size, 4, 16),)
