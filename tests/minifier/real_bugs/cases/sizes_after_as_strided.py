"""`as_strided_` changes a tensor's shape in place; Dynamo goes on with the shape it had.

Source: https://github.com/pytorch/pytorch/issues/185888
"""

import torch

NUMBER, MODE = "034", "plain"
RUNGS = ("eager",)
SAYS = "metadata"
CORE, MOST = ("as_strided_",), 3
IN_NO_GRAPH = "the wrong sizes are constants in Dynamo's bytecode; its graph returns what eager returns"


def f():
    x = torch.arange(4.0)
    y = x.as_strided_((2, 2), (2, 1))
    return y, x.size(), y.size(), x.stride(), torch.max(y)


def inputs():
    return ()
