"""Hang: sums and products of the two values before, thirteen deep: inlined pointwise code doubles at each step.

Source: https://github.com/pytorch/pytorch/issues/148073
"""

KIND, HOST, MODE = "hang", "gru", "no_grad"
SAYS, CORE, MOST = "hang", ("add", "mul"), 60
FLAGS = ("--check", "hang", "--hangs", "20")


def f(x):
    values = [x * 1e-3, x * 2e-3]
    for _ in range(16):
        values += [values[-1] + values[-2], values[-1] * values[-2]]
    return x + values[-2] + values[-1], ()
