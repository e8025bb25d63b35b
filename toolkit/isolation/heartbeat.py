"""A line now and then while a question is on its way, for commands whose user would otherwise look at nothing for
minutes.

Only who switches it on is told: a library must not write to its caller's terminal. One tells for the whole process.

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

Tell = Callable[[str], object]
_telling: list[Tell] = []
_listening: list[Tell] = []


@contextmanager
def beating(tell: Tell) -> Iterator[None]:
    """Inside, `tell` gets a line every `BEAT_S` seconds for each question that is waited for."""
    _telling.append(tell)
    try:
        yield
    finally:
        _telling.remove(tell)


def send(text: str) -> None:
    """A line at once."""
    for tell in (_telling or _listening)[-1:]:
        tell(text)


@contextmanager
def listening(tell: Tell) -> Iterator[None]:
    """Inside, `tell` gets what is sent at once, without the lines in between."""
    _listening.append(tell)
    try:
        yield
    finally:
        _listening.remove(tell)


def waited(done: threading.Event, function: str, payload: Mapping[str, Any], limit_s: float) -> None:
    """Waits for a question's end, however long that takes."""
    began = time.monotonic()
    while not done.wait(BEAT_S if _telling else None):
        for tell in _telling[-1:]:
            tell(f"{_what(function, payload)}: {time.monotonic() - began:.0f} s so far, {limit_s:.0f} s at most")


def _what(function: str, payload: Mapping[str, Any]) -> str:
    """What runs, as far as what was asked tells: the rung, and the graph by its id."""
    task = function.partition(":")[0].rpartition(".")[2]
    graph = str(payload.get("path") or "").rpartition(f"/{GRAPHS_FOLDER}/")[2]
    return " of ".join(part for part in (str(payload.get("rung") or task), graph) if part)
