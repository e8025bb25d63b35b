"""Runs one query per forked child of a warm server, so that a segfault, a hang or a memory hog is a verdict and not an
end.

`ask` is the door; `opened` starts what the commands ask; `client.ForkServer` is their side of it; `server` is the
process that forks; `child` is what a forked child does, one that becomes a program too; `fresh` runs whole
programs, such as repros; `cache` is the private Inductor cache and its per-user seed; `protocol` is the
wire. Nothing here knows of graphs.

>>> with opened(None) as children:
...     ask("os:cpu_count", {}, limit_s=60, server=children).answer().status          # it takes no argument
'exception'
"""

from __future__ import annotations

from .client import JUDGING, ForkServer, fork_server, opened, programs
from .processes import default_memory_bytes
from .protocol import PendingTask, Servers, TaskResult, ask, raise_refusal

__all__ = [
    "JUDGING",
    "ForkServer",
    "PendingTask",
    "Servers",
    "TaskResult",
    "ask",
    "default_memory_bytes",
    "fork_server",
    "opened",
    "programs",
    "raise_refusal",
]
