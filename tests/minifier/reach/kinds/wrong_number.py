"""Wrong numbers: indices of an adaptive maximum over a transposed image count along the wrong dimension.

Source: https://github.com/pytorch/pytorch/issues/197434
"""

from torch.nn import functional as F

KIND, HOST, MODE = "wrong number forward", "transformer", "no_grad"
SAYS, CORE, MOST = "accuracy", ("max_pool",), 3
MORE_THAN_8 = "with sizes halved again (8 by 4 in place of 16 by 8) it passes"


def f(x):
    where = F.adaptive_max_pool2d(x.unsqueeze(1).transpose(2, 3), (2, 2), return_indices=True)[1]
    return x + where.to(x.dtype).mean() * 0.01, (where,)
