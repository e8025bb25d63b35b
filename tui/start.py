"""From what `graphdbg tui` was given to the screen that is shown first. Reads no graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..dumps.index import is_run
from ..dumps.query import resolve
from ..dumps.store import SavedGraph
from .here import Here

if TYPE_CHECKING:
    from .room import Room

JOURNAL = "journal.jsonl"


def first_room(target: str | None, *, follow: bool = False) -> Room:
    """Home, a graph or a minification. Raises UsageError where `target` names nothing."""
    from .screens.graph import GraphRoom
    from .screens.home import HomeRoom
    from .screens.minify import MinifyRoom

    if target is None or follow:
        return HomeRoom(Here(run=target), follow=follow)
    path = Path(target)
    if (path / JOURNAL).is_file() and not is_run(path):
        return MinifyRoom(Here(out=target))
    found = resolve(target)
    return GraphRoom(Here(graph=target)) if isinstance(found, SavedGraph) else HomeRoom(Here(run=target))
