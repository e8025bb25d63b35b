"""Records a block, leaves it, and tries to record where it cannot."""

import torch

import graphdbg

f = torch.compile(lambda x: x.sin() + 1)
with graphdbg.record("block", inputs="first"):
    f(torch.ones(3))
    print("inside")
import torch._inductor.compile_fx as compile_fx  # noqa: E402

print("unpatched", not hasattr(compile_fx.partition_fn, "_graphdbg_original"))
f(torch.ones(3, dtype=torch.float64))
print("outside")
try:
    with graphdbg.record("block"):
        pass
except graphdbg.GraphdbgError:
    print("taken")
with graphdbg.record("again"):
    f(torch.ones(3))
    print("again")
