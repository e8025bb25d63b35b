"""Programs of the capture matrix that are ordinary models and transforms, as small as they can be.

>>> module, arguments = transformer()
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.capture_hops import Made


class _Calls(nn.Module):
    """Modules by name and a function of them and the inputs."""

    def __init__(self, call: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.call(self, *inputs)


def transformer() -> Made:
    """torch's own encoder layer without dropout."""
    return nn.TransformerEncoderLayer(12, 3, 16, dropout=0.0, batch_first=True), (torch.randn(2, 4, 12),)


def convnet() -> Made:
    """Convolution, batch norm with running statistics, pooling."""
    parts = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)]
    return nn.Sequential(*parts).train(), (torch.randn(2, 2, 6, 6),)


def lstm() -> Made:
    """Two steps of an LSTM cell."""

    def call(self: Any, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        for step in x.unbind(0):
            h, c = self.cell(step, (h, c))
        return h, c

    return _Calls(call, cell=nn.LSTMCell(4, 6)), (torch.randn(2, 3, 4), torch.zeros(3, 6), torch.zeros(3, 6))


def gru() -> Made:
    """A GRU cell under no_grad."""
    return nn.GRUCell(4, 6), (torch.randn(3, 4), torch.randn(3, 6))


def embedding_bag() -> Made:
    """Bags of words averaged."""
    return nn.EmbeddingBag(20, 6, mode="mean"), (torch.randint(0, 20, (9,)), torch.tensor([0, 4, 7]))


def mixture() -> Made:
    """Two of four experts for each token, chosen by top-k."""

    def call(self: Any, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        result = torch.stack([expert(x) for expert in self.experts], 1)
        return (result.gather(1, chosen[..., None].expand(-1, -1, x.shape[1])) * weight[..., None]).sum(1)

    experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
    return _Calls(call, gate=nn.Linear(6, 4), experts=experts), (torch.randn(5, 6),)


def autocast() -> Made:
    """A forward under bfloat16 autocast, entered inside."""

    def call(self: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.down(self.up(x).relu()).float().tanh()

    return _Calls(call, up=nn.Linear(8, 16), down=nn.Linear(16, 8)), (torch.randn(4, 8),)


def channels_last() -> Made:
    """Convolutions in channels_last."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 4, 1))
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module, (torch.randn(1, 3, 5, 5).contiguous(memory_format=torch.channels_last),)


def buffer_written() -> Made:
    """A module that counts and remembers in its buffers."""

    def call(self: Any, x: Tensor) -> Tensor:
        self.seen.add_(1)
        self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.average

    module = _Calls(call)
    module.register_buffer("seen", torch.zeros((), dtype=torch.int64))
    module.register_buffer("average", torch.zeros(4))
    return module, (torch.randn(3, 4),)


def scatter() -> Made:
    """scatter_add, index_put with accumulation, index_select."""

    def f(x: Tensor, places: Tensor) -> Tensor:
        summed = torch.zeros(5, 3).scatter_add(0, places[:, None].expand(-1, 3), x)
        summed = summed.index_put((places,), x, accumulate=True)
        return summed.index_select(0, places)

    return f, (torch.randn(6, 3), torch.randint(0, 5, (6,)))


def sorting() -> Made:
    """sort, topk, argmax, unique order of equal values."""

    def f(x: Tensor) -> tuple[Any, ...]:
        return x.sort(stable=True, dim=-1), x.topk(2), x.argmax(1), x.kthvalue(2, 1).values

    return f, (torch.randn(4, 6).round(decimals=1),)


def einsum() -> Made:
    """A contraction of three tensors, in training."""
    return _Calls(
        lambda self, x, y: torch.einsum("bij,jk,bk->bi", x, self.w.weight, y), w=nn.Linear(4, 5, bias=False)
    ), (torch.randn(2, 3, 5), torch.randn(2, 4))


def sdpa() -> Made:
    """scaled_dot_product_attention, causal, in training."""

    def call(self: Any, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    return _Calls(call, qkv=nn.Linear(8, 24)), (torch.randn(2, 4, 8),)


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < ctx.limit) * 0.5, None


def autograd_function() -> Made:
    """A custom autograd.Function with a backward that is not the derivative."""
    return _Calls(lambda self, x: _Clip.apply(self.layer(x), 0.7), layer=nn.Linear(4, 4)), (torch.randn(3, 4),)


def hooked() -> Made:
    """Hooks on a tensor, on a parameter's accumulation, and on a module's backward."""

    def call(self: Any, x: Tensor) -> Tensor:
        result = self.layer(x)
        result.register_hook(lambda grad: grad * 2)
        return result.relu() + result

    module = _Calls(call, layer=nn.Linear(4, 4))

    def halve(parameter: Tensor) -> None:
        if parameter.grad is not None:
            parameter.grad.mul_(0.5)

    module.layer.weight.register_post_accumulate_grad_hook(halve)
    module.layer.register_full_backward_hook(lambda _, __, grads: None)
    return module, (torch.randn(3, 4, requires_grad=True),)


def step_inside() -> Made:
    """A training step compiled as a whole: forward, backward with hooks from inside and outside, the optimizer."""
    layer, last = nn.Linear(4, 4), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*layer.parameters(), *last.parameters()], lr=0.1)
    layer.weight.register_hook(lambda grad: grad.clamp(-1, 1))

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        result = layer(x)
        result.register_hook(lambda grad: grad * 2)
        loss = last(result.relu()).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(5, 4),)


def eager_backward_inside() -> Made:
    """A backward inside a compiled function of a part that is not compiled, with a hook that Dynamo compiles by
    itself."""
    layer = nn.Linear(4, 4)

    @torch._dynamo.disable  # type: ignore[misc]
    def eager(x: Tensor) -> Tensor:
        result = layer(x)
        result.register_hook(lambda grad: grad.sin() * 2)
        return result.square().sum()

    def step(x: Tensor) -> Tensor:
        eager(x * 2).backward()
        loss = layer(x).tanh().sum()
        loss.backward()
        return loss.detach()

    return step, (torch.randn(5, 4),)


def rotary_attention() -> Made:
    """Attention with rotary positions and grouped keys, as language models have it."""

    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def call(self: Any, x: Tensor, places: Tensor) -> Tensor:
        angles = places[:, None] * 10000.0 ** (-torch.arange(0, 4, 2) / 4)
        cos, sin = (torch.cat([item, item], -1) for item in (angles.cos(), angles.sin()))
        q = turn(self.q(x).unflatten(-1, (4, 4)).transpose(1, 2), cos, sin)
        k = turn(self.k(x).unflatten(-1, (2, 4)).transpose(1, 2), cos, sin).repeat_interleave(2, 1)
        v = self.v(x).unflatten(-1, (2, 4)).transpose(1, 2).repeat_interleave(2, 1)
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    parts = {"q": nn.Linear(8, 16), "k": nn.Linear(8, 8), "v": nn.Linear(8, 8), "o": nn.Linear(16, 8)}
    return _Calls(call, **parts), (torch.randn(1, 5, 8), torch.arange(5.0))


def vmap() -> Made:
    """vmap over a function of two arguments."""
    return lambda x, w: torch.func.vmap(lambda a: (w @ a).sin(), in_dims=0)(x), (torch.randn(5, 3), torch.randn(2, 3))


def func_grad() -> Made:
    """torch.func.grad inside the compiled function."""
    return lambda x: torch.func.grad(lambda y: (y.sin() * y).sum())(x) + 1, (torch.randn(4, 3),)


def func_jvp() -> Made:
    """Forward-mode derivatives by torch.func.jvp."""
    return lambda x, t: torch.func.jvp(lambda y: y.exp().sin(), (x,), (t,)), (torch.randn(4), torch.randn(4))


def nested_outputs() -> Made:
    """Dictionaries, tuples, None and numbers out; a dictionary in."""

    def f(given: dict[str, Tensor], scale: float) -> dict[str, Any]:
        return {"sum": given["a"] + given["b"], "pair": (given["a"] * scale, None), "n": 3}

    return f, ({"a": torch.randn(3), "b": torch.randn(3)}, 0.5)


def backward_inside() -> Made:
    """A whole training step in one function: loss, backward, and the weights written."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def step(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight.sub_(0.1 * weight.grad)
        return loss.detach()

    return step, (torch.randn(4, 6),)


def gradient_inside() -> Made:
    """torch.autograd.grad of a loss in the function, traced into the graph."""
    model = nn.Linear(6, 3)

    def f(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(model(x).sin().sum(), x)
        return grad * 2

    return f, (torch.randn(4, 6),)


def none_gradient() -> Made:
    """Outputs without gradients beside those that have them; an input that needs none."""

    def call(self: Any, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        result = self.layer(x)
        return result, result.detach() * 2, result.argmax(1), None, y + 1

    return _Calls(call, layer=nn.Linear(4, 4)), (torch.randn(3, 4), torch.randn(3))


def loss() -> Made:
    """Cross entropy with ignored labels, and label smoothing."""

    def call(self: Any, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.layer(x), labels, ignore_index=-100, label_smoothing=0.1)

    return _Calls(call, layer=nn.Linear(6, 5)), (torch.randn(4, 6), torch.tensor([1, -100, 3, 0]))


def interpolated() -> Made:
    """Upsampling, padding and grid operations."""
    return lambda x: F.pad(F.interpolate(x, scale_factor=2.0, mode="bilinear"), (1, 2, 1, 1), "reflect"), (
        torch.randn(1, 2, 3, 3),
    )


def tied_weights() -> Made:
    """One weight as embedding and as output layer, in training."""
    return _Calls(lambda self, words: self.words(words).tanh() @ self.words.weight.t(), words=nn.Embedding(12, 4)), (
        torch.randint(0, 12, (2, 3)),
    )
