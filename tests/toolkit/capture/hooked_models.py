"""Ten small models whose backwards have hooks of every kind; each maker gives (module, function of the module that
gives a loss).

`hook(module, log)` registers: a hook on a parameter, on an activation, pre- and post-hooks on autograd nodes, a
post-accumulate hook, module hooks and a callback at the end of the backward. What they saw is in `log`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Made = tuple[nn.Module, Callable[[nn.Module], Tensor]]


class Square(torch.autograd.Function):
    """A custom Function with a saved tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def mlp() -> Made:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(4, 6)
    return net, lambda module: Square.apply(module(x)).sum()


def convnet() -> Made:
    body = (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    net = nn.Sequential(*body, nn.Flatten(), nn.Linear(36, 2))
    x = torch.randn(2, 3, 8, 8)
    return net, lambda module: F.cross_entropy(module(x), torch.tensor([0, 1]))


def lstm() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTMCell(5, 7), nn.Linear(7, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = c = x.new_zeros(x.shape[0], 7)
            for step in x.unbind(1):
                h, c = self.cell(step, (h, c))
            return self.head(h)

    x = torch.randn(3, 4, 5)
    return Net(), lambda module: module(x).pow(2).mean()


def gru() -> Made:
    net = nn.GRU(5, 6, num_layers=2, batch_first=True)
    x = torch.randn(2, 3, 5)
    return net, lambda module: module(x)[0].tanh().sum()


def tied_embedding() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 8)
            self.mix = nn.Linear(8, 8)

        def forward(self, ids: Tensor) -> Tensor:
            return F.linear(self.mix(self.embedding(ids)), self.embedding.weight)

    ids = torch.randint(0, 20, (2, 5))
    return Net(), lambda module: F.cross_entropy(module(ids).flatten(0, 1), ids.flatten())


def transformer() -> Made:
    net = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    return net, lambda module: module(x).square().mean()


def mixture_of_experts() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(6, 3)
            self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            weights = self.gate(x).softmax(-1)
            return sum(weights[:, i : i + 1] * expert(x).relu() for i, expert in enumerate(self.experts))  # type: ignore[return-value]

    x = torch.randn(7, 6)
    return Net(), lambda module: module(x).sum()


def checkpointed() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.3)) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for index, block in enumerate(self.blocks):
                x = x + checkpoint(block, x, use_reentrant=index == 1)
            return x

    x = torch.randn(4, 8, requires_grad=True)
    return Net(), lambda module: module(x).sum()


def autocast_unet() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.middle, self.up = (
                nn.Conv2d(2, 4, 3, 2, 1),
                nn.Conv2d(4, 4, 3, 1, 1),
                nn.ConvTranspose2d(4, 2, 2, 2),
            )

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y = self.down(x).relu()
                return self.up(y + self.middle(y).sigmoid()) + x

    x = torch.randn(1, 2, 8, 8)
    return Net(), lambda module: module(x).float().square().sum()


def fan_in() -> Made:
    """One value used three times and more, in another order than its users were made: the order of the additions
    shows."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(33))

        def forward(self, x: Tensor) -> Tensor:
            shared = self.weight * x
            heads = [shared.sin(), shared.cos(), shared.exp(), shared.tanh(), shared * shared]
            return (heads[3] + heads[0] * heads[4] + heads[2] * heads[1]).sum() + heads[2].mean() * heads[
                3
            ].square().mean()

    x = torch.randn(33)
    return Net(), lambda module: module(x)


MODELS = (mlp, convnet, lstm, gru, tied_embedding, transformer, mixture_of_experts, checkpointed, autocast_unet, fan_in)


def hook(module: nn.Module, log: list[str]) -> None:
    """Hooks of every kind on the parameters and modules of a model."""
    parameters = list(module.parameters())
    parameters[0].register_hook(lambda grad: (log.append("parameter"), grad * 2)[1])
    parameters[-1].register_hook(lambda grad: log.append("parameter, nothing returned"))
    parameters[-1].register_post_accumulate_grad_hook(
        lambda parameter: log.append(f"accumulated {tuple(parameter.grad.shape)}")
    )  # type: ignore[union-attr]
    module.register_full_backward_pre_hook(lambda module, outgoing: log.append("module, before"))
    module.register_full_backward_hook(lambda module, incoming, outgoing: log.append("module, behind"))


def loss_with_hooks(loss: Tensor, log: list[str]) -> Tensor:
    """The loss with hooks on itself and on its autograd node, one of which asks for a callback at the end."""
    loss = loss * 1.5
    loss.register_hook(lambda grad: grad * 3)
    node = loss.grad_fn
    assert node is not None
    node.register_prehook(lambda grads: (log.append("before the node"), tuple(grad / 2 for grad in grads))[1])

    def behind(incoming: Any, outgoing: Any) -> None:
        log.append("behind the node")
        torch.autograd.Variable._execution_engine.queue_callback(lambda: log.append("at the end"))

    node.register_hook(behind)
    return loss
