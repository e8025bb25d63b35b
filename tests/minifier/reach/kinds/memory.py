"""Memory: the lowering that a library gives Inductor for its operator makes a table of all values that could be asked
for."""

import torch

KIND, HOST, MODE = "memory", "mixture", "no_grad"
SAYS, CORE, MOST = "memory", ("own_ops.tabulated",), 2
FLAGS = ("--memory-limit", "1500MB")
OPS = '''
import torch
from torch._inductor.lowering import fallback_handler, register_lowering


@torch.library.custom_op("own_ops::tabulated", mutates_args=())
def tabulated(x: torch.Tensor) -> torch.Tensor:
    """The sine to three digits."""
    return x.mul(1000).round().div(1000).sin()


@tabulated.register_fake
def _(x):
    return torch.empty_like(x)


@register_lowering(torch.ops.own_ops.tabulated.default)
def _(x):
    torch.linspace(-4, 4, 1 << 32, dtype=torch.float64).sin()
    return fallback_handler(torch.ops.own_ops.tabulated.default)(x)
'''


def f(x):
    return x + torch.ops.own_ops.tabulated(x), ()
