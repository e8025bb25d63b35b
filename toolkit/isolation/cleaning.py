"""What lies in the cache folder, and its removal: the body of `graphdbg doctor --clean`.

Removes what is in the cache folder and nothing else: a link is removed as a link, and what is in use is kept. A process
that uses a folder holds its file `alive` locked (`folders`); the one that removes it holds the lock alone meanwhile.

For example: `clean(cache.home(), dry_run=True).entries[0].what` gives `'toolchain probes for torch 2.13.0+cpu'`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from pathlib import Path

import msgspec

from ...dumps import worst, written
from ...dumps.errors import EnvironmentLackError
from ...dumps.why import times
from . import cache, processes

GONE_PREFIX = ".gone-"
"""Prefix of the new name of a folder that is being removed, so that nobody finds half of it under the old name."""

_IN_USE = "a living process uses it"
PROBES = "toolchain probes for torch"
OUTCOMES = "judged.json"
"""The file of `replaying.judged`."""
_FILES = {
    worst.FILE: "the last verdicts on the graphs of runs",
    OUTCOMES: "outcomes that the next command need not ask for again",
    times.FILE: "how long a graph takes to run, compiled and eager",
    written.FILE: "which repros were written here",
}
_UNKNOWN = "not made by this version of graphdbg"
_FRESH_S = 60.0
"""Seconds that a folder in the making may exist without its lock."""


class CacheItem(msgspec.Struct):
    """One entry of the cache folder: its name, the size of its files, what it is, and whether it was removed, or why
    not."""

    name: str
    bytes: int
    what: str
    removed: bool = False
    kept: str = ""
    failed: bool = False
    """Whether it was kept because the system refused to remove it."""


class Cleaned(msgspec.Struct):
    """The entries that were found, and what became of them."""

    folder: str
    dry_run: bool
    entries: list[CacheItem] = []

    @property
    def bytes(self) -> int:
        """The size of all entries."""
        return sum(entry.bytes for entry in self.entries)


def clean(folder: Path, *, dry_run: bool) -> Cleaned:
    """Removes what is in the cache folder, and the folder once it is empty; with `dry_run` only looks.

    A folder that is not there has no entries. Raises EnvironmentLackError for one that is a link or cannot be read.
    """
    cleaned = Cleaned(str(folder), dry_run)
    for path in sorted(_things(folder), key=lambda path: (path.name.startswith(cache.NOTE_PREFIX), path)):
        entry = CacheItem(str(path.relative_to(folder)), size_bytes(path), _what(path))
        kept = {kept_entry.name for kept_entry in cleaned.entries if kept_entry.kept}
        if (seed := _noted(path)) is not None and f"{cache.SEEDS}/{seed}" in kept:
            entry.kept = f"{cache.SEEDS}/{seed} is kept"
        else:
            _remove(path, entry, dry_run)
        cleaned.entries.append(entry)
    if not dry_run and not folder.is_symlink():
        for empty in (folder / cache.SEEDS, folder):
            with contextlib.suppress(OSError):  # it is not empty, or not there
                empty.rmdir()
    return cleaned


def size_bytes(path: Path) -> int:
    """The size of the files under a path, each counted once; links are not followed, and unreadable files count
    nothing."""
    seen: dict[tuple[int, int], int] = {}
    waiting = [path]
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):
            status = current.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += current.iterdir()
            else:
                seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())


def _things(folder: Path) -> list[Path]:
    """The entries of the cache folder; in place of the seeds folder, each of its entries."""
    if folder.is_symlink():
        fix = f"remove what is in {folder.resolve()} yourself, or set XDG_CACHE_HOME"
        raise EnvironmentLackError(f"will not clean {folder}", "it is a link, and links are not followed", fix)
    seeds = folder / cache.SEEDS
    try:
        paths = [path for path in folder.iterdir() if path != seeds or not _is_folder(path)]
        return paths + (list(seeds.iterdir()) if _is_folder(seeds) else [])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EnvironmentLackError(
            f"cannot look into {folder}", error.strerror or str(error), "set XDG_CACHE_HOME"
        ) from error


def _what(path: Path) -> str:
    if path.is_symlink():
        return f"a link to {path.readlink()}"
    if path.name.startswith(GONE_PREFIX):
        return "what an interrupted --clean left"
    if path.name in _FILES:
        return _FILES[path.name]
    if path.parent.name != cache.SEEDS:
        return _UNKNOWN
    if path.name.startswith(cache.NOTE_PREFIX):
        return "a note: which probes a torch and a compiler use"
    if path.name.startswith(cache.MAKING_PREFIX):
        return "toolchain probes that are being made" if _held(path) else "toolchain probes that were never finished"
    match = re.fullmatch(r"(.+)-[0-9a-f]{16}", path.name)
    return f"{PROBES} {match[1]}" if match else _UNKNOWN


def _noted(path: Path) -> str | None:
    """The name of the seed that a note refers to; None for other files."""
    if path.parent.name != cache.SEEDS or not path.name.startswith(cache.NOTE_PREFIX) or path.is_symlink():
        return None
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:300]
    except OSError:
        return None


def _remove(path: Path, entry: CacheItem, dry_run: bool) -> None:
    """Removes a file, a link or a folder that nobody uses, and records in the entry what happened."""
    folder = _is_folder(path)
    if folder and _held(path):
        entry.kept = _IN_USE
    elif not dry_run:
        try:
            _remove_folder(path) if folder else path.unlink()
            entry.removed = True
        except BlockingIOError:
            entry.kept = _IN_USE
        except OSError as error:
            entry.kept, entry.failed = f"it cannot be removed: {error.strerror or error}", True


def _remove_folder(path: Path) -> None:
    """Removes a folder; raises BlockingIOError when it is in use, OSError where the system has no locks or refuses."""
    handle = os.open(path / processes.ALIVE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # keeps everybody else out
        gone = path.with_name(f"{GONE_PREFIX}{os.urandom(4).hex()}") if not path.name.startswith(GONE_PREFIX) else path
        path.rename(gone)
        shutil.rmtree(gone)
    finally:
        os.close(handle)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _held(folder: Path) -> bool:
    """Whether a folder is in use. A folder in the making gets its lock a moment later."""
    try:
        handle = os.open(folder / processes.ALIVE, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return folder.name.startswith(cache.MAKING_PREFIX) and time.time() - _changed(folder) < _FRESH_S
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks; `_remove_folder` says so
        return False
    finally:
        os.close(handle)
    return False


def _changed(folder: Path) -> float:
    try:
        return folder.lstat().st_mtime
    except OSError:
        return 0.0
