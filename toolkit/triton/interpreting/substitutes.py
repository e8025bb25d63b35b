# pyright: basic
"""Operators that only a GPU has, for a wrapper that runs on the CPU: the same mathematics by operators that both have.

To add one: a function here with the operator's arguments, and a row of SUBSTITUTES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SUBSTITUTES: dict[Any, Callable[..., Any]] = {}
"""Operator overload -> function."""
SIZED_OTHERWISE = frozenset({"torch.ops.aten._embedding_bag.default", "torch.ops.aten._embedding_bag_forward_only.default"})
"""Operators that leave results empty on the CPU that a GPU fills, which only their own backward reads (an empty input of a
backward is such a one)."""
