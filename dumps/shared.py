"""Files with the same bytes are one file: ranks that compile the same graph, and recompiles that change nothing, share it.

A file is a hard link to `<run>/shared/<hash>`, so that it is read, copied and deleted like any other; the bytes go with the last
link. On a file system without hard links every file stands by itself. A name in shared/ is given only to a file that is
synced and whole. Must not change a file that is there.

>>> files = SharedFiles(Path("myrun/shared"))
>>> name = files.place(folder / "graph.py", b"...")       # written, or linked (then there is no name)
>>> files.publish(folder / "graph.py", name)              # once it is synced: others may link to it
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from .atomic import temporary_beside
from .tensors import hash_bytes

SMALL_BYTES = 512
"""Smaller files are not worth a second name."""


class SharedFiles:
    """The shared files of one run; safe for several threads, processes and hosts.

    `written_bytes` is what this object added to the disk, less what it removed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written_bytes = 0
        self._lock = threading.Lock()

    def place(self, path: Path, data: bytes) -> str:
        """Makes `path`, which must not exist: a link where the bytes are in the run already, else a file that is not synced yet.

        Returns the name to `publish` it under; empty when there is nothing to publish. Raises OSError when the disk refuses.
        """
        name = hash_bytes(data) if len(data) >= SMALL_BYTES else ""
        if name and _linked(self.folder / name, path):
            return ""
        with path.open("xb") as file:
            file.write(data)
        self._count(len(data))
        return name

    def publish(self, path: Path, name: str) -> None:
        """Lets others link to a synced file; where somebody was faster, `path` becomes a link to theirs."""
        if not name:
            return
        shared = self.folder / name
        try:
            self.folder.mkdir(exist_ok=True)
            os.link(path, shared)
        except FileExistsError:
            temporary = temporary_beside(path)
            if _linked(shared, temporary):
                self._count(-path.stat().st_size)
                temporary.replace(path)
        except OSError:  # no hard links here, or too many to one file: it stands by itself
            return

    def replace(self, path: Path, data: bytes) -> None:
        """Writes a file that may exist; a reader sees the old bytes or the new ones, whole."""
        temporary = temporary_beside(path)
        try:
            name = self.place(temporary, data)
            _sync(temporary)
            self._count(-self._unshared_bytes(path))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)  # renaming one link to a file over another leaves both
        self.publish(path, name)

    def remove(self, path: Path) -> None:
        """Deletes a file; its bytes go too unless another graph uses them."""
        freed = self._unshared_bytes(path)
        path.unlink(missing_ok=True)
        self._count(-freed)

    def _unshared_bytes(self, path: Path) -> int:
        """The bytes that go with this file; takes its shared name away when nobody else has a link to it."""
        try:
            found = path.stat()
            if found.st_nlink == 2:
                shared = self.folder / hash_bytes(path.read_bytes())
                if not shared.exists() or not shared.samefile(path):
                    return 0
                shared.unlink(missing_ok=True)
        except FileNotFoundError:
            return 0
        return found.st_size if found.st_nlink <= 2 else 0

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self.written_bytes += size_bytes


def _linked(existing: Path, path: Path) -> bool:
    try:
        os.link(existing, path)
    except OSError:
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
