"""Programs for AOT dispatch: name -> (function or module, what makes its arguments). One thing that AOTAutograd knows
each.

>>> f, arguments = PROGRAMS["tied weights"]
>>> joint_graph(f, *arguments())
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import register_dataclass
from torch.utils.checkpoint import checkpoint

from .scaled import Scaled

Arguments = Callable[[], tuple[Any, ...] | tuple[tuple[Any, ...], dict[str, Any]]]


def leaf(*sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)


@torch.library.custom_op("graphdbg_aot::announce", mutates_args=())
def announce(x: torch.Tensor, text: str) -> torch.Tensor:
    """An operator whose calls have an order: it counts them."""
    CALLS.append(text)
    return x.clone()


CALLS: list[str] = []
"""What `announce` was called with."""


@announce.register_fake
def _(x: torch.Tensor, text: str) -> torch.Tensor:
    return torch.empty_like(x)


announce.register_autograd(lambda ctx, grad: (grad, None))
_register_effectful_op("graphdbg_aot::announce", _EffectType.ORDERED)


def nested(x: dict[str, torch.Tensor], scale: float = 2.0) -> dict[str, Any]:
    return {"sum": x["a"] * scale, "both": [x["b"].sin(), x["a"].sum()]}


@dataclass
class Pair:
    one: torch.Tensor
    two: list[torch.Tensor]


register_dataclass(Pair)


def dataclasses_in_and_out(pair: Pair, *, power: int = 1, flag: bool = False, name: str | None = None) -> Pair:
    result = pair.one**power
    return Pair(result if flag and name == "yes" else -result, [pair.two[0] @ pair.two[1]])


def writes(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    buffer.add_(x.detach().sum())
    return (x * buffer).relu()


def aliases(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return x.view(-1), y, y.t(), y.sum()


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y.mul_(3).clamp_(min=0)
    return y[1:].cumsum(0)


def recomputed(x: torch.Tensor) -> torch.Tensor:
    return cast(torch.Tensor, checkpoint(lambda value: value.sin().exp(), x, use_reentrant=False)).sum()


def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).relu()


def of_one_storage() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.randn(6)
    return base[:4], base[2:]


def writes_through_an_alias(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return (y * w).sin()


def the_same_twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 + y.cos()


def written_and_returned(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.add_(1)
    return x, x.view(-1)[1:], x * w


def outputs_alias_each_other(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.sin()
    return y[0], y[1], y.view(-1), y.detach()


def returns_its_input(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x, y.expand(2, 3), x * y


def metadata_written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x.t_()
    return x @ w


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.abs().amax()
    return x / scale


def lower_precision(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w
    return y.float().softmax(-1)


def in_order(x: torch.Tensor) -> torch.Tensor:
    y = announce(x * 2, "first")
    z = announce(y.sin(), "second")
    return z.sum()


def prints(x: torch.Tensor) -> torch.Tensor:
    torch.ops.aten._print("a line")
    return (x * 2).sum()


def complex_values(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.fft.fft(x)).square().sum()


def functional_hooks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y.register_hook(lambda grad: grad * 2)
    return y.cos()


def two_devices(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
    return x + y, 3, None, "text"


def chosen(x: torch.Tensor) -> torch.Tensor:
    return cast(torch.Tensor, torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,)))


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3 * ctx.saved_tensors[0] ** 2


class Tied(torch.nn.Module):
    """Its two layers have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(index))


class Counts(torch.nn.Module):
    """Assigns a buffer of its own and one of a child anew, and keeps a value that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x.detach().sum()
        return self.linear(x) * self.seen


class Keeps(torch.nn.Module):
    """Keeps a value that is no buffer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x * 2
        return self.last.sin()


def batch_norm() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())


PROGRAMS: dict[str, tuple[Any, Arguments]] = {
    "linear with batch norm": (batch_norm(), lambda: (torch.randn(3, 4),)),
    "transformer layer": (
        torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: (torch.randn(2, 5, 8),),
    ),
    "nested": (nested, lambda: ({"a": leaf(2), "b": leaf(3)},)),
    "writes to an input": (writes, lambda: (leaf(2, 2), torch.ones(1))),
    "aliases": (aliases, lambda: (leaf(2, 3),)),
    "tensor subclass": (
        two,
        lambda: (TwoTensor(torch.randn(2, 3), torch.randn(2, 3)).requires_grad_(), torch.randn(2, 3)),
    ),
    "in place": (in_place, lambda: (leaf(4),)),
    "recomputed": (recomputed, lambda: (leaf(4),)),
    "dropout": (torch.nn.Dropout(0.5), lambda: (leaf(3),)),
    "keyword arguments": (nested, lambda: (({"a": leaf(2), "b": leaf(3)},), {"scale": 0.5})),
    "dataclasses and options": (
        dataclasses_in_and_out,
        lambda: ((Pair(leaf(2), [leaf(2, 2), leaf(2, 2)]),), {"power": 3, "flag": True, "name": "yes"}),
    ),
    "one storage, written": (writes_through_an_alias, lambda: (*of_one_storage(), leaf(4))),
    "one storage, read": (the_same_twice, lambda: (base := leaf(6), base[:6])),
    "the same tensor twice": (the_same_twice, lambda: (x := leaf(3), x)),
    "written and returned": (written_and_returned, lambda: (torch.randn(2, 2), leaf(2, 2))),
    "outputs alias each other": (outputs_alias_each_other, lambda: (leaf(2, 3),)),
    "returns its input": (returns_its_input, lambda: (leaf(3), leaf(3))),
    "metadata written": (metadata_written, lambda: (torch.randn(3, 2), leaf(3, 2))),
    "tied weights": (Tied(), lambda: (torch.tensor([1, 4, 0]),)),
    "no_grad inside": (without_gradients, lambda: (leaf(4),)),
    "autocast": (lower_precision, lambda: (leaf(2, 3), leaf(3, 2))),
    "ordered custom operator": (in_order, lambda: (leaf(3),)),
    "prints": (prints, lambda: (leaf(3),)),
    "wrapper subclass with a scale": (two, lambda: (Scaled.of(torch.randn(2, 3)).requires_grad_(), leaf(2, 3))),
    "complex": (complex_values, lambda: (leaf(4, dtype=torch.complex64),)),
    "a hook on a value": (functional_hooks, lambda: (leaf(3),)),
    "outputs that are no tensors": (two_devices, lambda: (leaf(3), leaf(3))),
    "autograd Function": (lambda x: Cubed.apply(x).sum(), lambda: (leaf(3),)),
    "cond": (chosen, lambda: (leaf(3),)),
}


def arguments(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function of a program with its positional and keyword arguments."""
    f, make = PROGRAMS[name]
    result = make()
    if len(result) == 2 and isinstance(result[0], tuple) and isinstance(result[1], dict):
        return f, result[0], result[1]
    return f, result, {}
