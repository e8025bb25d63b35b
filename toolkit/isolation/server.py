"""The fork server: `python -m graphdbg.toolkit.isolation.server FD`, started by `client.ForkServer` alone.

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
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from . import cache, child, processes
from .child import run_child
from .jobs import Job
from .processes import become_subreaper
from .protocol import Answer, ChildError, Frames, Query, Ready, frame_of
from .wall import Wall, begin, bubblewrap

_SEED_QUERY = -1
_SEED_LIMIT_S = 300.0


class ServerSettings(msgspec.Struct):
    """The client's settings for the server, sent in its first frame. `client`: its process id, 0 for a program that
    became the server."""

    root: str
    cache_dir: str
    client: int
    environment: dict[str, str] = {}
    """What a program that became the server has beyond its own."""
    warm: str = "inductor"
    preload: list[str] = []
    path: list[str] = []
    tmp: str = ""
    wall: list[str] | None = None
    """The mechanisms of a wall that children may have to go behind (see `wall`)."""


class Server:
    """The server's loop: takes queries, forks children, sends answers. `first`: what came to the server that started
    this one through bwrap."""

    def __init__(self, connection: socket.socket, first: bytes = b"") -> None:
        self.connection, self.first, self.bwrap = connection, first, bool(first)
        self.frames = Frames()
        self.jobs: dict[int, Job] = {}
        self.waiting: list[Query] = []
        self.ready = False
        self.began = time.monotonic()
        self.notes: list[str] = []
        self.seed: Path | None = None
        self.settings: ServerSettings | None = None
        self.selector = selectors.DefaultSelector()
        self.open = True
        self.held = -1
        """The descriptor that says that the temporary folder is in use."""
        self.wall: Wall | None = None
        self.held_seed: int | None = None
        """The same for the seed of the cache."""

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
        """Ends the descendants that came to us when their parent went and that no running job can own, and collects the
        dead ones; those of our own children are left to their jobs.
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
        """Ends the query with that number, wherever it is; one that has ended already is left."""
        for job in self.jobs.values():
            if job.query.id == number:
                job.kill()
        if any(query.id == number for query in self.waiting):
            self.waiting = [query for query in self.waiting if query.id != number]
            self._send(Answer(number, "signal", signal="SIGKILL"))

    def _go_on_through(self, command: Sequence[str]) -> None:
        """Waits while another of this kind serves, in namespaces: bwrap ends it with this thread, which a client's may
        not be."""
        number = self.connection.fileno()
        argv = [*command, sys.executable, "-m", f"{__package__}.server", str(number), "bwrap"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=[number]) as process:
            for signal_number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(signal_number, lambda *_: process.kill())
            process.communicate(self.first)
        self.open = False

    def _prepare(self, settings: ServerSettings) -> None:
        if self.bwrap:
            settings.client = 0  # who started it watches the client
        if settings.wall is not None:
            self.wall = begin(settings.wall, Path(settings.root), bwrap=self.bwrap)
        sys.path.extend(entry for entry in settings.path if entry not in sys.path)
        os.environ |= settings.environment
        if settings.warm == child.WARM:
            del sys.path[0]  # our working folder
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
        gc.collect()
        gc.freeze()  # children then do not touch, and copy, every page that holds an object
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
        wall = self.wall
        protection = (wall.built_of, wall.open) if wall is not None else ([], [])
        self._send(Ready(time.monotonic() - self.began, self.notes, *protection))
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self.ready and self.waiting:
            query = self.waiting.pop(0)
            try:
                self._fork(query)
            except OSError as error:
                self._send(Answer(query.id, "lost", error=ChildError("OSError", f"cannot fork: {error}")))

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
        job = Job(query, pid, folder, read, events)
        self.jobs[pid] = job
        self.selector.register(read, selectors.EVENT_READ, job.read)
        self.selector.register(events, selectors.EVENT_READ, partial(self._pass_on, job))

    def _entrance(self, query: Query) -> Callable[[], object]:
        """The function that puts the child of a query behind the wall, if it must be there. Raises OSError."""
        assert self.settings is not None
        if query.wall is None or self.wall is None:
            return _open
        root = Path(self.settings.root)
        places = self.wall.prepared([root, *map(Path, (self.settings.cache_dir, *query.wall))])
        return partial(self.wall.enter, places, root / "home")

    def _pass_on(self, job: Job) -> bool:
        """Sends the events that a child reported; False once no more can come."""
        reported = job.reported()
        if reported is not None and reported.rows:
            self._send(reported)
        return reported is not None

    def _finish(self, job: Job, answer: Answer) -> None:
        del self.jobs[job.pid]
        self._pass_on(job)
        for pipe in (job.pipe, job.events):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(pipe)
            os.close(
                pipe
            )  # only now: a pipe that other children still hold is watched on by its number, which the next one gets
        if answer.id != _SEED_QUERY:
            self._send(answer)
            return
        from .warming import warm_toolchain

        assert self.settings is not None
        assert self.seed is not None
        if answer.status == "done":
            self._keep_seed(self.seed)
            warm_toolchain(self.seed)
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
        except OSError as error:
            self.notes.append(
                f"the toolchain probes could not be kept for the next start, which takes 20 s more: {error}"
            )
        else:
            self.held_seed = cache.hold(seed)

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
        if self.settings.client not in (0, os.getppid()):  # it was killed: nobody else removes its other folders
            os.environ["TMPDIR"] = self.settings.tmp
            tempfile.tempdir = None
            processes.remove_left_over()


def _open() -> None:
    """Enters no wall."""


def serve(connection: socket.socket) -> None:
    """This program becomes a fork server, with all that it imported and changed, until the other side closes the
    connection."""
    Server(connection).run()
    gc.unfreeze()  # it ends as it would have ended


def main() -> None:
    """Takes over the socket whose number is the first argument and serves it; with a second, what had come is read
    first."""
    Server(socket.socket(fileno=int(sys.argv[1])), sys.stdin.buffer.read() if sys.argv[2:] else b"").run()


if __name__ == "__main__":
    main()
