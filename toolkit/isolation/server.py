"""The fork server: `python -m graphdbg.toolkit.isolation.server FD`, started by `client.ForkServer` alone.

Also: one running query as the server sees it: its child, its captured output, its deadline, and the answer made of
its end.

It imports torch and Inductor once, then forks a child per query. It must stay single-threaded, do no tensor work and
never initialise CUDA, or its children hang or fail. It ends, with all its children and its temporary folder, when the
client closes the socket, dies in any way, or sends SIGTERM.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ...dumps import opening
from ...dumps.atomic import write_file
from ...dumps.errors import GraphdbgError
from . import cache, child, processes
from .child import TRACE_SIGNAL, Reply, run_child
from .processes import address_space_tells, become_subreaper, oom_kills
from .protocol import ChildError, Events, Frames, Query, Ready, TaskResult, frame_of
from .wall import Wall, begin, bubblewrap

_KEEP_BYTES = 16_384
_TRACE_GRACE_S = 0.3
_LOOK_S = 0.1 if not address_space_tells() else 0.5
"""Seconds between two looks at a child: short where only these looks limit its memory."""
LIVE = "live"
"""Payload key of the file through which the child's progress can be watched."""
_LIVE_LETTERS = 4000
_MOST_STALLED = 3.0
"""A limit may be extended by at most this many times itself, for time that the machine spent on other processes."""


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


class ChildJob:
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
        """The start time of the child, in the kernel's ticks."""
        self._too_large = False
        self._stalls = processes.Stalls()
        self._stage: tuple[float, float] = (0.0, 0.0)
        """When the present stage began, and the child's stalled seconds at that time."""
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
        """The child's events since the last call, without one that was cut off by its death; None once no more can
        come."""
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
        """Past the time limit, asks the child for a trace, and a moment later kills it with all its processes; past the
        memory limit, kills it at once."""
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
        """Writes the stage and the last lines of output to the watched file, if there is one."""
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
        """Updates the deadline: later for time spent on other processes, now where a stage or the memory is over its
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
        for path in unfinished:  # the next child would take a half-written library in the cache for a whole one
            with contextlib.suppress(OSError):
                path.unlink()

    def reap(self) -> TaskResult | None:
        """Collects the child if it has ended: kills what is left of its group, reads its reply. None while it runs.

        The pipes stay open: the server has to stop watching them first.
        """
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.kill()  # while it is a zombie the group's number cannot be reused
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

    def _answer(self, code: int) -> TaskResult:
        answer = TaskResult(self.query.id, "lost", output=self.output.text(), exit_code=code)
        with contextlib.suppress(OSError):
            answer.stage = opening.read_text(self.folder / "mark")
        reply = None
        with contextlib.suppress(OSError):
            reply = msgspec.json.decode(opening.read(self.folder / "reply"), type=Reply)
        if reply is not None:
            answer.value, answer.error, answer.marks = reply.value, reply.error, reply.marks
            answer.status = "memory" if reply.memory else "exception" if reply.error else "done"
        elif self._too_large:
            answer.status = "memory"
        elif self.timed_out:
            answer.status = "timeout"
        elif code < 0:
            answer.signal = signal.Signals(-code).name
            out = answer.signal == "SIGKILL" and oom_kills() > self._oom_before
            out |= answer.signal == "SIGABRT" and "bad_alloc" in answer.output
            answer.status = "memory" if out else "signal"
        else:
            answer.status = "exception"
            answer.error = ChildError("ProcessExit", f"the process ended itself with exit code {code}")
        return answer


def _waiting(pipe: int) -> Iterator[bytes]:
    """Yields what is in a pipe; b"" last where its other end is closed."""
    with contextlib.suppress(BlockingIOError):
        while True:
            data = os.read(pipe, 65_536)
            yield data
            if not data:
                return


_SEED_QUERY = -1
_SEED_LIMIT_S = 300.0


class ServerSettings(msgspec.Struct):
    """The client's settings for the server, sent in its first frame. `client`: its process id; 0 where a program became
    the server."""

    root: str
    cache_dir: str
    client: int
    environment: dict[str, str] = {}
    """Environment variables to add in a program that became the server."""
    warm: str = "inductor"
    preload: list[str] = []
    path: list[str] = []
    tmp: str = ""
    wall: list[str] | None = None
    """The mechanisms of the wall for children that must go behind it (see `wall`)."""


class Server:
    """The server's loop: takes queries, forks children, sends answers. `first`: the first frame, read by the server
    that started this one through bwrap."""

    def __init__(self, connection: socket.socket, first: bytes = b"") -> None:
        self.connection, self.first, self.bwrap = connection, first, bool(first)
        self.frames = Frames()
        self.jobs: dict[int, ChildJob] = {}
        self.waiting: list[Query] = []
        self.ready = False
        self.began = time.monotonic()
        self.notes: list[str] = []
        self.seed: Path | None = None
        self.settings: ServerSettings | None = None
        self.selector = selectors.DefaultSelector()
        self.open = True
        self.held = -1
        """The descriptor that marks the temporary folder as in use."""
        self.wall: Wall | None = None
        self.held_seed: int | None = None
        """The descriptor that marks the cache's seed as in use."""

    def run(self) -> None:
        """Serves until the client is gone, then cleans up."""
        wake_read, wake_write = os.pipe()
        for fd in (wake_read, wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGHUP, self._stop)
        become_subreaper()
        self.connection.setblocking(False)
        self.selector.register(self.connection, selectors.EVENT_READ, "client")
        self.selector.register(wake_read, selectors.EVENT_READ, "wake")
        try:
            if self.first:
                self._take(self.first)
            while self.open:
                self._turn(wake_read)
        finally:
            self._end()

    def _stop(self, *_: object) -> None:
        self.open = False

    def _turn(self, wake: int) -> None:
        soonest = min((job.due for job in self.jobs.values()), default=time.monotonic() + 1.0)
        for key, _ in self.selector.select(min(1.0, max(0.0, soonest - time.monotonic()))):
            if key.data == "client":
                self._receive()
            elif key.data == "wake":
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            elif not key.data():
                self.selector.unregister(key.fileobj)
        now = time.monotonic()
        for job in list(self.jobs.values()):
            job.enforce(now)
            answer = job.reap()
            if answer is not None:
                self._finish(job, answer)
        self._reap_orphans()
        if self.settings is not None and self.settings.client not in (0, os.getppid()):
            self.open = False

    def _reap_orphans(self) -> None:
        """Kills descendants that were reparented to this process and that no running job can own, and collects dead
        ones; the server's own children are left to their jobs.
        """
        oldest = min((job.ticks or 0 for job in self.jobs.values()), default=None)
        for pid in processes.children_of(os.getpid()):
            began = None if pid in self.jobs else processes.started(pid)
            if began is not None and (oldest is None or began < oldest):
                processes.kill([pid])
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in self.jobs:
                    break
                os.waitpid(ended.si_pid, 0)

    def _receive(self) -> None:
        try:
            data = self.connection.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.open = False
        if self.settings is None:
            self.first += data
        self._take(data)

    def _take(self, data: bytes) -> None:
        for body in self.frames.feed(data):
            if self.settings is None:
                self.settings = msgspec.json.decode(body, type=ServerSettings)
                self.held = processes.hold(Path(self.settings.root))
                if not self.bwrap and self.settings.wall and (command := bubblewrap(self.settings.wall)):
                    self._go_on_through(command)
                    return
                self._prepare(self.settings)
            else:
                query = msgspec.json.decode(body, type=Query)
                self._kill(query.kills) if query.kills else self.waiting.append(query)
        self._start_waiting()

    def _kill(self, number: int) -> None:
        """Kills the query with that number, running or waiting; no-op where it has ended."""
        for job in self.jobs.values():
            if job.query.id == number:
                job.kill()
        if any(query.id == number for query in self.waiting):
            self.waiting = [query for query in self.waiting if query.id != number]
            self._send(TaskResult(number, "signal", signal="SIGKILL"))

    def _go_on_through(self, command: Sequence[str]) -> None:
        """Starts a successor in namespaces through bwrap, and waits for its end: bwrap would end it with the thread
        that started it, and a client's thread may end earlier."""
        number = self.connection.fileno()
        argv = [*command, sys.executable, "-m", f"{__package__}.server", str(number), "bwrap"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=[number]) as process:
            for signal_number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(signal_number, lambda *_: process.kill())
            process.communicate(self.first)
        self.open = False

    def _prepare(self, settings: ServerSettings) -> None:
        collects = gc.isenabled()
        gc.disable()  # garbage collection is a fifth of the import time
        if self.bwrap:
            settings.client = 0  # the server that started this one watches the client
        if settings.wall is not None:
            self.wall = begin(settings.wall, Path(settings.root), bwrap=self.bwrap)
        sys.path.extend(entry for entry in settings.path if entry not in sys.path)
        os.environ |= settings.environment
        if settings.warm == child.WARM:
            del sys.path[0]  # the working folder
            child.warm()
        elif settings.warm != "nothing":
            self._warm(settings)
        for name in settings.preload:
            module, _, function = name.partition(":")
            loaded = importlib.import_module(module)
            if function:
                getattr(loaded, function)()
        if settings.warm == "inductor":
            from .warming import warm_patterns

            warm_patterns()
        gc.freeze()  # children then do not touch, and so copy, every page with objects
        if collects:
            gc.enable()
        if self.seed is None:
            self._be_ready()

    def _warm(self, settings: ServerSettings) -> None:
        from ..live.entries import has_cpp_compiler
        from .warming import warm_imports, warm_toolchain

        cache_dir = Path(settings.cache_dir)
        self.notes += warm_imports(cache_dir)
        if settings.warm == "torch":
            return
        if not has_cpp_compiler():
            self.notes.append("no C++ compiler was found, so Inductor cannot compile for the CPU")
            return
        seed = cache.seed_folder()
        self.held_seed = cache.hold(seed)
        if cache.plant(cache_dir, seed, safely=settings.wall is not None):
            warm_toolchain(seed)
        else:
            self.seed = seed
            self._fork(Query(_SEED_QUERY, f"{__package__}.warming:compile_probe_kernels", limit_s=_SEED_LIMIT_S))

    def _be_ready(self) -> None:
        self.ready = True
        protection = (self.wall.built_of, self.wall.open) if self.wall is not None else ()
        self._send(Ready(time.monotonic() - self.began, self.notes, *protection))
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self.ready and self.waiting:
            query = self.waiting.pop(0)
            try:
                self._fork(query)
            except OSError as error:
                self._send(TaskResult(query.id, "lost", error=ChildError("OSError", f"cannot fork: {error}")))

    def _fork(self, query: Query) -> None:
        assert self.settings is not None
        folder = Path(self.settings.root) / "queries" / str(query.id)
        folder.mkdir(parents=True)
        enter = self._entrance(query)
        read, write = os.pipe()
        events, report = os.pipe()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.connection.close()
            os.close(self.held)
            if self.held_seed is not None:
                os.close(self.held_seed)
            run_child(query, folder, write, report, server, enter)
        for end in (write, report):
            os.close(end)
        job = ChildJob(query, pid, folder, read, events)
        self.jobs[pid] = job
        self.selector.register(read, selectors.EVENT_READ, job.read)
        self.selector.register(events, selectors.EVENT_READ, partial(self._pass_on, job))

    def _entrance(self, query: Query) -> Callable[[], object]:
        """A function that puts a query's child behind the wall, where the query asks for it. Raises OSError."""
        assert self.settings is not None
        if query.wall is None or self.wall is None:
            return lambda: None
        root = Path(self.settings.root)
        places = self.wall.prepared([root, *map(Path, (self.settings.cache_dir, *query.wall))])
        return partial(self.wall.enter, places, root / "home")

    def _pass_on(self, job: ChildJob) -> bool:
        """Sends the events that a child reported; False once no more can come."""
        reported = job.reported()
        if reported is not None and reported.rows:
            self._send(reported)
        return reported is not None

    def _finish(self, job: ChildJob, answer: TaskResult) -> None:
        del self.jobs[job.pid]
        self._pass_on(job)
        for pipe in (job.pipe, job.events):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(pipe)
            # only now: while other children hold the pipe, its number stays watched, and the next pipe would get that
            # number
            os.close(pipe)
        if answer.id != _SEED_QUERY:
            self._send(answer)
            return
        from .warming import warm_toolchain

        assert self.seed is not None
        if answer.status == "done":
            self._keep_seed(self.seed)
            warm_toolchain(self.seed, answer.value)
        else:
            why = answer.error.message if answer.error else answer.signal or answer.status
            self.notes.append(f"Inductor could not compile a first kernel ({why}), so nothing on the CPU will compile")
        self._be_ready()

    def _send(self, message: object) -> None:
        self.connection.setblocking(True)
        try:
            self.connection.sendall(frame_of(message))
        except OSError:
            self.open = False
        finally:
            self.connection.setblocking(False)

    def _keep_seed(self, seed: Path) -> None:
        assert self.settings is not None
        try:
            cache.keep(Path(self.settings.cache_dir), seed, safely=self.settings.wall is not None)
            self.held_seed = cache.hold(seed)
        except OSError as error:
            why = "the toolchain probes could not be kept for the next start, which takes 20 s more"
            self.notes.append(f"{why}: {error}")

    def _end(self) -> None:
        for job in self.jobs.values():
            job.kill()
        for _ in range(200):  # orphans of killed children come to us one generation at a time
            processes.kill(processes.children_of(os.getpid()))
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.01)
            except ChildProcessError:
                break
        if self.settings is None:
            return
        processes.remove(Path(self.settings.root))
        if self.settings.client not in (0, os.getppid()):  # it was killed: only this removes its other folders
            os.environ["TMPDIR"] = self.settings.tmp
            tempfile.tempdir = None
            processes.remove_left_over()


def serve(connection: socket.socket) -> None:
    """Turns this program, with all that it imported and changed, into a fork server until the other side closes the
    connection."""
    Server(connection).run()
    gc.unfreeze()  # as it was before serving


def main() -> None:
    """Takes over the socket whose number is the first argument and serves it; with a second argument, the first frame
    is read from stdin."""
    Server(socket.socket(fileno=int(sys.argv[1])), sys.stdin.buffer.read() if sys.argv[2:] else b"").run()


if __name__ == "__main__":
    main()
