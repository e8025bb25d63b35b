"""Whether a dump is trusted: its source runs where the user says `--trust`, its settings also where the user recorded
it here.

Nothing that is read from a dump, a journal or the environment grants it: who recorded a run is known by `bound`.

>>> given()
False
>>> with granted():
...     given()
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path

from . import bound

Ready = Callable[[], object]
_given = False
_ready: Ready | None = None
_ours = False
_made: set[str] = set()


def given() -> bool:
    """Whether the user has said `--trust`."""
    return _given


def trusted(run: Path | None = None) -> bool:
    """Whether the settings of a run, or of a graph by its folder, may name commands, paths and code (see `permitted`):
    where this user recorded it here, or says `--trust`. Without a path: of the run that this process works on."""
    if given() or run is None:
        return given() or _ours
    return str(run) in _made or bound.ours(run)


def settle() -> None:
    """Records that this process works on a run that its parent knows to be the user's own, and on no other."""
    global _ours
    _ours = True


def vouch(case: Path) -> None:
    """Trusts a case that this process has just written, of a live graph of its own."""
    _made.add(str(case))


def grant(ready: Ready | None = None) -> None:
    """Grants trust from now on. `ready` is called before the first kernel is loaded: it prepares what launches them."""
    global _given, _ready
    _given, _ready = True, ready or _ready


@contextlib.contextmanager
def granted(ready: Ready | None = None) -> Generator[None]:
    """Grants trust within a block."""
    global _given, _ready
    before = _given, _ready
    grant(ready)
    try:
        yield
    finally:
        _given, _ready = before


def prepare() -> None:
    """Calls `ready`, once, before the first kernel is loaded."""
    global _ready
    ready, _ready = _ready, None
    if ready is not None:
        ready()
