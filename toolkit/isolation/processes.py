"""Looks at processes by /proc: who descends from whom, what they hold, and which ones a dead server has left behind.

Everything here is empty or does nothing where /proc is missing; must never touch a process that is not a descendant of a server
of ours: those are known by their parents, or by the TMPDIR that a server gives to all that it starts.

>>> descendants(os.getpid())
[]
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

_SHARED = Path("/dev/shm")


def children_of(pid: int) -> list[int]:
    """The direct children of a process, those of all its threads; empty where /proc is missing."""
    try:
        return [
            int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()
        ] or _children_by_parent(pid)
    except OSError:
        return []


def _children_by_parent(pid: int) -> list[int]:
    """The same for a kernel that does not list children."""
    if Path(f"/proc/{pid}/task/{pid}/children").exists():
        return []
    return [other for other in _pids() if _stat(other, 1) == pid]


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, nearest first; those that lost their parent on the way are not among them."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = [child for one in waiting for child in children_of(one) if child not in found]
        found += children
        waiting = children
    return found


def started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot; None when it is gone."""
    return _stat(pid, 19)


def held_bytes(pid: int) -> int:
    """Resident memory that is no mapped file; 0 when the process is gone."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to each that is still there and ours."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def started_under(tmp: Path) -> list[int]:
    """Processes whose TMPDIR is that folder: all that a server with it started, sessions of their own included."""
    wanted = f"TMPDIR={tmp}".encode()
    found: list[int] = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def written_by(pids: Iterable[int]) -> list[Path]:
    """What compilers and linkers among these processes write (`-o FILE`), as far as it lies in the Inductor cache."""
    cache = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/nonexistent"))
    found: list[Path] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            here = Path(f"/proc/{pid}/cwd").readlink()
            found += [here / after for word, after in pairwise(words) if word == "-o"]
    return [path for path in found if path.is_relative_to(cache)]


class Stalls:
    """How long processes stood ready to run while the machine ran others: time that is not theirs.

    Where the kernel does not tell, it is 0.
    """

    def __init__(self) -> None:
        self._waited: dict[int, int] = {}
        self._total = 0.0
        self._last: float | None = None

    def seconds(self, pids: Iterable[int], now: float) -> float:
        """Adds what these waited since the last call, no more than the time that has passed; returns the sum."""
        waited = {pid: found for pid in pids if (found := _waited_ns(pid)) is not None}
        fresh = sum(value - self._waited.get(pid, 0) for pid, value in waited.items()) / 1e9
        passed = fresh if self._last is None else now - self._last
        self._total += min(max(0.0, fresh), passed)
        self._waited.update(waited)
        self._last = now
        return self._total


def _waited_ns(pid: int) -> int | None:
    """What the main thread of a process waited for a processor."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def shared_memory(pids: Iterable[int]) -> set[Path]:
    """Files of /dev/shm that these processes map."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                name = line.partition(f"{_SHARED}/")[2]
                if name and not name.endswith(" (deleted)"):
                    found.add(_SHARED / name)
    return found


def forget_shared_memory(pids: Iterable[int], mapped: Iterable[Path]) -> None:
    """Removes what dead processes left in /dev/shm: what they mapped and nobody else does, and what torch named after them."""
    gone = {str(pid) for pid in pids}
    left = {path for path in mapped if path.exists()}
    with contextlib.suppress(OSError):
        left |= {path for path in _SHARED.glob("torch_*") if path.name.split("_")[1] in gone}
    if not left:
        return
    for path in left - shared_memory(_pids()):
        with contextlib.suppress(OSError):
            path.unlink()


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int, place: int) -> int | None:
    """A number of /proc/PID/stat, counted from the state, which is 0."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[place])
    except (OSError, ValueError, IndexError):
        return None
