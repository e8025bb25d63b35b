"""Watches from `graphdbg dump` how recorded processes end: ranks of a launcher, children of children, however they die.

A process that imports torch or creates a process folder adds a line to the `seen` file. A thread here holds each such
process by a pidfd and, when it ends, reads its wait status (from /proc while it is a zombie, from the pidfd after that)
and writes exit.json into its folder. Sends no signals, traces and reaps nothing. Without pidfds nothing is known and
nothing is written.

For example: `launch.run(["torchrun", "train.py"], {}, watcher=Watcher(Path("myrun"), Path("/tmp/seen")))`.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
import time
from pathlib import Path
from typing import Any

from ...dumps.atomic import write_file
from ...dumps.errors import GraphdbgError
from ...dumps.graph_folder import encode
from ...dumps.lines import Tail, objects
from ...dumps.process import EXIT_FILE, ExitRecord, start_ticks
from ...dumps.schema import FORMAT

_EVERY_S = 0.05
_GET_INFO = 0xC040FF0B
"""ioctl number of PIDFD_GET_INFO, _IOWR(0xFF, 11, 64 bytes) of linux/pidfd.h; with the exit code since Linux 6.15."""
_WITH_EXIT = 1 << 3

Identity = tuple[int, int]
"""A process id and when its process started, in ticks since boot."""


class Watcher:
    """Watches processes from `started` to `ended`, which `launch.run` calls. `exits`: how each process ended: exit
    code, or minus the signal number."""

    def __init__(self, run: Path, seen: Path | None) -> None:
        self.run = run
        self.seen = seen
        self.exits: dict[Identity, int] = {}
        self._command: Identity = (0, 0)
        self._held: dict[int, Identity] = {}
        self._folders: dict[Identity, list[Path]] = {}
        self._seen = Tail(seen) if seen is not None else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="graphdbg-watch", daemon=True)

    def started(self, pid: int) -> None:
        """Starts watching the command, which runs as `pid`, a child of this process."""
        self._command = (pid, start_ticks(pid) or 0)
        if self.seen is not None and hasattr(os, "pidfd_open"):
            self._thread.start()

    def ended(self, code: int) -> None:
        """Writes the exit.json of the command, beside run.json."""
        self.exits[self._command] = code
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()
        for folder in (self.run, *self._folders.get(self._command, ())):
            write_exit(folder, self._command[0], code)

    def _watch(self) -> None:
        poll = select.poll()
        last = False
        while not last:
            last = self._stop.is_set()  # one more look after the command ended
            for descriptor in self._new():
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll(0 if last else _EVERY_S * 1000):
                poll.unregister(descriptor)
                identity = self._held.pop(descriptor)
                status = _status(identity[0], descriptor)
                os.close(descriptor)
                if status is not None:
                    self.exits[identity] = os.waitstatus_to_exitcode(status)
                    for folder in self._folders.get(identity, ()):
                        write_exit(folder, identity[0], self.exits[identity])
            if not self._held and not last:
                self._stop.wait(_EVERY_S)

    def _new(self) -> list[int]:
        """Opens pidfds of the processes that have reported themselves since the last look."""
        opened, lines = list[int](), list[dict[str, Any]]()
        with contextlib.suppress(OSError):
            lines += objects(self._seen.read()) if self._seen is not None else ()
        for line in lines:
            pid, ticks, folder = line.get("pid"), line.get("ticks"), line.get("folder")
            if not isinstance(pid, int) or not isinstance(ticks, int):
                continue
            identity = (pid, ticks)
            if isinstance(folder, str):
                self._folders.setdefault(identity, []).append(Path(folder))
                if identity in self.exits:
                    write_exit(Path(folder), pid, self.exits[identity])
            if identity in self.exits or identity in self._held.values():
                continue
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                if start_ticks(pid) in (ticks, None):  # None: already a zombie
                    self._held[descriptor] = identity
                    opened.append(descriptor)
                else:
                    os.close(descriptor)  # in another pid namespace, or a reused pid
        return opened


def write_exit(folder: Path, pid: int, code: int) -> None:
    """Writes exit.json into a process folder, unless the folder is gone or the disk is full."""
    if folder.is_dir():
        with contextlib.suppress(GraphdbgError):
            write_file(folder / EXIT_FILE, encode(ExitRecord(format=FORMAT, pid=pid, code=code, time=time.time())))


def _status(pid: int, descriptor: int) -> int | None:
    """The wait status of a process that ended; None when its parent has reaped it and the kernel keeps no status."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[0] in ("Z", "X") and len(fields) > 49:
            return int(fields[49])
    import fcntl

    for _ in range(3):
        with contextlib.suppress(OSError):
            answer = fcntl.ioctl(descriptor, _GET_INFO, struct.pack("<Q56x", _WITH_EXIT))
            if struct.unpack_from("<Q", answer)[0] & _WITH_EXIT:
                return struct.unpack_from("<i", answer, 60)[0]
        time.sleep(0.001)
    return None
