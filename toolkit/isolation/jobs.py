"""One running query as the server sees it: its child, its captured output, its deadline, and the answer made of its
end.

Nothing here blocks: the server's loop calls these functions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...dumps import opening
from ...dumps.atomic import write_file
from ...dumps.errors import GraphdbgError
from . import processes
from .child import TRACE_SIGNAL, Reply
from .processes import address_space_tells, oom_kills
from .protocol import Answer, ChildError, Events, Query, Status

_KEEP_BYTES = 16_384
_TRACE_GRACE_S = 0.3
_LOOK_S = 0.1 if not address_space_tells() else 0.5
"""How often a child is looked at: often where nothing else limits its memory."""
LIVE = "live"
"""The name in a payload of the file that whoever watches reads."""
_LIVE_LETTERS = 4000
_MOST_STALLED = 3.0
"""So many times its limit may be added for what the machine spent on others."""


class Output:
    """The first and the last 16 KiB of a stream of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Takes the next bytes of the stream."""
        room = _KEEP_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * _KEEP_BYTES:
            self._dropped += len(self._tail) - _KEEP_BYTES
            del self._tail[:-_KEEP_BYTES]

    def text(self) -> str:
        """The bytes kept, with a line where some were left out."""
        gap = f"\n[... {self._dropped} bytes left out ...]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")


class Job:
    """A forked child and what the server knows of it."""

    def __init__(self, query: Query, pid: int, folder: Path, pipe: int, events: int) -> None:
        self.query, self.pid, self.folder, self.pipe, self.events = query, pid, folder, pipe, events
        self.output = Output()
        self._torn = b""
        self._live = Path(live) if (live := query.payload.get(LIVE)) else None
        self._written = ""
        self.began = time.monotonic()
        self.deadline = self.began + query.limit_s
        self.timed_out = False
        self.ticks = processes.started(pid)
        """When the child began, in the kernel's ticks."""
        self._too_large = False
        self._stalls = processes.Stalls()
        self._stage: tuple[float, float] = (0.0, 0.0)
        """When the present stage was entered, and how long the job had been stalled by then."""
        self._seen: set[int] = {pid}
        self._mapped: set[Path] = set()
        self._own_bytes = 0 if query.memory_bytes is None else processes.held_bytes(os.getpid())
        self._next_look = self.began + _LOOK_S
        self._oom_before = oom_kills()
        for end in (pipe, events):
            os.set_blocking(end, False)

    def read(self) -> bool:
        """Drains the output pipe; False once it is closed on the other side."""
        for data in _waiting(self.pipe):
            if not data:
                return False
            self.output.add(data)
        return True

    def reported(self) -> Events | None:
        """The child's events since the last call, without one that it was killed in; None once no more can come."""
        whole: list[msgspec.Raw] = []
        for data in _waiting(self.events):
            if not data:
                return Events(self.query.id, whole) if whole else None
            *lines, self._torn = (self._torn + data).split(b"\n")
            whole += map(msgspec.Raw, lines)
        return Events(self.query.id, whole)

    @property
    def due(self) -> float:
        """When the server must look at this job again at the latest."""
        return min(self.deadline, self._next_look)

    def enforce(self, now: float) -> None:
        """Past a time limit asks the child for a trace, and a moment later kills it with all its processes; past the
        memory limit at once."""
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._look(now)
            self._write_live()
        if now < self.deadline:
            return
        if not self.timed_out and not self._too_large:
            self.timed_out = True
            self.deadline = now + _TRACE_GRACE_S
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, TRACE_SIGNAL)
        else:
            self.kill()
            self.deadline = now + 1.0

    def _write_live(self) -> None:
        """Writes the stage and the last lines of output to the file that is watched, if one was named."""
        if self._live is None:
            return
        stage = ""
        with contextlib.suppress(OSError):
            stage = opening.read_text(self.folder / "mark")
        text = f"{stage}\n{self.output.text()[-_LIVE_LETTERS:]}"
        if text != self._written:
            self._written = text
            with contextlib.suppress(OSError, GraphdbgError):
                write_file(self._live, text.encode(), later=lambda path: None)

    def _look(self, now: float) -> None:
        """Sets the deadline again: later for time spent on others, now where a stage or the memory is over its
        limit."""
        if self.timed_out or self._too_large:
            return
        query, below = self.query, processes.descendants(self.pid)
        self._seen.update(below)
        stalled = self._stalls.seconds([self.pid, *below], now)
        self.deadline = self.began + query.limit_s + min(stalled, _MOST_STALLED * query.limit_s)
        if query.stage_limits:
            with contextlib.suppress(OSError):
                mark = self.folder / "mark"
                stage, entered = opening.read_text(mark), mark.stat().st_mtime
                if entered != self._stage[0]:
                    self._stage = (entered, stalled)
                limit_s = query.stage_limits.get(stage)
                if limit_s is not None:
                    limit_s += min(stalled - self._stage[1], _MOST_STALLED * limit_s)
                    if time.time() - entered >= limit_s:
                        self.deadline = now
        if query.memory_bytes is not None:
            held = max(0, processes.held_bytes(self.pid) - self._own_bytes) + sum(map(processes.held_bytes, below))
            if held > query.memory_bytes:
                self._too_large, self.deadline = True, now

    def kill(self) -> None:
        """Kills the child, everything in its process group (compilers that it started) and whatever else descends from
        it."""
        below = processes.descendants(self.pid)
        self._seen.update(below)
        self._mapped |= processes.shared_memory([self.pid, *below])
        unfinished = processes.written_by(below)
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.pid, signal.SIGKILL)
        processes.kill(below)
        for path in unfinished:  # half a library in the cache would be taken for a whole one by the next child
            with contextlib.suppress(OSError):
                path.unlink()

    def reap(self) -> Answer | None:
        """Collects the child if it has ended: kills what is left of its group, reads its reply. None while it runs.

        The pipes stay open: the server has to stop watching them first.
        """
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.kill()  # before the zombie is collected, so that the group's number cannot be another's yet
        _, status, usage = os.wait4(self.pid, 0)
        self.read()
        answer = self._answer(os.waitstatus_to_exitcode(status))
        answer.seconds = time.monotonic() - self.began
        answer.peak_bytes = usage.ru_maxrss * 1024
        processes.forget_shared_memory(self._seen, self._mapped)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._written and self._live is not None:
            with contextlib.suppress(OSError):
                self._live.unlink()
        return answer

    def _answer(self, code: int) -> Answer:
        answer = Answer(self.query.id, "lost", output=self.output.text(), exit_code=code)
        with contextlib.suppress(OSError):
            answer.stage = opening.read_text(self.folder / "mark")
        reply = self._reply()
        if reply is not None:
            answer.value, answer.error, answer.marks = reply.value, reply.error, reply.marks
            answer.status = "memory" if reply.memory else "exception" if reply.error else "done"
        elif self._too_large:
            answer.status = "memory"
        elif self.timed_out:
            answer.status = "timeout"
        elif code < 0:
            answer.signal = signal.Signals(-code).name
            answer.status = self._signal_status(answer)
        else:
            answer.status = "exception"
            answer.error = ChildError("ProcessExit", f"the process ended itself with exit code {code}")
        return answer

    def _signal_status(self, answer: Answer) -> Status:
        if answer.signal == "SIGKILL" and oom_kills() > self._oom_before:
            return "memory"
        if answer.signal == "SIGABRT" and "bad_alloc" in answer.output:
            return "memory"
        return "signal"

    def _reply(self) -> Reply | None:
        try:
            return msgspec.json.decode(opening.read(self.folder / "reply"), type=Reply)
        except OSError:
            return None


def _waiting(pipe: int) -> Iterator[bytes]:
    """The bytes in a pipe; b"" at last where its other side is closed."""
    with contextlib.suppress(BlockingIOError):
        while True:
            data = os.read(pipe, 65_536)
            yield data
            if not data:
                return
