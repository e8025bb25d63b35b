"""python case.py KIND: ten blocks, and in the fifth what a compiler gets wrong: crash, wrong, nan, hang or segfault.

`steps`: nothing goes wrong; trains and prints the seconds of the quickest step. `kill`: the same, killed at the second
step. The bugs are Inductor's own test hook (crash, wrong), two open bugs of torch 2.13 (nan, hang), and, for segfault,
the folder `broken` on PYTHONPATH.
"""

import os
import signal
import sys
import time

import torch
from torch import nn
from torch._inductor import config

KIND = sys.argv[1] if len(sys.argv) > 1 else "crash"


class Block(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.bug = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16), bug

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.gelu(self.up(self.norm(x)))
        if self.bug in ("crash", "wrong"):
            y = torch.relu(y)
        if self.bug == "nan":
            y = torch.acosh(y.abs() * 1e170 + 2)
        if self.bug == "segfault":
            y = torch.tanh(y)
        if self.bug == "hang":
            a, b = y, y + 1
            for _ in range(13):
                a, b = a + b, a * b
                a, b = b + a, b * a
            y = a + b
        return x + self.down(y)


if KIND in ("crash", "wrong"):
    config.cpp.inject_relu_bug_TESTING_ONLY = {"crash": "compile_error", "wrong": "accuracy"}[KIND]
torch.manual_seed(0)
model = nn.Sequential(*[Block(KIND if i == 4 else "") for i in range(10)]).double()
compiled = torch.compile(model)
x = torch.randn(8, 16, dtype=torch.float64)
if KIND in ("steps", "kill"):
    best = float("inf")
    for step in range(1500):
        began = time.perf_counter()
        compiled(x).square().mean().backward()
        best = min(best, time.perf_counter() - began)
        if KIND == "kill" and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    print("step", best)
else:
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
