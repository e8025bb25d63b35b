"""Prints a line now and then while a query is in progress, for commands whose user would otherwise see nothing for
minutes.

Silent unless switched on: a library must not write to its caller's terminal. One listener serves the whole process.

For example:

    with beating(say):
        ask(TASK, payload, 300, server=server).answer()
    # inductor of myrun/0_0/forward: 15 s so far, 300 s at most
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...dumps.graph_folder import GRAPHS_FOLDER

BEAT_S = 15.0
STARTING = "starting the server of the runs (the first on a machine also compiles what all share)"

Listener = Callable[[str], object]
_listeners: list[tuple[Listener, bool]] = []
"""Those of the blocks that run, the innermost last, and whether each gets lines about time."""


@contextmanager
def beating(listener: Listener, *, times: bool = True) -> Iterator[None]:
    """Within the block, `listener` gets the lines of `send`, with `times` also one every `BEAT_S` seconds for each
    query that is waited for."""
    _listeners.append((listener, times))
    try:
        yield
    finally:
        _listeners.remove((listener, times))


def send(text: str) -> None:
    """Passes a line to the present listener at once."""
    for listener, _ in _listeners[-1:]:
        listener(text)


def waited(
    done: threading.Event, ready: threading.Event, function: str, payload: Mapping[str, Any], limit_s: float
) -> None:
    """Waits for a query's end, however long that takes, and sends lines meanwhile. The query's own time starts when the
    server is `ready`."""
    began, was_ready = time.monotonic(), ready.is_set()
    while not done.wait(BEAT_S if any(times for _, times in _listeners) else None):
        if not was_ready and ready.is_set():
            began, was_ready = time.monotonic(), True
            continue
        taken, most = time.monotonic() - began, ""
        if was_ready:
            most = f", {limit_s:.0f} s at most" + " without what other programs take" * (taken > limit_s)
        for listener in [listener for listener, times in _listeners if times][-1:]:
            listener(f"{_what(function, payload) if was_ready else STARTING}: {taken:.0f} s so far{most}")


def _what(function: str, payload: Mapping[str, Any]) -> str:
    """A query in words, from its payload: the rung and the graph's id; for two stages both ids."""
    task = function.partition(":")[0].rpartition(".")[2]
    graph, before, after = (
        str(payload.get(key) or "").rpartition(f"/{GRAPHS_FOLDER}/")[2] for key in ("path", "before", "after")
    )
    if before and after:
        return f"comparing {after} with {before}"
    return " of ".join(part for part in (str(payload.get("rung") or task), graph) if part)
