"""What binds a child to its server and its limits: process group, death signal, address space, core files, OOM order.

Linux has all of it; elsewhere a limit that the system lacks is skipped (the server's kill by process group works everywhere).
Needs no root and no cgroup of its own. `processes` looks at what runs already.

>>> bind_child(parent=os.getppid(), memory_bytes=2 << 30)      # in a fresh fork
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

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
    """Makes this process a group leader that dies with its server, writes no core file, and may map `memory_bytes` more.

    The memory limit counts address space on top of what is mapped already (libraries), because a limit on resident memory is not
    enforced by Linux. It is left out where a GPU may be used, since CUDA reserves address space by the hundred gigabytes: there
    the server looks at the resident memory of each child instead (`jobs`).
    """
    os.setsid()
    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(
            "1000"
        )  # the kernel takes the child first, never the user's process
    if memory_bytes is not None and address_space_tells():
        limit = mapped_bytes() + memory_bytes
        with contextlib.suppress(OSError, ValueError):  # a stricter limit of the user's stays
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def address_space_tells() -> bool:
    """Whether address space is a measure of memory here: not with an NVIDIA driver about."""
    return not Path("/dev/nvidiactl").exists()


def mapped_bytes() -> int:
    """Address space mapped by this process now; 0 where /proc is missing."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def oom_kills() -> int:
    """How many processes of this cgroup the kernel has killed for memory; 0 where it cannot be read."""
    for name in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def default_memory_bytes(jobs: int = 1) -> int:
    """What a child may use by default: its share, among `jobs` of them, of nine tenths of this machine's (or cgroup's) memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(name).read_text()))
    return total * 9 // 10 // max(1, jobs)
