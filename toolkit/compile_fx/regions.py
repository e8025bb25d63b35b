"""Regions of invoke_subgraph with a partitioner of their own: torch looks up Inductor's partition function for them by its name.

While compiles of ours run, that name is one function of this module. It goes through our stages for a region that a compile
of ours partitions in this thread, and is torch's own for all else: other threads, and whatever stock compiles meanwhile. Must
not keep anything of a compile that has ended.

>>> with partitioned_by(compilers.partition):
...     pipeline.run("capture", work)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import _torch as t

Partition = Callable[..., tuple[Any, Any]]

_lock = threading.Lock()
_here = threading.local()
_running = 0
_usual: Any = None


@contextlib.contextmanager
def partitioned_by(partition: Partition) -> Iterator[None]:
    """While entered, regions that are partitioned in this thread go to `partition`."""
    outer = getattr(_here, "partition", None)
    _here.partition = partition
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _here.partition = outer


def _count(by: int) -> None:
    global _running, _usual
    with _lock:
        if _running == 0:
            _usual = t.stock.partition_fn
            t.stock.partition_fn = _routed
        _running += by
        if _running == 0 and t.stock.partition_fn is _routed:
            t.stock.partition_fn = _usual


def _routed(gm: Any, joint_inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
    partition: Partition | None = getattr(_here, "partition", None)
    if partition is None or "partitioner_fn_override" not in kwargs:  # a whole graph is stock's: ours are given theirs
        return _usual(gm, joint_inputs, **kwargs)
    return partition(gm, joint_inputs, **kwargs)
