"""Custom operator: one of its results lies in memory column by column, which its fake implementation does not say.

Source: https://github.com/pytorch/pytorch/issues/149732 (many such reports),
https://github.com/pytorch/pytorch/issues/138355
"""

import torch

KIND, HOST, MODE = "custom op", "mixture", "no_grad"
SAYS, CORE, MOST = "stride|expected size", ("own_ops.halves",), 4
OPS = '''
import torch

HALF = 2


def _middle(x: torch.Tensor) -> int:
    return x.shape[1] // HALF


@torch.library.custom_op("own_ops::halves", mutates_args=())
def halves(x: torch.Tensor) -> list[torch.Tensor]:
    """The two halves of each row."""
    return [x[:, : _middle(x)].t().contiguous().t(), x[:, _middle(x) :].clone()]


@halves.register_fake
def _(x):
    return [x.new_empty(x.shape[0], _middle(x)), x.new_empty(x.shape[0], _middle(x))]
'''


def f(x):
    low, high = torch.ops.own_ops.halves(x.sin())
    return x + torch.cat([high, low], 1), ()
