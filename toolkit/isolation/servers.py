"""The fork servers of the commands: started in this one place, with all cores, a memory limit, and what their tasks need.

>>> with opened(None, "torch", "graphdbg.toolkit.node_stats:task") as server:
...     ask(TASK, payload, server=server).end()
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .bare import WARM
from .client import ForkServer
from .limits import default_memory_bytes

JUDGING = (
    "graphdbg.toolkit.judge", "graphdbg.toolkit.live:warm", "graphdbg.toolkit.fidelity", "graphdbg.dumps.store",
    "graphdbg.dumps.torchside.fake", "graphdbg.dumps.torchside.make_inputs", "graphdbg.dumps.torchside.encode",
    "graphdbg.toolkit.rungs.eager", "graphdbg.toolkit.rungs.nop", "graphdbg.toolkit.rungs.inductor",
    "graphdbg.toolkit.rungs.decomposed", "graphdbg.toolkit.rungs.inductor_nofuse", "graphdbg.toolkit.rungs.torchscript",
)  # fmt: skip
"""What a server should import once for tasks that load a graph and judge it."""


def fork_server(
    warm: str = "inductor", preload: Sequence[str] = JUDGING, *, threads: int | None = None, memory_bytes: int | None = None,
    cache_dir: Path | None = None,
) -> ForkServer:  # fmt: skip
    """A fork server. `threads` of each child: None for all cores; `memory_bytes` of each: None for most of the machine's, but
    no limit where nothing of ours is run."""
    memory = memory_bytes or (None if warm in (WARM, "nothing") else default_memory_bytes())
    return ForkServer(cache_dir, threads or os.cpu_count() or 1, memory, warm=warm, preload=preload)


@contextmanager
def opened(given: ForkServer | None, warm: str = "inductor", *tasks: str) -> Iterator[ForkServer]:
    """The server that was given, or one of our own that judges and imports the modules of `tasks`, closed at the end."""
    if given is not None:
        yield given
        return
    with fork_server(warm, (*JUDGING, *(task.partition(":")[0] for task in tasks))) as own:
        yield own


@contextmanager
def programs() -> Iterator[ForkServer]:
    """A server that imports torch from now on, in which whole programs then run without that wait (see `bare`). CPU only."""
    with fork_server(WARM, ()) as server:
        server.start()
        yield server
