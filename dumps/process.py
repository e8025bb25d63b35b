"""Whether a recorded process still lives, from process.json, written at its start, and from this host's kernel.

A process id alone is no proof (ids are reused, and two hosts or containers have the same), so the kernel's start time,
boot and process namespace are recorded with it. The answer is "unknown" for another host. Nothing is signalled or
traced.

>>> liveness(ProcessRecord(format=1, name="pid1", pid=1, host="elsewhere"), ended=False)
'unknown'
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Literal

from .schema import FORMAT, Record

Liveness = Literal["ended", "alive", "dead", "unknown"]

FILE = "process.json"
EXIT_FILE = "exit.json"
"""How a process ended, as `graphdbg dump` saw it from outside: beside process.json, and for its command beside
run.json."""


class ProcessRecord(Record, kw_only=True):
    """process.json: one recorded process. `start_ticks`: its start time since boot, in clock ticks (0: unknown);
    `where`: the boot of the machine and the pid namespace that `pid` belongs to; `gone`: the process was dead when this
    record was copied to a place where nobody can ask."""

    format: int
    name: str
    pid: int
    host: str
    rank: int | None = None
    restart: int = 0
    start_ticks: int = 0
    started: float = 0.0
    argv: list[str] = []
    where: str = ""
    gone: bool = False


class ExitRecord(Record, kw_only=True):
    """exit.json: `code` is the exit code of a process, or minus the number of the signal that killed it."""

    format: int
    pid: int
    code: int
    time: float = 0.0


def host_name() -> str:
    """The name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else platform.node()


def boot_and_namespace() -> str:
    """Ids of this boot and of this process's pid namespace; empty where the kernel does not give them."""
    try:
        boot = hashlib.sha256(Path("/proc/sys/kernel/random/boot_id").read_bytes()).hexdigest()[:16]
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """The start time of a live process of this host in clock ticks since boot; 0 when unknown, None when there is
    none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return _signal_zero(pid)  # another user's process may be hidden from /proc
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or not fields[19].isdigit():
        return 0
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _boot_time() -> float:
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, StopIteration, ValueError):
        return 0.0


def _signal_zero(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return None if isinstance(error, ProcessLookupError) else 0
    return 0


def command_words() -> list[str]:
    """The command line of this process, in a form that a UTF-8 file can hold."""
    return [argument.encode("utf-8", "backslashreplace").decode() for argument in sys.argv]


def describe(name: str, rank: int | None = None, restart: int = 0) -> ProcessRecord:
    """The record of the calling process."""
    import time

    pid = os.getpid()
    return ProcessRecord(
        format=FORMAT,
        name=name,
        pid=pid,
        host=host_name(),
        rank=rank,
        restart=restart,
        start_ticks=start_ticks(pid) or 0,
        started=time.time(),
        argv=command_words(),
        where=boot_and_namespace(),
    )


def liveness(process: ProcessRecord, *, ended: bool) -> Liveness:
    """Whether a process closed its journal ("ended"), still runs, is gone without that, or is unknown (on another
    host)."""
    if ended:
        return "ended"
    if process.gone:
        return "dead"
    if process.host != host_name():
        return "unknown"
    if process.where and process.where != (here := boot_and_namespace()):
        # Another boot: this host was restarted since, or is another machine of the same name. Only a boot after the
        # process started proves that it is dead.
        other_boot = process.where.partition(" ")[0] != here.partition(" ")[0]
        return "dead" if other_boot and process.started and process.started < _boot_time() else "unknown"
    ticks = start_ticks(process.pid)
    if ticks is None or (process.start_ticks and ticks and ticks != process.start_ticks):
        return "dead"
    return "alive"
