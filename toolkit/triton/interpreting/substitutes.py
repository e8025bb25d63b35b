# pyright: basic
"""Library calls of a wrapper that was written for a GPU, on the CPU: those that only a GPU has are those of `toolkit.gpu_only`.

One that is missing there is refused by its name.
"""

from __future__ import annotations

from typing import Any

from ... import gpu_only
from ...rungs.base import CannotRun

SIZED_OTHERWISE = frozenset({"torch.ops.aten._embedding_bag.default", "torch.ops.aten._embedding_bag_forward_only.default"})
"""Operators that leave results empty on the CPU that a GPU fills, which only their own backward reads (an empty input of a
backward is such a one)."""


def called(operator: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives on the CPU. Raises CannotRun, by its name, for one that only a GPU has."""
    if getattr(getattr(operator, "overloadpacket", None), "__name__", "") in gpu_only.KERNELS:
        gpu_only.register()
    try:
        return operator(*args, **kwargs)
    except NotImplementedError as error:
        if "Could not run" not in str(error):
            raise
        raise CannotRun(f"{operator} has no kernel for the CPU, and nothing here stands for it") from error
