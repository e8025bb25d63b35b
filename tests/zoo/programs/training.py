"""Training as people write it: optimizers, schedules, checkpoints, functions with a backward of their own, breaks,
recompiles.

python training.py compiled_adamw
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def _fit(
    model: Callable[..., Tensor], parameters: Any, steps: int = 3, sizes: tuple[int, ...] = (5,), rate: float = 0.1
) -> None:
    optimizer = torch.optim.SGD(list(parameters), lr=rate, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(sizes[step % len(sizes)], 8)).square().mean()
        loss.backward()
        optimizer.step()


def _stepped(result: Callable[[Any], torch.optim.Optimizer], steps: int = 3) -> None:
    model = _net()
    optimizer = result(model.parameters())
    step = torch.compile(optimizer.step)
    for _ in range(steps):
        model(torch.randn(5, 8)).square().mean().backward()
        step()
        optimizer.zero_grad()


def sgd_momentum() -> None:
    model = _net()
    _fit(torch.compile(model), model.parameters())


def compiled_sgd() -> None:
    _stepped(lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))


def compiled_adamw() -> None:
    _stepped(lambda given: torch.optim.AdamW(given, lr=1e-3))


def compiled_adam_capturable() -> None:
    _stepped(lambda given: torch.optim.Adam(given, lr=torch.tensor(1e-3), amsgrad=True))


def compiled_rmsprop() -> None:
    _stepped(lambda given: torch.optim.RMSprop(given, lr=1e-3, centered=True))


def compiled_adagrad() -> None:
    _stepped(lambda given: torch.optim.Adagrad(given, lr=1e-2))


def compiled_step_schedule() -> None:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    step = torch.compile(optimizer.step)
    for _ in range(4):
        model(torch.randn(5, 8)).square().mean().backward()
        step()
        schedule.step()
        optimizer.zero_grad()


def float_factor() -> None:
    model = _net()

    @torch.compile
    def loss_of(x: Tensor, factor: float) -> Tensor:
        return (model(x) * factor).square().mean()

    for step in range(4):
        loss_of(torch.randn(5, 8), 0.5**step).backward()


def integer_argument() -> None:
    @torch.compile
    def shifted(x: Tensor, places: int) -> Tensor:
        return torch.roll(x, places, 0) * places

    for places in (1, 2, 3):
        shifted(torch.randn(6, 3), places)


def growing_batches() -> None:
    model = _net()
    _fit(torch.compile(model), model.parameters(), steps=4, sizes=(3, 5, 7, 9))


def marked_dynamic() -> None:
    model = _net()
    x = torch.randn(6, 8)
    torch._dynamo.mark_dynamic(x, 0)
    torch.compile(model)(x).sum().backward()


def graph_break_print() -> None:
    layer = nn.Linear(8, 8)

    @torch.compile
    def f(x: Tensor) -> Tensor:
        y = layer(x).relu()
        print("mean", y.mean().item(), file=sys.stderr)
        return y * 2 + x

    _fit(f, layer.parameters())


def graph_break_branch() -> None:
    layer = nn.Linear(8, 8)

    @torch.compile
    def f(x: Tensor) -> Tensor:
        y = layer(x)
        return y.sin() if y.sum() > 0 else y.cos()

    _fit(f, layer.parameters(), steps=4)


def graph_break_relu_in_place() -> None:
    layer = nn.Linear(8, 8)

    @torch.compile
    def f(x: Tensor) -> Tensor:
        y = layer(x)
        torch._dynamo.graph_break()
        y = F.relu(y, inplace=True)
        torch._dynamo.graph_break()
        return y * 2 + 1

    _fit(f, layer.parameters())


def reset_between() -> None:
    for width in (4, 4, 6):
        model = nn.Linear(8, width)
        torch._dynamo.reset()
        _fit(torch.compile(model), model.parameters(), steps=1)


def train_then_eval() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.BatchNorm1d(8))
    compiled = torch.compile(model)
    _fit(compiled, model.parameters(), steps=2)
    model.eval()
    with torch.no_grad():
        compiled(torch.randn(5, 8))


def gradient_accumulation() -> None:
    model = _net()
    compiled = torch.compile(model)
    for _ in range(2):
        for _ in range(3):
            (compiled(torch.randn(5, 8)).square().mean() / 3).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model.zero_grad(set_to_none=False)


def compiled_step_function() -> None:
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile
    def step(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    for _ in range(3):
        step(torch.randn(5, 8))


def autograd_function() -> None:
    class Clamp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= 1)

    layer = nn.Linear(8, 8)
    _fit(torch.compile(lambda x: Clamp.apply(layer(x) * 2)), layer.parameters())


def checkpointed_blocks() -> None:
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2))

    def f(x: Tensor) -> Tensor:
        for block in blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x

    _fit(torch.compile(f), blocks.parameters())


def checkpointed_dropout() -> None:
    block = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 8))
    _fit(torch.compile(lambda x: checkpoint(block, x, use_reentrant=False)), block.parameters())


def running_buffers() -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            with torch.no_grad():
                self.mean.lerp_(y.mean(0), 0.1)
                self.steps += 1
            return y - self.mean

    model = Running()
    _fit(torch.compile(model), model.parameters())


def exponential_average() -> None:
    model, average = _net(), _net()

    @torch.compile
    def update() -> None:
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9).add_(new, alpha=0.1)

    update()
    update()


def spectral_norm() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    _fit(torch.compile(layer), layer.parameters(), steps=2)


def weight_norm() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    _fit(torch.compile(layer), layer.parameters(), steps=2)


def hooks_on_gradients() -> None:
    layer = nn.Linear(8, 8)
    layer.weight.register_hook(lambda grad: grad * 0.5)
    _fit(torch.compile(layer), layer.parameters(), steps=2)


def frozen_part() -> None:
    base, head = _net().requires_grad_(False), nn.Linear(4, 2)
    _fit(torch.compile(lambda x: head(base(x))), head.parameters(), steps=2)


def two_losses() -> None:
    body, first, second = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    @torch.compile
    def f(x: Tensor, words: Tensor) -> dict[str, Tensor]:
        shared = body(x).relu()
        return {"class": F.cross_entropy(first(shared), words), "value": F.smooth_l1_loss(second(shared), x[:, :2])}

    result = f(torch.randn(6, 8), torch.randint(0, 3, (6,)))
    (result["class"] + 0.1 * result["value"]).backward()


def bf16_model() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).bfloat16()
    compiled = torch.compile(model)
    for _ in range(2):
        compiled(torch.randn(5, 8, dtype=torch.bfloat16)).float().square().mean().backward()


def higher_gradients() -> None:
    model = _net()

    @torch.compile
    def penalty(x: Tensor) -> Tensor:
        return model(x).square().sum()

    x = torch.randn(4, 8, requires_grad=True)
    penalty(x).backward()


def backward_twice() -> None:
    model = _net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = torch.compile(model)(torch.randn(4, 8)).mean()
    loss.backward(retain_graph=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
