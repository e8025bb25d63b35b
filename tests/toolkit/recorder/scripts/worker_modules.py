"""What a compile worker of Inductor has imported and whether anything of torch is wrapped in it; runs in the worker."""

import os
import sys


def modules():
    import torch._inductor.compile_fx as compile_fx

    hooks = [name for name, value in vars(compile_fx).items() if hasattr(value, "_graphdbg_original")]
    names = [name for name in sys.modules if "." not in name or "graphdbg" in name]
    return {"pid": os.getpid(), "modules": names, "hooks": hooks}
