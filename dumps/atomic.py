"""Writing files so that a reader sees either nothing or the whole: temporary name in the same folder, fsync, rename.

With `later` the fsync is left to the given function (see `Syncing`). Folders are not synced: after a power cut the
newest files may be missing, but none is half there. Names that start with `.tmp-` are unfinished work, and every reader
ignores them.

>>> write_file(Path("settings.json"), b"{}")
True
>>> Path("settings.json").read_bytes()
b'{}'
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import CannotWriteError, EnvironmentLackError, ExistsAlreadyError

EVERY_S = 1.0


class Syncing:
    """Syncs the files of one process in a background thread. `failed(path, error)` is called, in any thread, for each
    file that the disk refuses."""

    def __init__(self, failed: Callable[[Path, OSError], object]) -> None:
        self._failed = failed
        self._waiting: dict[Path, None] = {}
        self._lock = threading.Lock()
        self._working = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, *paths: Path) -> None:
        """Queues files, to be synced within seconds."""
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
                with suppress(FileNotFoundError):
                    sync(path)
            except OSError as error:
                self._failed(path, error)


TEMPORARY_PREFIX = ".tmp-"

_counter = itertools.count()


def free_path(stem: str, suffix: str = "", *, bare: bool = True, first: int = 1) -> Path:
    """The first free path among `stem` (where `bare`), `stem-1`, `stem-2`, ..., each with the suffix."""
    numbered = (f"{stem}-{number}{suffix}" for number in itertools.count(first))
    names = itertools.chain([stem + suffix] if bare else [], numbered)
    return next(path for path in map(Path, names) if not path.exists())


def temporary_beside(path: Path) -> Path:
    """A fresh hidden name in the folder of `path`, unique among all threads and processes of this host."""
    return path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(4).hex()}-{next(_counter)}"


def sync(path: Path) -> None:
    """Waits until a file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_files(folder: Path) -> None:
    """Syncs every file below a folder that has only one hard link, after all are written: the first sync carries most
    of the data. (A file with a second link was synced before it got that link.)"""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            if path.stat().st_nlink == 1:
                sync(path)


def _write(path: Path, parts: Iterable[bytes | memoryview], *, synced: bool) -> None:
    with path.open("xb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        if synced:
            os.fsync(file.fileno())


def _claim(temporary: Path, path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Links the finished `temporary` as `path`; raises FileExistsError where `path` exists."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: whole only once written, but still never overwritten
        _write(path, parts, synced=True)


def cannot_write(path: Path, error: OSError) -> EnvironmentLackError:
    """The error to raise when the disk refuses to write `path`."""
    missing = isinstance(error, FileNotFoundError)
    fix = "make its folder first or choose another" if missing else "free some space or choose another folder"
    return CannotWriteError(f"cannot write {path}", error.strerror or str(error), fix)


def check_folder(folder: Path) -> None:
    """Raises UsageError where the folder exists, EnvironmentLackError where it cannot be created; for calls before long
    work."""
    if folder.exists():
        raise ExistsAlreadyError(f"cannot write {folder}", "it exists already", "choose another name or delete it")
    parent = next(folder_above for folder_above in folder.absolute().parents if folder_above.exists())
    probe = temporary_beside(parent / "probe")
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise cannot_write(folder, error) from error


def write_file(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    *,
    exclusive: bool = False,
    later: Callable[[Path], object] | None = None,
) -> bool:
    """Writes `data` to `path` whole or not at all; replaces an existing file.

    With `later` the fsync is left to that function, which gets the path. With `exclusive` an existing file stays as it
    is and False is returned. Raises EnvironmentLackError when the disk refuses.
    """
    parts = [data] if isinstance(data, bytes) else list(data)
    temporary = temporary_beside(path)
    try:
        try:
            _write(temporary, parts, synced=later is None)
            if exclusive:
                try:
                    _claim(temporary, path, parts)
                except FileExistsError:
                    return False
            else:
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    if later is not None:
        later(path)
    return True


@contextmanager
def new_folder(path: Path, *, synced: bool = True) -> Generator[Path]:
    """Yields an empty hidden folder. It becomes `path` when the block ends, and is deleted when the block raises.

    The block writes files plainly. With `synced` they are on the disk before the folder gets its name; without, the
    caller sees to that. Raises UsageError when `path` exists, as nothing is ever overwritten, and EnvironmentLackError
    when the disk refuses.
    """
    if path.exists():
        raise ExistsAlreadyError(f"cannot write {path}", "it exists already", "choose another name or delete it")
    try:
        temporary = temporary_beside(path)
        temporary.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield temporary
        # rename would replace an empty folder at `path`, and fails on anything else; both mean that another writer was
        # first.
        if path.exists():
            raise ExistsAlreadyError(f"cannot write {path}", "it exists already", "choose another name or delete it")
        if synced:
            _sync_files(temporary)
        temporary.rename(path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


BLOCK_BYTES = 4096


def in_blocks(size_bytes: int) -> int:
    """The size on disk of a file of that size."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
