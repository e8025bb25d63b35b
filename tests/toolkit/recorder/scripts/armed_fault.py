"""A value of Inductor's own test setting that it lacks: "segfault", a relu that writes to address 0. Importing it adds
it."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides


def _add(owner: Any) -> None:
    original = owner.relu

    def relu(x: Any) -> str:
        if config.cpp.inject_relu_bug_TESTING_ONLY == "segfault":
            return f"(*(volatile int*)0 = 1, {x})"
        return original(x)

    owner.relu = staticmethod(relu)


for _owner in (CppOverrides, CppVecOverrides):
    _add(_owner)
torch.manual_seed(0)
