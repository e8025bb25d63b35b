"""Live graphs for the tests of the torch half: what Dynamo and AOTAutograd really build, caught before any compiler
runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

Caught = list[tuple[str, GraphModule, list[Any]]]


def caught(
    function: Callable[..., Any],
    *args: Any,
    dynamic: bool = False,
    backward: bool = True,
    keep: Callable[..., Any] | None = None,
) -> Caught:
    """(stage, graph, example inputs) of every graph that compiling and running `function` builds; `keep` is called with
    each."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    results: Caught = []

    def take(stage: str, gm: GraphModule, inputs: Any) -> None:
        results.append((stage, gm, list(inputs)))
        if keep is not None:
            keep(stage, gm, list(inputs))

    def compiler(stage: str) -> Callable[..., Any]:
        def compile_it(gm: GraphModule, inputs: Any) -> Any:
            take(stage, gm, inputs)
            return make_boxed_func(gm.forward)

        return compile_it

    def backend(gm: GraphModule, inputs: Any) -> Any:
        take("dynamo", gm, inputs)
        aot = aot_autograd(
            fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference")
        )
        return aot(gm, inputs)

    torch._dynamo.reset()
    with (
        torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        torch.manual_seed(0)
        out = torch.compile(function, backend=backend, dynamic=dynamic)(*args)
        if backward:
            first = out[0] if isinstance(out, tuple) else out
            first.sum().backward()
    torch._dynamo.reset()
    return results


class Block(torch.nn.Module):
    """Checkpointed linear, dropout, autocast, layer norm, a buffer, a constant tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.utils.checkpoint.checkpoint(lambda z: torch.relu(self.linear(z)), x, use_reentrant=False)
        y = torch.nn.functional.dropout(y, 0.1)
        with torch.autocast("cpu", torch.bfloat16):
            y = self.linear(y)
        y = self.norm(y.float() * self.scale) * torch.tensor([1.0, 2.0], device=x.device).sum()
        return y[1:, ..., None].sum() * x.shape[0], y.view(-1)


def same(left: Any, right: Any) -> bool:
    """Whether two results are equal to the bit, NaN included, strides too."""
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
            and torch.equal(torch.nan_to_num(left.float()), torch.nan_to_num(right.float()))
        )
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return left == right


def fresh(values: list[Any]) -> list[Any]:
    """Copies of inputs that keep their strides."""
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]
