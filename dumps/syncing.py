"""Files that are whole already are put on the disk in the background, so that nobody waits for the disk while
compiling.

A process that dies loses nothing, for the system has the bytes; a power cut takes the last seconds. It opens no file
for writing. A file that vanished meanwhile, because a graph was left out or replaced, is skipped.

>>> syncing = Syncing(print)
>>> syncing.add(Path("myrun/run.json")); syncing.finish()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from . import atomic

EVERY_S = 1.0


class Syncing:
    """The files of one process. `failed(path, error)` is called for one that the disk refuses, in any thread."""

    def __init__(self, failed: Callable[[Path, OSError], object]) -> None:
        self._failed = failed
        self._waiting: dict[Path, None] = {}
        self._lock = threading.Lock()
        self._working = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, *paths: Path) -> None:
        """Has files synced within seconds."""
        with self._lock:
            self._waiting.update(dict.fromkeys(paths))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="graphdbg-sync", daemon=True)
                self._thread.start()
        if self._ending.is_set():
            self._all()

    def finish(self) -> None:
        """Syncs the waiting files; returns when they are on the disk."""
        self._ending.set()
        self._all()

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            self._all()

    def _all(self) -> None:
        with self._working:
            while True:
                with self._lock:
                    paths, self._waiting = self._waiting, {}
                if not paths:
                    return
                self._sync(paths)

    def _sync(self, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                atomic.sync(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._failed(path, error)
