"""Keeps files with equal bytes only once: ranks that compile the same graph, and recompiles that change nothing, share
them.

Equal files are hard links to each other. Each process lists the files it wrote in `<process>/files.txt` (hash and
path), where the others look; a listed file is compared byte by byte before it is linked, so a list may be out of date.
Where the file system has no hard links, every file is a copy. The bytes of an existing file are never changed.

For example:

    files = SharedFiles(run_path, "rank1_pid12")
    name = files.place(folder / "graph.py", b"...")       # written, or a link (then there is no name)
    files.publish(folder / "graph.py", name)              # once it is whole: others may link to it
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from .atomic import temporary_beside
from .lines import Tail, append
from .tensors import hash_bytes

LIST_FILE = "files.txt"

BLOCK_BYTES = 4096
SMALL_BYTES = 512
"""Smaller files are not shared."""


class SharedFiles:
    """Writes the files of one process; safe with several threads, and with the run's other processes and hosts.

    `disk_bytes` is what this object added to the disk, in blocks, less what it removed.
    """

    def __init__(self, run: Path, process: str) -> None:
        self.run = run
        self.process = process
        self.disk_bytes = 0
        self.list_bytes = 0
        self._known: dict[str, Path] = {}
        self._read: dict[str, Tail] = {}
        self._lock = threading.Lock()

    def place(self, path: Path, data: bytes) -> str:
        """Creates `path`, which must not exist: as a link where the run already has these bytes, else as a file, not
        synced.

        Returns the name to `publish` the file under; empty when there is nothing to publish. Raises OSError when the
        disk refuses.
        """
        name = hash_bytes(data) if len(data) >= SMALL_BYTES else ""
        if name and self._linked(name, path, data):
            return ""
        with path.open("xb") as file:
            file.write(data)
        self._count(in_blocks(len(data)))
        return name

    def publish(self, path: Path, name: str) -> None:
        """Lists a file, so that other processes can link to it."""
        if not name:
            return
        with self._lock:
            self._known[name] = path
        line = f"{name} {path.relative_to(self.run)}".encode()
        self.list_bytes += len(line) + 1
        append(self.run / self.process / LIST_FILE, line)

    def replace(self, path: Path, data: bytes) -> None:
        """Writes a file that may exist; a reader sees either the old bytes or the new ones, whole. The file is not
        synced."""
        temporary = temporary_beside(path)
        try:
            name = self.place(temporary, data)
            self._count(-_own_bytes(path))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)  # renaming one link to a file over another leaves both
        self.publish(path, name)

    def remove(self, path: Path) -> None:
        """Deletes a file; its bytes are freed unless another path links to them."""
        freed = _own_bytes(path)
        path.unlink(missing_ok=True)
        self._count(-freed)

    def unite(self) -> None:
        """Links equal files that this process and one with a smaller name wrote at the same moment; called when the
        process ends."""
        self._look(below=self.process)
        for name, below in _listed(Tail(self.run / self.process / LIST_FILE)):
            path = self.run / below
            other = self._known.get(name)
            try:
                if other is None or other == path or path.samefile(other) or path.read_bytes() != other.read_bytes():
                    continue
                size, temporary = _own_bytes(path), temporary_beside(path)
                os.link(other, temporary)
                temporary.replace(path)
                self._count(-size)
            except OSError:  # one of the two is gone, or there are no hard links here
                continue

    def _linked(self, name: str, path: Path, data: bytes) -> bool:
        if name not in self._known:
            self._look()
        known = self._known.get(name)
        try:
            if known is None:
                return False
            os.link(known, path)
            if path.read_bytes() == data:
                return True
            path.unlink()
        except OSError:  # it was deleted, or there are no hard links here
            path.unlink(missing_ok=True)
        return False

    def _look(self, below: str = "") -> None:
        """Reads what the other processes listed since the last look."""
        with os.scandir(self.run) as entries:
            others = sorted(entry.name for entry in entries if entry.name != self.process and entry.is_dir())
        with self._lock:
            for other in others:
                if below and other > below:
                    continue
                new = Tail(self.run / other / LIST_FILE)
                for name, path in _listed(new if below else self._read.setdefault(other, new)):
                    if below:
                        self._known[name] = self.run / path
                    else:
                        self._known.setdefault(name, self.run / path)

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self.disk_bytes += size_bytes


def in_blocks(size_bytes: int) -> int:
    """The size on disk of a file of that size."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def _listed(tail: Tail) -> list[tuple[str, str]]:
    """The (name, path) pairs that were added to a list since the last read."""
    try:
        lines = tail.read()
    except OSError:
        return []
    pairs = (line.decode("ascii", "replace").partition(" ") for line in lines)
    return [(name, path) for name, _, path in pairs if path and ".." not in path and not path.startswith("/")]


def _own_bytes(path: Path) -> int:
    """The bytes that deleting this file frees: none when another path links to them."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return in_blocks(status.st_size) if status.st_nlink == 1 else 0
