"""Folders that travel by content: a tree names its files by hash, and only what a worker lacks is sent, once.

A worker keeps the files of all trees in one store, and makes a folder of a tree out of links into it. What was received
is checked against its hash. Knows nothing of what the files mean.

For example:

    sender = Sender()
    tree = sender.tree({"graph.json": Path("small/case/graph.json")})
    store = Store(Path("/tmp/host"))
    while lacks := store.lacks(tree):
        store.add({name: sender.bytes_of(name) for name in lacks})
    store.folder(tree)  # -> PosixPath('/tmp/host/trees/6d1b...')
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from ...dumps.atomic import temporary_beside
from ...dumps.errors import EnvironmentLackError

AT_ONCE_BYTES = 256 << 20
"""About how many bytes are asked for at once."""


class ParcelFile(msgspec.Struct, frozen=True):
    """One file of a tree, which is a list of them in order."""

    path: str
    hash: str
    size_bytes: int


def hash_of(data: bytes) -> str:
    """The name of a file's content."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


class Sender:
    """Names trees and gives out their content. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], str] = {}
        """Hashes of files that have not changed since: by path, size and time."""
        self._files: dict[str, Path | bytes] = {}

    def tree(self, files: Mapping[str, Path | bytes]) -> str:
        """The name of a tree: `files` are its paths and their content, or where that lies."""
        with self._lock:
            entries = [self._entry(path, files[path]) for path in sorted(files)]
            data = msgspec.json.encode(entries)
            name = hash_of(data)
            self._files[name] = data
        return name

    def bytes_of(self, name: str) -> bytes:
        """The content of that name, as it was named. Raises EnvironmentLackError where the file has changed since."""
        held = self._files[name]
        data = held if isinstance(held, bytes) else held.read_bytes()
        if hash_of(data) != name:
            raise EnvironmentLackError(
                "cannot send a case to a worker", f"{held} changed while it was being asked about"
            )
        return data

    def _entry(self, path: str, content: Path | bytes) -> ParcelFile:
        if isinstance(content, bytes):
            name = hash_of(content)
            size = len(content)
        else:
            status = content.stat()
            key, size = (str(content), status.st_size, status.st_mtime_ns), status.st_size
            name = self._known.get(key) or hash_of(content.read_bytes())
            self._known[key] = name
        self._files[name] = content
        return ParcelFile(path, name, size)


class Store:
    """A worker's store below `root`; shared by all processes that are given the same one."""

    def __init__(self, root: Path) -> None:
        self._files, self._trees = root / "files", root / "trees"
        self._files.mkdir(parents=True, exist_ok=True)
        self._trees.mkdir(parents=True, exist_ok=True)

    def add(self, parts: Mapping[str, bytes]) -> None:
        """Keeps content by its name. Raises EnvironmentLackError for content that arrived altered."""
        for name, data in parts.items():
            if hash_of(data) != name:
                raise EnvironmentLackError("a case did not arrive whole", f"{name} has other bytes than its name says")
            path = self._files / name
            if not path.exists():
                part = temporary_beside(path)
                part.write_bytes(data)
                part.replace(path)

    def lacks(self, tree: str) -> list[str]:
        """The names of what must be added before `folder`; the tree itself first, then its files, some at a time.
        Empty: nothing."""
        if (self._trees / tree).is_dir():
            return []
        if not (self._files / tree).exists():
            return [tree]
        missing: list[str] = []
        total = 0
        for entry in self._read(tree):
            if entry.hash not in missing and not (self._files / entry.hash).exists():
                missing.append(entry.hash)
                total += entry.size_bytes
                if total >= AT_ONCE_BYTES:
                    break
        return missing

    def folder(self, tree: str) -> Path:
        """The folder of a tree that is complete here."""
        folder = self._trees / tree
        if folder.is_dir():
            return folder
        fresh = temporary_beside(folder)
        for entry in self._read(tree):
            target = fresh / _inside(entry.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(self._files / entry.hash)
            except OSError:  # a file system without links
                shutil.copyfile(self._files / entry.hash, target)
        fresh.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # another worker was first
            fresh.rename(folder)
        shutil.rmtree(fresh, ignore_errors=True)
        return folder

    def _read(self, tree: str) -> list[ParcelFile]:
        return msgspec.json.decode((self._files / tree).read_bytes(), type=list[ParcelFile])


def _inside(path: str) -> PurePosixPath:
    """A path that stays inside its folder. Raises EnvironmentLackError for any other."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or (os.sep != "/" and os.sep in path):
        raise EnvironmentLackError("a case names a file outside of its folder", path)
    return pure
