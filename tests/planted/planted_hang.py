"""Imported, plants a hang of the compiler: Inductor's lowering of tanh never ends."""

import time

import torch
from torch._inductor.lowering import lowerings


def _hang(*args: object) -> None:
    while True:
        time.sleep(1.0)


lowerings[torch.ops.aten.tanh.default] = _hang
