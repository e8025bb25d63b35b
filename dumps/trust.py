"""Whether source that lies in a dump may be run in this process: no, until the user says `--trust`.

Only the user's own Triton kernels ask. Must not be granted by anything that is read from a dump, a journal or the environment.

>>> given()
False
>>> with granted():
...     saved.module()
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path

Ready = Callable[[], object]
_given = False
_ready: Ready | None = None


def given() -> bool:
    """Whether the user has said so."""
    return _given


def trusted(run: Path | None = None) -> bool:
    """Whether the settings of a run may name commands, paths and code (see `permitted`): where the user says `--trust`."""
    return given()


def grant(ready: Ready | None = None) -> None:
    """From now on it may. `ready` is called before the first kernel is loaded: it prepares what launches them."""
    global _given, _ready
    _given, _ready = True, ready or _ready


@contextlib.contextmanager
def granted(ready: Ready | None = None) -> Generator[None]:
    """For a while."""
    global _given, _ready
    before = _given, _ready
    grant(ready)
    try:
        yield
    finally:
        _given, _ready = before


def prepare() -> None:
    """What was given to be called before the first kernel is loaded, once."""
    global _ready
    ready, _ready = _ready, None
    if ready is not None:
        ready()
