"""Runs one query per forked child of a warm server, so that a segfault, a hang or a memory hog is a verdict and not an end.

`client.ForkServer` is the door; `server` is the process that forks; `child` is what a forked child does; `cache` is the private
Inductor cache and its per-user seed; `protocol` is the wire. Nothing here knows of graphs.

>>> with ForkServer() as server:
...     answer = server.call("graphdbg.toolkit.replay:task", {"path": "case"}, limit_s=60)
...     answer.status
'done'
"""

from __future__ import annotations

from .client import ForkServer, Pending
from .limits import default_memory_bytes
from .protocol import Answer

__all__ = ["Answer", "ForkServer", "Pending", "default_memory_bytes"]
