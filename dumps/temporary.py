"""Temporary folders that do not outlive their owners, whatever ends them.

A folder has a file `alive` that every process working in it holds locked. The kernel lets go of the lock when a process
ends in any way, so a folder that nobody holds is left over: the next start of a command removes it. SIGTERM and SIGHUP
remove the folders of a command before they end it. Only folders that are named like ours are removed.

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
"""The names of folders that can be removed without ending a process."""

_mine: dict[Path, tuple[int, int, Callable[[Path], object]]] = {}
"""The folders that go with the process that made them: it, the descriptor that holds the folder, and how it is
removed."""


def _remove_tree(path: Path) -> None:
    """Removes a folder with one descriptor open at a time (`shutil.rmtree` opens one for every level): more may not be
    left. Nobody else can write in it."""
    for place, folders, files in os.walk(path, topdown=False):
        # Of folders, first those that are links.
        for remove, names in ((os.unlink, (*files, *folders)), (os.rmdir, folders)):
            for name in names:
                with contextlib.suppress(OSError):
                    remove(os.path.join(place, name))  # noqa: PTH118 - there may be 100,000 of them
    with contextlib.suppress(OSError):
        path.rmdir()


def make(prefix: str, removal: Callable[[Path], object] = _remove_tree) -> Path:
    """A fresh folder that goes with this process. Raises OSError, and EnvironmentLackError where nothing can be made
    anywhere."""
    path, handle = held(prefix)
    _mine[path] = os.getpid(), handle, removal
    return path


def held(prefix: str) -> tuple[Path, int]:
    """A fresh folder for temporary files and the descriptor that holds it; raises as `make` does, and then leaves
    none."""
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
    """The same for a block."""
    path = make(prefix, removal)
    try:
        yield path
    finally:
        remove(path)


def remove(path: Path) -> None:
    """Removes a folder that this process made; what another one made stays."""
    maker, handle, removal = _mine.get(path, (0, -1, _remove_tree))
    if maker == os.getpid():
        del _mine[path]
        os.close(handle)  # first: removing needs one
        removal(path)


def mine(path: Path) -> bool:
    """Whether a path lies in a folder that this process made."""
    return any(known in _mine and _mine[known][0] == os.getpid() for known in (path, *path.parents))


@atexit.register
def remove_mine() -> None:
    """Removes the folders that this process made and did not remove yet."""
    for path in [*_mine]:
        remove(path)


def hold(path: Path) -> int:
    """Marks the folder as in use by this process, as long as the returned descriptor is open; children of a fork do so
    too.

    The file is held before it gets its name: one that is there and free is never seen, not even for a moment.
    """
    import tempfile

    file = path / ALIVE
    while True:
        own_file = None
        try:
            handle = os.open(file, os.O_RDWR)
        except FileNotFoundError:
            handle, own_file = tempfile.mkstemp(prefix=f"{ALIVE}-", dir=path)
        with contextlib.suppress(OSError):  # a file system without locks: then nothing is ever taken for left over
            fcntl.flock(handle, fcntl.LOCK_SH)
        if own_file is None or _named(Path(own_file), file):
            return handle
        os.close(handle)


def _named(own_file: Path, path: Path) -> bool:
    """Gives a file its name; False where another was quicker."""
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
    """Whether the lock of a folder exists, is ours, and is free. A folder without one is being made, or of an older
    version."""
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
    """Removes folders with these names that nobody holds, where temporary folders are made; returns them."""
    with contextlib.suppress(OSError), os.scandir(_place()) as entries:
        folders = [Path(entry.path) for entry in entries if entry.name.startswith(prefixes)]
        folders = [path for path in folders if nobody_holds(path)]
        for path in folders:
            removal(path)
        return folders
    return []


def _place() -> str:
    """The folder that `tempfile` chooses, without the import."""
    if "tempfile" in sys.modules:
        return sys.modules["tempfile"].gettempdir()
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next((place for place in named if place and os.access(place, os.W_OK)), "/tmp")


def go_on_signals() -> None:
    """From now on SIGTERM and SIGHUP, where they would end this process at once, remove its folders first."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _go)


def _go(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    remove_mine()
    os.kill(os.getpid(), number)
