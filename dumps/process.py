"""Whether a recorded process still lives: process.json, written at its start, and what this host says about it now.

A process id alone is no proof (ids are used again), so the kernel's start time is kept with it. Says "unknown" for another host.

>>> liveness(ProcessRecord(format=1, name="pid1", pid=1, host="elsewhere"), ended=False)
'unknown'
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Literal

from .schema import FORMAT, Record

Liveness = Literal["ended", "alive", "dead", "unknown"]

FILE = "process.json"


class ProcessRecord(Record, kw_only=True):
    """process.json: one recorded process. `start_ticks` is its start time since boot, in clock ticks (0: unknown)."""

    format: int
    name: str
    pid: int
    host: str
    rank: int | None = None
    restart: int = 0
    start_ticks: int = 0
    started: float = 0.0
    argv: list[str] = []


def host_name() -> str:
    """This machine's name."""
    return os.uname().nodename if hasattr(os, "uname") else platform.node()


def start_ticks(pid: int) -> int | None:
    """The start time of a live process of this host in clock ticks since boot; 0 when unknown, None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _signal_zero(pid)
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or not fields[19].isdigit():
        return 0
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _signal_zero(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def describe(name: str, rank: int | None = None, restart: int = 0) -> ProcessRecord:
    """The record of the calling process."""
    import sys
    import time

    pid = os.getpid()
    return ProcessRecord(
        format=FORMAT, name=name, pid=pid, host=host_name(), rank=rank, restart=restart,
        start_ticks=start_ticks(pid) or 0, started=time.time(),
        argv=[argument.encode("utf-8", "backslashreplace").decode() for argument in sys.argv],
    )  # fmt: skip


def liveness(process: ProcessRecord, *, ended: bool) -> Liveness:
    """Whether the process closed its journal ("ended"), still runs, is gone without that, or cannot be asked from here."""
    if ended:
        return "ended"
    if process.host != host_name():
        return "unknown"
    ticks = start_ticks(process.pid)
    if ticks is None or (process.start_ticks and ticks and ticks != process.start_ticks):
        return "dead"
    return "alive"
