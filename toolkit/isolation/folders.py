"""Temporary folders that do not outlive their owners, whatever ends them.

A folder has a file `alive` that every process working in it holds locked. The kernel lets go of the lock when a process ends
in any way, so a folder of ours that nobody holds is left over: the next to come, and a server whose client is dead, remove
it, with the processes that were started under it. Must never remove a folder that is not named like ours.

>>> with owned("graphdbg-minify-") as folder:
...     (folder / "values").touch()
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import processes

HOST_PREFIX = "graphdbg-host-"
PREFIXES = ("graphdbg-server-", "graphdbg-minify-", "graphdbg-verify-", "graphdbg-report-", HOST_PREFIX)
ALIVE = "alive"


def make(prefix: str) -> tuple[Path, int]:
    """A fresh folder and the descriptor that holds it; `prefix` is one of PREFIXES. Removes left-over folders first."""
    assert prefix in PREFIXES
    remove_left_over()
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    return folder, hold(folder)


def hold(folder: Path) -> int:
    """Says that this process works in the folder, as long as the returned descriptor is open; children of a fork say so too.

    The file is held before it gets its name: one that is there and free is never seen, not even for a moment.
    """
    path = folder / ALIVE
    while True:
        made = None
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            handle, made = tempfile.mkstemp(prefix=f"{ALIVE}-", dir=folder)
        with contextlib.suppress(OSError):  # a file system without locks: then nothing is ever taken for left over
            fcntl.flock(handle, fcntl.LOCK_SH)
        if made is None or _named(Path(made), path):
            return handle
        os.close(handle)


def _named(made: Path, path: Path) -> bool:
    """Gives a file its name; False where another was quicker."""
    try:
        os.link(made, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        made.replace(path)
        return True
    finally:
        made.unlink(missing_ok=True)
    return True


@contextmanager
def owned(prefix: str) -> Iterator[Path]:
    """A fresh folder that goes at the end of the block, or soon after this process is killed."""
    folder, handle = make(prefix)
    try:
        yield folder
    finally:
        remove(folder)
        os.close(handle)


def remove(folder: Path) -> None:
    """Removes the folder; what still writes into it, was started under it, and is not this process, is ended."""
    for _ in range(50):
        found = processes.started_under(folder / "tmp")
        processes.kill(found)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() and not found:
            return
        time.sleep(0.02)


def remove_left_over() -> list[Path]:
    """Removes folders of ours that nobody holds, in the current temporary folder; returns them."""
    found: list[Path] = []
    for prefix in PREFIXES:
        for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            if _nobody_holds(folder):
                remove(folder)
                found.append(folder)
    return found


def left_over(folder: Path) -> bool:
    """Whether a folder that once was there is gone, or held by nobody any more."""
    return not folder.is_dir() or _nobody_holds(folder)


def _nobody_holds(folder: Path) -> bool:
    """Whether its lock is there, ours, and free. A folder without one is being made, or of an older version."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        handle = os.open(folder / ALIVE, os.O_RDWR)
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


if __name__ == "__main__":
    remove_left_over()
