"""Where queries run: on this machine's fork server, or through any `concurrent.futures.Executor`, each of whose workers
asks the fork server of its own process. Ray is one such executor (`ray_pool`, extra `graphdbg[ray]`).

`elsewhere` has both sides: `Elsewhere` for the caller, `ask` for what runs in an executor's worker; folders travel
between them by hash. Nothing here knows of graphs, searches or verdicts. Imports no torch, and Ray only when it is
asked for.

For example:

    with Elsewhere(home, executor, settings) as servers:
        servers.submit("graphdbg.minifier.tasks:probe", {"case": "small/case", ...}).answer().status
    # 'done'
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph
    from ..options import MinifyOptions


@contextmanager
def executor_for(options: MinifyOptions, saved: SavedGraph, say: Callable[[str], None]) -> Generator[Executor | None]:
    """The executor that the options name, within the block; None for this machine's own fork server."""
    if options.executor == "local":
        yield None
        return
    from .ray_pool import RayExecutor

    with RayExecutor(options.jobs, gpu=on_cuda(saved), say=say) as pool:
        yield pool


def on_cuda(saved: SavedGraph) -> bool:
    """Whether anything in the graph is on a CUDA device."""
    table = saved.table
    return any(table.strings[device].startswith("cuda") for device in set(table.device))
