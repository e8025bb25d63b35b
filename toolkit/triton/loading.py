# pyright: basic
"""Loads the source of one generated kernel: what Inductor's own `async_compile.triton` does, without compiling it.

The source is a program and is run: of a graph with a user's own kernels only under `--trust`.

For example:

    with pretending(target):
        loaded("triton_poi_fused_relu_0", source, folder).configs
    # [<triton.Config>]
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def loaded(name: str, source: str, folder: Path) -> Any:
    """The kernel as Inductor's heuristics make it: `.fn` is Triton's function, `.configs` its candidates.

    The source goes to a file in `folder`, because Triton reads it from there. Raises whatever the source raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    module_name = f"graphdbg_kernel_{abs(hash(str(path)))}_{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # inspect looks there
    spec.loader.exec_module(module)
    kernel = getattr(module, name, None)
    if kernel is None:  # a user's kernel keeps its own name
        kernel = next(
            (
                candidate
                for candidate in vars(module).values()
                if hasattr(candidate, "configs") and hasattr(candidate, "triton_meta")
            ),
            None,
        )
    if kernel is None:
        raise ValueError(f"the source of {name} defines no kernel")
    return kernel
