"""Inspects processes through /proc: who descends from whom, what they hold, and which ones a dead server has left
behind.

Where /proc is missing, everything here is empty or does nothing. Only descendants of a graphdbg server are touched:
they are known by their parents, or by the TMPDIR that a server gives to all that it starts.

>>> os.getpid() in descendants(os.getpid())
False
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

from ...dumps import temporary
from ...dumps.temporary import ALIVE as ALIVE
from ...dumps.temporary import hold as hold
from ...dumps.temporary import nobody_holds

_SHARED = Path("/dev/shm")
_OMP_PAUSE_HARD = 2


def children_of(pid: int) -> list[int]:
    """The direct children of a process, those of all its threads; empty where /proc is missing."""
    threads = Path(f"/proc/{pid}/task")
    try:
        children = [int(word) for path in threads.glob("*/children") for word in path.read_text().split()]
    except OSError:
        return []
    if children or (threads / str(pid) / "children").exists():
        return children
    return [other for other in _pids() if _number(f"{other}/stat", 1) == pid]  # this kernel does not list them


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, nearest first; those that lost their parent on the way are not among them."""
    below: list[int] = []
    waiting = [pid]
    while waiting:
        children = [child for parent in waiting for child in children_of(parent) if child not in below]
        below += children
        waiting = children
    return below


def started(pid: int) -> int | None:
    """The start time of a process, in the kernel's ticks since boot; None when it is gone."""
    return _number(f"{pid}/stat", 19)


def held_bytes(pid: int, kinds: tuple[str, ...] = ("RssAnon:", "RssShmem:")) -> int:
    """Bytes of memory of these kinds: resident, without mapped files; 0 when the process is gone."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(kinds)) * 1024
    return 0


def kill(pids: Iterable[int]) -> None:
    """Sends SIGKILL to each process that still runs and is ours."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def started_under(tmp: Path) -> list[int]:
    """Processes whose TMPDIR is that folder: all that its server started, even in sessions of their own."""
    wanted = f"TMPDIR={tmp}".encode()
    pids: list[int] = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                pids.append(pid)
    return pids


def written_by(pids: Iterable[int]) -> list[Path]:
    """Files in the Inductor cache that compilers and linkers among these processes are writing (`-o FILE`)."""
    cache = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/nonexistent"))
    outputs: list[Path] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            here = Path(f"/proc/{pid}/cwd").readlink()
            outputs += [here / after for word, after in pairwise(words) if word == "-o"]
    return [path for path in outputs if path.is_relative_to(cache)]


class Stalls:
    """Sums how long processes were ready to run while the machine ran others: that time does not count against their
    limits.

    Where the kernel does not count it, it is 0.
    """

    def __init__(self) -> None:
        self._waited: dict[int, int] = {}
        self._total = 0.0
        self._last: float | None = None

    def seconds(self, pids: Iterable[int], now: float) -> float:
        """Adds the waiting time of these processes since the last call, at most the time that has passed; returns the
        sum."""
        # of each main thread, in nanoseconds
        waited = {pid: ns for pid in pids if (ns := _number(f"{pid}/schedstat", 1)) is not None}
        fresh = sum(value - self._waited.get(pid, 0) for pid, value in waited.items()) / 1e9
        passed = fresh if self._last is None else now - self._last
        self._total += min(max(0.0, fresh), passed)
        self._waited.update(waited)
        self._last = now
        return self._total


def shared_memory(pids: Iterable[int]) -> set[Path]:
    """Files of /dev/shm that these processes map."""
    files: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                name = line.partition(f"{_SHARED}/")[2]
                if name and not name.endswith(" (deleted)"):
                    files.add(_SHARED / name)
    return files


def forget_shared_memory(pids: Iterable[int], mapped: Iterable[Path]) -> None:
    """Removes what dead processes left in /dev/shm: files that only they mapped, and files that torch named after
    them."""
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


def _number(file: str, place: int) -> int | None:
    """A number in a file of /proc; in PID/stat counted from the state, which is field 0."""
    try:
        return int(Path("/proc", file).read_text().rpartition(")")[2].split()[place])
    except (OSError, ValueError, IndexError):
        return None


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when `parent` dies; exits at once if it is dead already. Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Makes orphans among our descendants our own children, so that they can be ended and collected. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def bind_child(parent: int, memory_bytes: int | None) -> None:
    """Makes this process a group leader that dies with its server, writes no core file, and may map `memory_bytes`
    more.

    The memory limit counts address space on top of what is mapped already (libraries), because a limit on resident
    memory is not enforced by Linux. It is left out where a GPU may be used, since CUDA reserves address space by the
    hundred gigabytes: there the server looks at the resident memory of each child instead (`jobs`).
    """
    os.setsid()
    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # under memory pressure the kernel kills the child first, not the user's process
        Path("/proc/self/oom_score_adj").write_text("1000")
    if memory_bytes is not None and address_space_tells():
        limit = (_number("self/statm", 0) or 0) * resource.getpagesize() + memory_bytes
        with contextlib.suppress(OSError, ValueError):  # the user's own limit is stricter
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def address_space_tells() -> bool:
    """Whether a limit on address space is meaningful here: not with an NVIDIA driver, since CUDA reserves so much of
    it."""
    return not Path("/dev/nvidiactl").exists()


def oom_kills() -> int:
    """How many processes of this cgroup the kernel has killed for memory; 0 where it cannot be read."""
    for name in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def default_memory_bytes(jobs: int = 1) -> int:
    """The default memory limit of a child: nine tenths of this machine's (or cgroup's) memory, divided by `jobs`."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(name).read_text()))
    return total * 9 // 10 // max(1, jobs)


def end_openmp_threads() -> None:
    """Ends the threads that OpenMP keeps for the calling thread: a fork has none of them, and its first parallel region
    would wait for them forever. OpenMP starts them again when needed. No-op where the library cannot do this (before
    OpenMP 5).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).omp_pause_resource_all(_OMP_PAUSE_HARD)


HOST_PREFIX = "graphdbg-host-"
PREFIXES = ("graphdbg-server-", "graphdbg-minify-", "graphdbg-verify-", "graphdbg-report-", HOST_PREFIX)


def make(prefix: str) -> tuple[Path, int]:
    """Makes a temporary folder; returns it and the descriptor that holds it. `prefix`: one of PREFIXES. Removes
    left-over folders first."""
    assert prefix in PREFIXES
    remove_left_over()
    return temporary.held(prefix)


def owned(prefix: str) -> AbstractContextManager[Path]:
    """Yields a temporary folder, removed at the end of the block, or soon after this process is killed."""
    assert prefix in PREFIXES
    remove_left_over()
    return temporary.folder(prefix, remove)


def remove(folder: Path) -> None:
    """Removes the folder; ends the processes that were started under it and still write into it, except this one."""
    for _ in range(50):
        started = started_under(folder / "tmp")
        kill(started)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() and not started:
            return
        time.sleep(0.02)


def remove_left_over() -> list[Path]:
    """Removes graphdbg's temporary folders that no process holds; returns them."""
    return temporary.remove_left_over(PREFIXES, remove)


def left_over(folder: Path) -> bool:
    """Whether a folder is gone, or no process holds it any more."""
    return not folder.is_dir() or nobody_holds(folder)
