"""From what `graphdbg tui` was given to the screen that is shown first. Reads no graph and no journal.

>>> first_room("myrun/0_0/forward").ROOM
'graph'
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..dumps.errors import UsageError
from ..dumps.index import is_run
from ..dumps.query import resolve
from ..dumps.store import SavedGraph
from .here import Here, is_out

if TYPE_CHECKING:
    from .room import Room


def first_room(target: str | None, *, follow: bool = False) -> Room:
    """Home of this folder, of a run or a packed one; a graph (RUN/ID, a case folder); or a minification's folder.

    With `follow` a run that may not be there yet. Raises UsageError where `target` names nothing.
    """
    if target is None:
        return _home(Here())
    target = target.rstrip("/") or target
    path = Path(target)
    if follow:
        _check_followed(target, path)
        return _home(Here(run=target), follow=True)
    if is_out(path):
        from .screens.minify import MinifyRoom

        return MinifyRoom(Here(out=target))
    if is_run(path):
        return _home(Here(run=target))
    found = resolve(target)
    if not isinstance(found, SavedGraph):
        return _home(Here(run=target))
    from .screens.graph import GraphRoom

    run = target.removesuffix(found.id).rstrip("/") if found.run is not None and target.endswith("/" + found.id) else None
    return GraphRoom(Here(run=run, graph=target), found)


def _home(here: Here, *, follow: bool = False) -> Room:
    from .screens.home import HomeRoom  # late, as all screens: the first paint waits for none that is not shown

    return HomeRoom(here, follow=follow)


def _check_followed(target: str, path: Path) -> None:
    if path.is_file():
        raise UsageError(f"cannot follow {target}", "a packed run does not grow", f"graphdbg tui {target}")
    if is_out(path):
        why = "it is the folder of a minification, which is followed anyhow"
        raise UsageError(f"cannot follow {target}", why, f"graphdbg tui {target}")
    if any(is_run(parent) for parent in path.parents):
        raise UsageError(f"cannot follow {target}", "it is inside a run, and a whole run is followed", "name the run alone")
