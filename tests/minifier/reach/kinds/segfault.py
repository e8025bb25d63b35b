"""Segfault: an operator returns a ZeroTensor, which has no memory; eager knows that, the kernel that reads it does not.

Source: https://github.com/pytorch/pytorch/issues/197067 (there such a tensor is an input)
"""

import torch

KIND, HOST, MODE = "segfault", "mixture", "no_grad"
SAYS, CORE, MOST = "SIGSEGV", ("own_ops.slope_of_sign",), 3
OPS = '''
import torch


@torch.library.custom_op("own_ops::slope_of_sign", mutates_args=())
def slope_of_sign(x: torch.Tensor) -> torch.Tensor:
    """The derivative of sgn: zero everywhere."""
    return torch._efficientzerotensor(x.shape, dtype=x.dtype)


@slope_of_sign.register_fake
def _(x):
    return torch.empty_like(x)
'''


def f(x):
    return x + torch.ops.own_ops.slope_of_sign(x).cos(), ()
