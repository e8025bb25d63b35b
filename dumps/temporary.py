"""Temporary folders that are removed however their owning process ends.

A folder has a file `alive`, which every process that works in it holds locked. The kernel releases the lock when a
process ends in any way, so a folder that nobody holds is left over: the next command to start removes it. SIGTERM and
SIGHUP remove the folders of a command before they end it. Only folders with graphdbg's own prefixes are removed.

>>> with folder("graphdbg-pack-") as work:
...     (work / "run.json").touch()
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from .errors import CannotWriteError

ALIVE = "alive"
_OURS = "zip", "pack", "values", "bisect", "compile", "import", "launches", "tour", "doctor", "repro", "test", "handed"
PREFIXES = tuple(f"graphdbg-{what}-" for what in _OURS)
"""The prefixes of folders that may be removed without ending a process."""

_mine: dict[Path, tuple[int, int, Callable[[Path], object]]] = {}
"""Folder -> the process that created it and removes it, the descriptor that holds the folder, and the function that
removes it."""


def _remove_tree(path: Path) -> None:
    """Removes a folder with one descriptor open at a time (`shutil.rmtree` opens one per level, and more may not be
    left). No other process may write in it."""
    for place, folders, files in os.walk(path, topdown=False):
        # Links to folders are unlinked before the folders are removed.
        for remove, names in ((os.unlink, (*files, *folders)), (os.rmdir, folders)):
            for name in names:
                with contextlib.suppress(OSError):
                    remove(os.path.join(place, name))  # noqa: PTH118 - there may be 100,000 of them
    with contextlib.suppress(OSError):
        path.rmdir()


def make(prefix: str, removal: Callable[[Path], object] = _remove_tree) -> Path:
    """Creates a folder that is removed when this process ends. Raises OSError, and EnvironmentLackError where no
    temporary folder can be created."""
    path, handle = held(prefix)
    _mine[path] = os.getpid(), handle, removal
    return path


def held(prefix: str) -> tuple[Path, int]:
    """Creates a temporary folder; returns it and the descriptor that holds it. Raises as `make` does, and then leaves
    no folder."""
    import tempfile  # late: most commands need none

    try:
        path = Path(tempfile.mkdtemp(prefix=prefix))
    except FileNotFoundError as error:
        why = error.strerror or str(error)
        raise CannotWriteError("cannot make a temporary folder", why, "set TMPDIR to a folder with space") from error
    try:
        return path, hold(path)
    except BaseException:
        _remove_tree(path)
        raise


@contextmanager
def folder(prefix: str, removal: Callable[[Path], object] = _remove_tree) -> Generator[Path]:
    """Creates a folder as `make` does, and removes it at the end of the block."""
    path = make(prefix, removal)
    try:
        yield path
    finally:
        remove(path)


def remove(path: Path) -> None:
    """Removes a folder that this process created; does nothing for other folders."""
    maker, handle, removal = _mine.get(path, (0, -1, _remove_tree))
    if maker == os.getpid():
        del _mine[path]
        os.close(handle)  # first: removing needs a descriptor
        removal(path)


def mine(path: Path) -> bool:
    """Whether a path lies in a folder that this process created."""
    return any(known in _mine and _mine[known][0] == os.getpid() for known in (path, *path.parents))


@atexit.register
def remove_mine() -> None:
    """Removes the remaining folders that this process created."""
    for path in [*_mine]:
        remove(path)


def hold(path: Path) -> int:
    """Marks the folder as in use while the returned descriptor is open, in this process or in a forked child.

    The lock file is locked before it gets its name, so that nobody sees it unlocked in between.
    """
    import tempfile

    file = path / ALIVE
    while True:
        own_file = None
        try:
            handle = os.open(file, os.O_RDWR)
        except FileNotFoundError:
            handle, own_file = tempfile.mkstemp(prefix=f"{ALIVE}-", dir=path)
        with contextlib.suppress(OSError):  # a file system without locks: then no folder ever counts as left over
            fcntl.flock(handle, fcntl.LOCK_SH)
        if own_file is None or _named(Path(own_file), file):
            return handle
        os.close(handle)


def _named(own_file: Path, path: Path) -> bool:
    """Gives the lock file its name; returns False where another process was first."""
    try:
        os.link(own_file, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        own_file.replace(path)
        return True
    finally:
        own_file.unlink(missing_ok=True)
    return True


def nobody_holds(path: Path) -> bool:
    """Whether the lock of a folder exists, belongs to this user, and is free. A folder without lock is being created,
    or comes from an older version."""
    try:
        if path.is_symlink() or path.stat().st_uid != os.getuid():
            return False
        handle = os.open(path / ALIVE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def remove_left_over(
    prefixes: tuple[str, ...] = PREFIXES, removal: Callable[[Path], object] = _remove_tree
) -> list[Path]:
    """Removes the folders with these prefixes that nobody holds, from the folder of temporary files; returns them."""
    with contextlib.suppress(OSError), os.scandir(_place()) as entries:
        folders = [Path(entry.path) for entry in entries if entry.name.startswith(prefixes)]
        folders = [path for path in folders if nobody_holds(path)]
        for path in folders:
            removal(path)
        return folders
    return []


def _place() -> str:
    """The folder that `tempfile` would choose, without importing it."""
    if "tempfile" in sys.modules:
        return sys.modules["tempfile"].gettempdir()
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next((place for place in named if place and os.access(place, os.W_OK)), "/tmp")


def go_on_signals() -> None:
    """Makes SIGTERM and SIGHUP remove this process's folders before they end it, where they have their default
    action."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _go)


def _go(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    remove_mine()
    os.kill(os.getpid(), number)
