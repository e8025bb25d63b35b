"""The only functions that open recorded files: of a run, a case, a pack, or a minification's folder.

Dumps come from strangers. Only a regular file that lies where its path says is opened: a FIFO would block, a device
might never end, a link could lead to a private file and carry it into a pack. And reading is bounded by memory: a file
with holes or a small archive may claim to hold terabytes. Each refusal is an OSError that gives the reason in
`strerror`. Nothing is written here, and there is no other way: modules that open files are named in
tests/house/test_opening.py.

>>> with opened(Path("myrun/run.json")) as file:
...     file.read(1)
b'{'
>>> len(read(Path("myrun/run.json"))) > 100
True
"""

from __future__ import annotations

import errno
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from .errors import ExistsAlreadyError
from .wording import size_text

FREELY_BYTES = 128 << 20
"""The bytes that a file may unpack to, or claim with holes, whatever lies on the disk."""

MOST_TIMES = 128
"""Above that, the largest ratio of a file's size to its size on disk: texts of large graphs are compressed 30 to 60
times."""

_MOST_PIECES = 4096
_MOST_ABOVE = 8
_RUN = "run.json"
_GRAPH = ("graph.json", "graph.json.gz")
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
_FLAGS = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


def opened(path: Path, *, named: bool = False, freely: int = FREELY_BYTES) -> BinaryIO:
    """Opens a file for reading. Raises OSError for one that is not regular, leads by a link out of its run or case, or
    is mostly holes.

    `named`: the user gave this name, so it may be a link. `freely`: the size that a file may claim with holes.
    """
    _regular(path.stat(), path)
    if not named:
        _here(path)
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        _regular(status, path)
        if status.st_size > freely and (there := _on_disk(descriptor, status)) * MOST_TIMES < status.st_size:
            sizes = f"{size_text(status.st_size)} long, {size_text(there)} on disk"
            why = f"it is a sparse file ({sizes}); if you trust it, copy it with `cp --sparse=never`"
            raise OSError(errno.EFBIG, why, str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read(path: Path, *, named: bool = False) -> bytes:
    """The whole file. Raises OSError as `opened` does, and for a file larger than memory allows."""
    with opened(path, named=named) as file:
        size = os.fstat(file.fileno()).st_size
        if size > FREELY_BYTES and size > (most := most_in_memory()):
            why = f"it has {size_text(size)}, and graphdbg reads at most {size_text(most)} here"
            raise OSError(errno.EFBIG, why, str(path))
        return file.read()


def read_text(path: Path, *, named: bool = False) -> str:
    """The whole file as text; bytes that are not UTF-8 are replaced."""
    return read(path, named=named).decode("utf-8", "replace")


def text_if_there(path: Path | str) -> str:
    """The text of a file that belongs to no dump; "" where it cannot be read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def refuse_links(folder: Path) -> None:
    """Raises UsageError where an entry of a folder that is about to be written into is a link or no regular file:
    writing to it would go elsewhere."""
    with os.scandir(folder) as entries:
        plain = (stat.S_IFREG, stat.S_IFDIR)
        odd = [entry.name for entry in entries if stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) not in plain]
    if odd:
        why = f"{min(odd)!r} in it is a link or not a regular file"
        raise ExistsAlreadyError(f"cannot write into {folder}", why, "remove it")


def most_out(packed_bytes: int) -> int:
    """The bytes that a compressed text may unpack to, in memory."""
    return min(max(FREELY_BYTES, MOST_TIMES * packed_bytes), max(FREELY_BYTES, most_in_memory()))


def most_in_memory() -> int:
    """The memory that one file may take: half of what is free for this machine, or this process's group."""
    return _free_bytes() // 2


def _free_bytes() -> int:
    amounts = [value for name in ("MemAvailable", "SwapFree") if (value := _meminfo().get(name)) is not None]
    free = sum(amounts) if amounts else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    for most, now in _GROUPS:
        try:
            free = min(free, int(_own(most)) - int(_own(now)))
        except (OSError, ValueError):  # no such cgroup, or one without a limit
            continue
    return max(0, free)


_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def _meminfo() -> dict[str, int]:
    try:
        lines = [line.split() for line in _own("/proc/meminfo").splitlines()]
    except OSError:
        return {}
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines if len(words) > 1 and words[1].isdigit()}


def _own(path: str) -> str:
    return Path(path).read_text(encoding="ascii", errors="replace")


def _regular(status: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something')}, not a regular file", str(path))


def _here(path: Path) -> None:
    """Refuses a path that leads, by a link in it, out of the run or case that contains it."""
    root, place = _places(path.parent.absolute())
    if path.is_symlink():
        place = os.path.realpath(path)
    if place != root and not place.startswith(root.rstrip(os.sep) + os.sep):
        why = f"a link points outside {root}, to {place}; replace it with a copy of what it points to"
        raise OSError(errno.EPERM, why, str(path))


@lru_cache(maxsize=1024)
def _places(folder: Path) -> tuple[str, str]:
    """Returns the folder of the run (else the case, else `folder` itself) that contains `folder`, and `folder`; both
    without links."""
    case = None
    for above in (folder, *folder.parents[:_MOST_ABOVE]):
        if os.path.lexists(above / _RUN):
            case = above
            break
        if case is None and any(os.path.lexists(above / name) for name in _GRAPH):
            case = above
    return os.path.realpath(case or folder), os.path.realpath(folder)


def _on_disk(descriptor: int, status: os.stat_result) -> int:
    """The bytes of a file that are no holes."""
    if getattr(status, "st_blocks", status.st_size) * 512 * 2 > status.st_size or not hasattr(os, "SEEK_DATA"):
        return status.st_size
    total = end = 0
    for _ in range(_MOST_PIECES):
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError:  # no further data
            break
        total += end - start
    else:
        total = status.st_size
    os.lseek(descriptor, 0, os.SEEK_SET)
    return total
