"""Temporary folders that do not outlive their owners, whatever ends them.

As those of `dumps.temporary`, with the processes that were started under them: a folder that nobody holds is left over,
and the next to come, and a server whose client is dead, remove it. Never removes a folder with another kind of name.

>>> with owned("graphdbg-minify-") as folder:
...     (folder / "values").touch()
"""

from __future__ import annotations

import shutil
import time
from contextlib import AbstractContextManager
from pathlib import Path

from ...dumps import temporary
from ...dumps.temporary import ALIVE as ALIVE
from ...dumps.temporary import hold as hold
from ...dumps.temporary import nobody_holds
from . import processes

HOST_PREFIX = "graphdbg-host-"
PREFIXES = ("graphdbg-server-", "graphdbg-minify-", "graphdbg-verify-", "graphdbg-report-", HOST_PREFIX)


def make(prefix: str) -> tuple[Path, int]:
    """A fresh folder and the descriptor that holds it; `prefix` is one of PREFIXES. Removes left-over folders first."""
    assert prefix in PREFIXES
    remove_left_over()
    return temporary.held(prefix)


def owned(prefix: str) -> AbstractContextManager[Path]:
    """A fresh folder that goes at the end of the block, or soon after this process is killed."""
    assert prefix in PREFIXES
    remove_left_over()
    return temporary.folder(prefix, remove)


def remove(folder: Path) -> None:
    """Removes the folder, and ends the processes that were started under it and still write into it, except this
    one."""
    for _ in range(50):
        started = processes.started_under(folder / "tmp")
        processes.kill(started)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() and not started:
            return
        time.sleep(0.02)


def remove_left_over() -> list[Path]:
    """Removes folders of ours that nobody holds, where temporary folders are made; returns them."""
    return temporary.remove_left_over(PREFIXES, remove)


def left_over(folder: Path) -> bool:
    """Whether a folder is gone, or no process holds it any more."""
    return not folder.is_dir() or nobody_holds(folder)


if __name__ == "__main__":
    remove_left_over()
