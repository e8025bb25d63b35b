"""Regions of invoke_subgraph with a partitioner of their own: torch looks up Inductor's partition function for them by its name.

While a compile of ours runs (`hooks.py`), that name goes through our stages for a region that a compile
of ours partitions in this thread, and is torch's own for all else: other threads, and whatever stock compiles meanwhile. Must
not keep anything of a compile that has ended.

>>> with partitioned_by(compilers.partition):
...     pipeline.run("capture", work)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from . import _torch as t
from .hooks import Function, Hooks

Partition = Callable[..., tuple[Any, Any]]


def partitioned_by(partition: Partition) -> AbstractContextManager[None]:
    """While entered, regions that are partitioned in this thread go to `partition`."""
    return _hooks.inside(partition)


def _routed(usual: Function) -> Function:
    def routed(gm: Any, joint_inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
        partition: Partition | None = _hooks.here
        if partition is None or "partitioner_fn_override" not in kwargs:  # a whole graph is stock's: ours are given theirs
            return usual(gm, joint_inputs, **kwargs)
        return partition(gm, joint_inputs, **kwargs)

    return routed


_hooks = Hooks(lambda: [(t.stock, "partition_fn", _routed)])
