"""Graphs of 500 and more operations for bench_by_node, small in every dimension: transformers forward and backward,
deep nets with several activations, a recurrent net, a convolutional one. Made without the recorder.

>>> gm, inputs, stage = GRAPHS["transformer_forward"]()
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import fx, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

LAYERS = 7
"""Of the transformers: 530 operations forward, 770 backward."""

Made = tuple[fx.GraphModule, list[Any], str]


class Block(nn.Module):
    """One transformer layer with a relu feed-forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(c, dim=2))
        weights = torch.softmax(q @ k.transpose(-2, -1) / (c // 2) ** 0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


@cache
def _training(layers: int, width: int, dtype: torch.dtype) -> dict[str, Made]:
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(width) for _ in range(layers)], nn.LayerNorm(width), nn.Linear(width, 8)).to(dtype)
    results: dict[str, Made] = {}

    def keep(name: str) -> Callable[..., Any]:
        def compiler(gm: fx.GraphModule, _: Any) -> Any:
            def run(args: list[Any]) -> Any:
                kept = [
                    argument.detach().clone() if isinstance(argument, torch.Tensor) else argument for argument in args
                ]
                results.setdefault(name, (gm, kept, name))
                return gm(*args)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return compiler

    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        return aot_module_simplified(
            gm, inputs, fw_compiler=keep("forward"), bw_compiler=keep("backward"), decompositions=select_decomp_table()
        )

    torch.compile(model, backend=backend)(torch.randn(2, 8, width, dtype=dtype)).square().mean().backward()
    return results


def _traced(f: Callable[..., Any], *inputs: Any, seed: int = 0) -> Made:
    torch.manual_seed(seed)
    gm = make_fx(f, decomposition_table=select_decomp_table(), tracing_mode="fake")(*inputs)
    gm.graph.eliminate_dead_code()
    return gm, list(inputs), "inference"


def _weights(count: int, width: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(width, width, generator=generator) / width**0.5 for _ in range(count)]


def tanh_net() -> Made:
    """A deep net of products, tanh and scales; one scale of 1.25, one addition of 0.625."""

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for index, weight in enumerate(weights):
            scale, shift = (1.25 if index == 57 else 1.5), (0.625 if index == 31 else 0.5)
            x = torch.tanh((x @ weight) * scale + shift) * 0.9 + x * 0.1
        return (x,)

    return _traced(f, torch.randn(8, 16), *_weights(80, 16))


def silu_net(dtype: torch.dtype = torch.float32) -> Made:
    """A deep residual net of silu, normalised: x * sigmoid(x) with the sigmoid used once, and the mean taken out."""

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for weight in weights:
            h = x @ weight
            h = h * torch.sigmoid(h)
            x = x + (h - h.mean(-1, keepdim=True)) * 0.5
        return (x,)

    return _traced(f, torch.randn(8, 16, dtype=dtype), *(weight.to(dtype) for weight in _weights(72, 16)))


def recurrent() -> Made:
    """A gated recurrent net unrolled over 45 steps; returns the state and the strongest unit at each step."""

    def f(sequence: torch.Tensor, wz: torch.Tensor, wh: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h, strongest = torch.zeros_like(sequence[0]), []
        for step in range(45):
            both = torch.cat([sequence[step], h], dim=-1)
            z = torch.sigmoid(both @ wz)
            h = (1 - z) * h + z * torch.tanh(both @ wh)
            strongest.append(h.argmax(-1))
        return h, torch.stack(strongest)

    generator = torch.Generator().manual_seed(3)
    sequence = torch.randn(45, 6, 16, generator=generator)
    wz, wh = (torch.randn(32, 16, generator=generator) / 4 for _ in range(2))
    return _traced(f, sequence, wz, wh)


def convolutional() -> Made:
    """A residual convolutional net with its own normalisation: exp, sqrt, slices; one layer is 24 wide."""

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for index, weight in enumerate(weights):
            h = torch.nn.functional.conv2d(x, weight, padding=1)
            spread = torch.sqrt((h * h).mean((1, 2, 3), keepdim=True) + 0.6)
            h = h / spread
            h = torch.cat([h[:, 2:], h[:, :2]], dim=1)
            if index == 17:
                wide = torch.cat([h, h, h], dim=-1) * 0.7
                h = h + wide[..., 8:16]
            h = 1.0 / (1.0 + torch.exp(-h))
            x = x * 0.7 + h
        return (x,)

    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(4, 4, 3, 3, generator=generator) / 6 for _ in range(32)]
    return _traced(f, torch.randn(2, 4, 8, 8, generator=generator), *weights)


GRAPHS: dict[str, Callable[[], Made]] = {
    "transformer_forward": lambda: _training(LAYERS, 32, torch.float32)["forward"],
    "transformer_backward": lambda: _training(LAYERS, 32, torch.float32)["backward"],
    "transformer_bf16": lambda: _training(LAYERS, 32, torch.bfloat16)["forward"],
    "tanh_net": tanh_net,
    "silu_net": silu_net,
    "silu_half": lambda: silu_net(torch.float16),
    "recurrent": recurrent,
    "convolutional": convolutional,
}
