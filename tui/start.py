"""The first screen for the target of `graphdbg tui`. Reads no graph and no journal.

>>> first_room("myrun/0_0/forward").ROOM
'graph'
"""

from __future__ import annotations

from pathlib import Path

from ..dumps.errors import UsageError
from ..dumps.index import is_run
from ..dumps.store import SavedGraph, resolve
from .here import Here, is_out
from .registry import room_of
from .room import Room


def first_room(target: str | None, *, follow: bool = False) -> Room:
    """Home of this folder, of a run or a packed one; a graph (RUN/ID, a case folder); or a minification's folder.

    With `follow` a run that may not be there yet. Raises UsageError where `target` names nothing.
    """
    if target is None:
        return room_of("home", Here())
    target = target.rstrip("/") or target
    path = Path(target)
    if follow:
        _check_followed(target, path)
        return room_of("home", Here(run=target), follow=True)
    if is_out(path):
        return room_of("minify", Here(out=target))
    if is_run(path):
        return room_of("home", Here(run=target))
    graph = resolve(target)
    if not isinstance(graph, SavedGraph):
        return room_of("home", Here(run=target))
    run = (
        target.removesuffix(graph.id).rstrip("/") if graph.run is not None and target.endswith("/" + graph.id) else None
    )
    return room_of("graph", Here(run=run, graph=target), saved=graph)


def _check_followed(target: str, path: Path) -> None:
    if path.is_file():
        raise UsageError(f"cannot follow {target}", "a packed run does not grow", f"graphdbg tui {target}")
    if is_out(path):
        why = "it is the folder of a minification, which is followed anyhow"
        raise UsageError(f"cannot follow {target}", why, f"graphdbg tui {target}")
    if any(is_run(parent) for parent in path.parents):
        raise UsageError(
            f"cannot follow {target}", "it is inside a run, and a whole run is followed", "name the run alone"
        )
