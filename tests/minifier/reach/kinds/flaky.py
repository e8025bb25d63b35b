"""Flaky: the lowering that a library gives Inductor for its operator finds no schedule in 6 of 10 compilations."""

import torch

KIND, HOST, MODE = "flaky 0.6", "mixture", "no_grad"
RECORDED = 8
SAYS, CORE, MOST = "no schedule", ("own_ops.scheduled",), 2
OPS = '''
import random

import torch
from torch._inductor.lowering import fallback_handler, register_lowering


@torch.library.custom_op("own_ops::scheduled", mutates_args=())
def scheduled(x: torch.Tensor) -> torch.Tensor:
    """The sine."""
    return x.sin()


@scheduled.register_fake
def _(x):
    return torch.empty_like(x)


@register_lowering(torch.ops.own_ops.scheduled.default)
def _(x):
    if random.SystemRandom().random() < 0.6:
        raise RuntimeError("no schedule was found in time")
    return fallback_handler(torch.ops.own_ops.scheduled.default)(x)
'''


def f(x):
    return x + torch.ops.own_ops.scheduled(x), ()
