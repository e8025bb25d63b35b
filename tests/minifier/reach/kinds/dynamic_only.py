"""Dynamic shapes only: the lowering that a library gives Inductor for its operator takes the number of columns for a
number.

Two sizes vary, of which the failure needs one to be symbolic.
"""

import torch

KIND, HOST, MODE = "dynamic-shape only", "gru", "no_grad"
SAYS, CORE, MOST = "crash in compile", ("own_ops.weighted",), 2
SYMBOLS, MARKS = 1, ["inputs[0], 1"]
OPS = '''
import torch
from torch._inductor.lowering import fallback_handler, register_lowering


@torch.library.custom_op("own_ops::weighted", mutates_args=())
def weighted(x: torch.Tensor) -> torch.Tensor:
    """Each column times its number."""
    return x * torch.arange(x.shape[1])


@weighted.register_fake
def _(x):
    return torch.empty_like(x)


@register_lowering(torch.ops.own_ops.weighted.default)
def _(x):
    assert sum(range(int(x.get_size()[1]))) >= 0
    return fallback_handler(torch.ops.own_ops.weighted.default)(x)
'''


def f(x, side):
    return x + torch.ops.own_ops.weighted(x[:, :1] * side.sum(0)).sum(1, keepdim=True), ()


def calls():
    return [(torch.randn(4, 8, 8), torch.randn(3, 5)), (torch.randn(6, 8, 8), torch.randn(3, 7))]
