"""`graphdbg ls RUN --why`, and `RUN/ID --why` for the compile that one graph belongs to.

>>> show("myrun", open_run("myrun"), as_json=False)
1 function compiled 2 times: 1 recompile
...
    0_1  recompile of 0_0: x.size()[0] was 2, is now 3 ...
...
"""

from __future__ import annotations

import shutil
from typing import Any

import msgspec

from .. import deaths
from ..errors import UsageError
from ..output import emit, say
from ..store import Run, SavedGraph, resolve
from ..tables import on_terminal
from . import frequent
from .compiles import next_of
from .events import base, of_run
from .model import Why
from .text import WIDTH, render

_WIDEST = 120


def show(text: str, named: Run | SavedGraph, as_json: bool) -> None:
    """Prints why the graphs of a run exist, or those of one compile. Raises UsageError for a case, which has no
    journal."""
    run, reasons = _found(text, named)
    for sentence in run.damage:
        say(f"note: {sentence}")
    if as_json:
        rows = [row.fixed() for row in run.rows if isinstance(named, Run) or row.id == named.id]
        ends = [ending.fixed() for ending in deaths.endings(run.processes)]
        name = text if named is run else str(run.path)
        emit(
            {"run": name, "graphs": rows, "processes": ends, "why": document(reasons), **run.inputs_json},
            as_json=True,
            next=next_of(name, run),
        )
        return
    if not reasons.processes:
        say(f"{text}: nothing was compiled")
        return
    emit(render(reasons, min(shutil.get_terminal_size().columns, _WIDEST) if on_terminal() else WIDTH), as_json=False)


def text_of(text: str, width: int) -> str:
    """The text without notes on damage. Raises GraphdbgError for what cannot be found or has no journal."""
    named = resolve(text)
    _, reasons = _found(text, named)
    return render(reasons, min(width, _WIDEST)) if reasons.processes else f"{text}: nothing was compiled"


def _found(text: str, named: Run | SavedGraph) -> tuple[Run, Why]:
    if isinstance(named, Run):
        return named, of_run(named)
    if named.run is None:
        raise UsageError(f"{text} is a case", "only a recorded run knows why its graphs exist", "graphdbg ls RUN --why")
    return named.run, of_run(named.run, compile_id=base(named.local_id.partition("/")[0])[0], process=named.process)


def document(reasons: Why) -> list[dict[str, Any]]:
    """The value of "why" in the JSON document: one object for each process."""
    return [
        {**msgspec.to_builtins(process), "causes": msgspec.to_builtins(frequent.causes(process))}
        for process in reasons.processes
    ]
