"""A run that is followed, as lines: one for each step that a graph takes, one for each process that ends. Prints nothing.

>>> for line in told(Following(Path("myrun")), wait=time.sleep): ...
'20:14:05  0_0/forward                    113  compiling'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .. import deaths
from ..index import Row
from ..tables import one_line
from .follow import POLL_S, Following


def told(run: Following, wait: Callable[[float], None]) -> Iterator[str]:
    """Lines as they come, until the run has ended, vanished or cannot be read; `wait` is called in between."""
    steps: dict[tuple[str, str], tuple[str, float, bool]] = {}
    ended: set[str] = set()
    told_waiting = False
    while True:
        run.poll()
        if run.state == "waiting" and not told_waiting:
            told_waiting = True
            yield f"waiting for {run.path}: it is not there yet"
        for row in run.rows:
            step = (row.status, row.since, row.lost)
            if steps.get((row.process, row.local)) != step:
                steps[row.process, row.local] = step
                yield _step(row)
        for end in deaths.endings(run.processes):
            if end.status in ("failed", "killed", "died") and end.process.name not in ended:
                ended.add(end.process.name)
                yield deaths.sentence(end, run.processes)
        if run.state in ("ended", "vanished", "unreadable"):
            return
        wait(POLL_S)


def _step(row: Row) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(row.since)) if row.since else " " * 8
    seconds = f" {row.seconds:.2f} s" if row.seconds is not None and row.status in ("compiled", "failed") else ""
    nodes = "" if row.nodes is None else str(row.nodes)
    status = f"{row.status}, {'died' if row.died else 'ended'}" if row.lost else row.status
    error = f"  {one_line(row.error)}" if row.error else ""
    return f"{clock}  {row.id:<28} {nodes:>7}  {status}{seconds}{error}"
