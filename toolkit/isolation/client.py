"""The client's side: starts the fork server when the first query comes, matches answers to queries, cleans up after
itself.

Imports no torch, since commands that only ask (and the TUI) use it. Safe to use from several threads.

For example:

    with ForkServer(threads=1) as server:
        pending = [server.submit("os:getcwd_of", {"n": n}, limit_s=5) for n in range(4)]
        answers = [one.answer() for one in pending]
"""

from __future__ import annotations

import contextlib
import os
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from ...dumps import temporary, trust
from ...dumps.errors import EnvironmentLackError
from . import cache, child, heartbeat, processes
from .child import WARM
from .heartbeat import waited
from .imports import TRUST
from .processes import default_memory_bytes
from .protocol import ChildError, Events, Frames, PendingTask, Query, Ready, TaskResult, frame_of
from .wall import PARTS

_REMOVED = (
    "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DEBUG_DIR", "TORCH_TRACE", "TORCHDYNAMO_REPRO_AFTER",
    "TORCHDYNAMO_REPRO_LEVEL", "TORCH_COMPILE_OVERRIDE_BACKENDS", "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TRITON_CACHE_DIR", "TORCH_COMPILE_CACHE_DIR", "TORCH_BISECT_BACKEND", "TORCH_BISECT_SUBSYSTEM",
    "TORCH_BISECT_MAX",
)  # fmt: skip
KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME", "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "SYSTEMROOT", "USER", "LOGNAME", "CPATH",
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
)  # fmt: skip
"""Environment variables that a program needs to find Python, compilers and devices. Torch settings are not among them:
a repro sets its own."""
UNKNOWN = "this was recorded by somebody else, or on another machine"
FORKING = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Settings for a process that forks: no Inductor worker processes, and no CUDA initialisation."""


def program_environment(
    cache_dir: Path, tmp: Path, path: Sequence[str] = (), user: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment variables of a separate program, with private caches. `path`: folders with its modules besides
    torch; `user`: the user's variables to keep (default: those in KEPT)."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ} if user is None else dict(user)
    if path:
        kept["PYTHONPATH"] = os.pathsep.join([*filter(None, [kept.get("PYTHONPATH")]), *path])
    return kept | _private(cache_dir, tmp)


def _private(cache_dir: Path, tmp: Path) -> dict[str, str]:
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(cache_dir),
        "TRITON_CACHE_DIR": str(cache_dir / "triton"),
        "TMPDIR": str(tmp),
    }


def server_environment(
    cache_dir: Path, tmp: Path, user: Mapping[str, str] = os.environ, *, by_list: bool = False
) -> dict[str, str]:
    """The environment variables of the server: no recorder, one thread, CUDA queried through NVML only, private cache
    and TMPDIR. `by_list`: of the user's variables only those in KEPT.

    TMPDIR is private because a killed child leaves compilers' temporary files, and because Inductor puts precompiled
    headers there.
    """
    kept = {name: value for name, value in user.items() if name not in _REMOVED and not name.startswith("GRAPHDBG")}
    if by_list:  # its children have another HOME; this keeps packages of `pip install --user` importable
        kept = {name: value for name, value in kept.items() if name in KEPT} | {"PYTHONUSERBASE": site.getuserbase()}
    single = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    return kept | FORKING | single | _private(cache_dir, tmp)


READ = ("path", "case", "ready", "before", "forward", "after", "work")
"""Payload keys of folders that a task reads."""


def trusted(payload: Mapping[str, Any]) -> bool | None:
    """Whether a task reads only what this user recorded here or trusts (see `dumps.trust`); None where it reads
    nothing."""
    if TRUST in (payload.get("imports") or ()):
        return True
    read = {name: Path(payload[name]) for name in READ if payload.get(name)}
    if "work" in read and temporary.mine(read["work"]):  # made by this process from the other folders
        del read["work"]
    return all(map(trust.trusted, read.values())) if read else None


def _written(payload: Mapping[str, Any]) -> list[str]:
    """Creates the folders that a task writes into, and returns them."""
    folders = [Path(payload[name]) for name in ("work", "folder") if payload.get(name)]
    folders += [Path(payload[name]).parent for name in ("out", "keep", "shared", "meeting", "cwd") if payload.get(name)]
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
    return [str(folder.absolute()) for folder in dict.fromkeys(folders) if folder.is_dir()]


class Pending(PendingTask):
    """A query in progress on one server process."""

    def __init__(self, query: Query, process: _ServerProcess) -> None:
        self.query, self._process = query, process
        self._last: msgspec.Raw | None = None
        self._coming: SimpleQueue[msgspec.Raw | None] = SimpleQueue()
        """Events not yet taken by a reader; None follows the last one."""
        self._done = threading.Event()
        self._answer: TaskResult | None = None

    def __iter__(self) -> Iterator[Any]:
        """Yields each event once, as it arrives, until the query has ended."""
        while (event := self._coming.get()) is not None:
            yield msgspec.json.decode(event)
        self._coming.put(None)  # for the next reader

    def answer(self, timeout_s: float | None = None) -> TaskResult:
        if timeout_s is None:
            waited(self._done, self._process.ready, self.query.function, self.query.payload, self.query.limit_s)
        elif not self._done.wait(timeout_s):
            raise TimeoutError(f"no answer from the fork server after {timeout_s} s")
        assert self._answer is not None
        return self._answer

    def kill(self) -> None:
        self._process.kill(self.query)

    def _resolve(self, answer: TaskResult) -> None:
        if not self._done.is_set():
            self._answer = answer
            if answer.value is None and self._last is not None:
                answer.event = msgspec.json.decode(self._last)
            self._done.set()
            self._coming.put(None)

    def _report(self, rows: Sequence[msgspec.Raw]) -> None:
        for self._last in rows:
            self._coming.put(self._last)


Joined = tuple[socket.socket, "subprocess.Popen[bytes]"]
"""The connection to a process that serves, and that process."""


class _ServerProcess:
    """One server process: its socket, its temporary folder, the unanswered queries."""

    def __init__(self, settings: dict[str, Any], cache_dir: Path | None, joined: Joined | None = None) -> None:
        self.owner, self.joined = os.getpid(), joined is not None
        self.root, self.held = processes.make("graphdbg-server-")
        compiled = cache_dir or self.root / "cache"
        compiled.mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "home", "cwd"):
            (self.root / name).mkdir()
        self.bare, self.walled = settings["warm"] == child.WARM, settings.get("wall") is not None
        self.open: list[str] = []
        self.built_of: list[str] = []
        self.furnished = not self.bare
        self.lock = threading.Lock()
        self.furnish()
        self.pending: dict[int, Pending] = {}
        self.ready = threading.Event()
        self.notes: list[str] = []
        self.warm_seconds = self.start_s = 0.0
        self.begun = time.monotonic()
        self.lost = False
        self.socket, self.process = joined or self._begun(compiled)
        first = {
            "root": str(self.root),
            "cache_dir": str(compiled),
            "client": 0 if self.joined else os.getpid(),
            "environment": FORKING | _private(compiled, self.root / "tmp") if self.joined else {},
            "path": [] if self.bare else [p for p in sys.path if p],
            "tmp": tempfile.gettempdir(),
            **settings,
        }
        self.socket.sendall(frame_of(first))
        threading.Thread(target=self._listen, name="graphdbg-answers", daemon=True).start()

    def _begun(self, compiled: Path) -> Joined:
        """Starts the server process."""
        ours, theirs = socket.socketpair()
        with (self.root / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=self.root / "cwd" if self.bare else None,
                env=program_environment(compiled, self.root / "tmp") | FORKING
                if self.bare
                else server_environment(compiled, self.root / "tmp", by_list=self.walled),
            )
        theirs.close()
        return ours, process

    def furnish(self) -> None:
        """Plants the toolchain probes for whole programs, as soon as a seed exists; one thread at a time."""
        with self.lock:
            if not self.furnished:
                self.furnished = cache.furnish(self.root, cache.known_seed(), safely=self.walled)

    def send(self, pending: Pending) -> None:
        self.furnish()
        with self.lock:
            if not self.lost:
                self.pending[pending.query.id] = pending
                with contextlib.suppress(OSError):  # the listener then sees the end and resolves it as lost
                    self.socket.sendall(frame_of(pending.query))
                return
        pending._resolve(self._lost(pending.query))

    def kill(self, query: Query) -> None:
        with self.lock:
            if not self.lost and query.id in self.pending:
                with contextlib.suppress(OSError):
                    self.socket.sendall(frame_of(Query(0, "", kills=query.id)))

    def _listen(self) -> None:
        frames = Frames()
        with contextlib.suppress(OSError):
            while data := self.socket.recv(1 << 20):
                for body in frames.feed(data):
                    self._take(body)
        with self.lock:
            self.lost = True
            owed, self.pending = list(self.pending.values()), {}
        for pending in owed:
            pending._resolve(self._lost(pending.query))
        self.ready.set()

    def _take(self, body: bytes) -> None:
        message = msgspec.json.decode(body, type=Ready | TaskResult | Events)
        if isinstance(message, Ready):
            self.notes, self.warm_seconds = message.notes, message.seconds
            self.start_s = time.monotonic() - self.begun
            self.built_of, self.open = message.built_of, message.open
            if self.open:
                heartbeat.send(
                    f"{UNKNOWN}: its code runs isolated, but if it broke out it could {', '.join(self.open)} "
                    "(see graphdbg doctor)"
                )
            self.ready.set()
            return
        if isinstance(message, Events):
            if (waiting := self.pending.get(message.id)) is not None:
                waiting._report(message.rows)
            return
        with self.lock:
            pending = self.pending.pop(message.id, None)
        if pending is not None:
            pending._resolve(message)

    def _lost(self, query: Query) -> TaskResult:
        log = ""
        with contextlib.suppress(OSError):
            log = (self.root / "server.log").read_text(errors="replace")[-4000:]
        return TaskResult(
            query.id, "lost", output=log, error=ChildError("ServerLost", "the fork server ended before the answer came")
        )

    def close(self) -> None:
        if os.getpid() != self.owner:
            self.socket.close()  # a fork of the client must not end the server of its parent
            os.close(self.held)
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(0 if self.joined else 5)
        except subprocess.TimeoutExpired:
            if not self.joined:  # the user's own program runs on
                self.process.kill()
                self.process.wait()
        self.socket.close()
        processes.remove(self.root)
        os.close(self.held)


class ForkServer:
    """A fork server, started when first needed; a context manager, and closed at exit in any case.

    `cache_dir`: the Inductor cache that all queries share (default: a fresh private one, removed at the end).
    `threads`: for each child's CPU operators. `memory_bytes`: what each child may use on top of the libraries (None: no
    limit). `warm`: "inductor" imports torch and Inductor and prepares the cache, "torch" only imports them, "nothing"
    is an empty Python, "bare" is for whole programs (see `child.PROGRAM`). `wall`: mechanisms (`wall.PARTS`) of a wall
    behind which all its children are; without, questions about what the user neither recorded here nor trusts go to a
    server of their own that has one. `preload`: modules that the tasks need, imported once ("package.module", or
    "package.module:function" to call too). `joined`: a program that became the server (see `server.serve`), in place of
    a new one. Start-up costs 4 to 8 s, the first ever on a machine about 30 s more.
    """

    def __init__(
        self,
        cache_dir: str | Path | None = None,
        threads: int = 1,
        memory_bytes: int | None = None,
        *,
        warm: str = "inductor",
        preload: Sequence[str] = (),
        wall: Collection[str] | None = None,
        joined: Joined | None = None,
    ) -> None:
        self._joined = joined
        self._cache_dir = Path(cache_dir).absolute() if cache_dir else None
        self._threads, self._memory_bytes = threads, memory_bytes
        self._settings: dict[str, Any] = {"warm": warm, "preload": list(preload), "wall": wall and list(wall)}
        self._walled: ForkServer | None = None
        """A second server, behind a wall, for queries that are not trusted."""
        self._handed: Path | None = None
        self._lock = threading.Lock()
        self._process: _ServerProcess | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._last_id = 0
        self._closed = False

    def submit(
        self,
        function: str,
        payload: dict[str, Any],
        limit_s: float = 600.0,
        *,
        stage_limits: Mapping[str, float] | None = None,
        ours: bool | None = None,
    ) -> Pending:
        """Starts `function` ("package.module:name") with `payload` in a child of its own; the value must have a JSON
        form.

        `limit_s` is for the whole, `stage_limits` for single stages (see `child.mark`). `ours`: whether what it reads
        is trusted, where the payload does not show it.
        """
        ours, walled = trusted(payload) if ours is None else ours, self._settings["wall"] is not None
        other = not ours if ours is not None else self._process is None and self._walled is not None
        if other and not walled and "command" not in payload:  # the user's own command is not restricted
            return self._behind().submit(function, payload, limit_s, stage_limits=stage_limits, ours=ours)
        with self._lock:
            self._check_open()
            self._last_id += 1
            query = Query(
                self._last_id,
                function,
                payload,
                limit_s,
                self._threads,
                self._memory_bytes,
                dict(stage_limits or {}),
                bool(ours),
                _written(payload) if walled else None,
            )
            process = self._started()
        pending = Pending(query, process)
        process.send(pending)
        return pending

    @property
    def home(self) -> ForkServer:
        """This server, the one that this process uses."""
        return self

    def start(self) -> _ServerProcess:
        """Starts the server if need be, without waiting until it is warm."""
        with self._lock:
            return self._started()

    def wait_ready(self) -> float:
        """Starts the server if need be, waits until it is warm, returns the seconds of its warm-up."""
        return self._ready().warm_seconds

    def wall(self) -> tuple[list[str], list[str]]:
        """The wall's mechanisms for children, and what they leave open; waits until the server is ready."""
        process = self._ready()
        return process.built_of, process.open

    def _ready(self) -> _ServerProcess:
        process = self.start()
        process.ready.wait()
        return process

    def scratch_file(self, suffix: str) -> Path:
        """A path for a task's large result, in a folder of its own, so that no other task can write to it; lives as
        long as this server."""
        with self._lock:
            self._last_id += 1
            if self._handed is None or not temporary.mine(self._handed):
                self._handed = temporary.make("graphdbg-handed-")
            (folder := self._handed / str(self._last_id)).mkdir()
            return folder / f"handed{suffix}"

    def _check_open(self) -> None:
        if self._closed:
            raise EnvironmentLackError("cannot ask a closed fork server", "close() was called", "make a new ForkServer")

    def _behind(self) -> ForkServer:
        with self._lock:
            self._check_open()
            if self._walled is None:
                cache_dir = self._cache_dir and self._cache_dir.with_name(f"{self._cache_dir.name}-behind")
                like: dict[str, Any] = {**self._settings, "wall": PARTS}
                self._walled = ForkServer(cache_dir, self._threads, self._memory_bytes, **like)
            return self._walled

    @property
    def start_s(self) -> float:
        """Seconds from the start until the server was ready; 0 before."""
        behind = self._walled.start_s if self._walled is not None else 0.0
        return behind + (self._process.start_s if self._process is not None else 0.0)

    @property
    def notes(self) -> list[str]:
        """Sentences about what the server could not prepare; empty before it is ready."""
        mine = list(self._process.notes) if self._process else []
        return mine + [note for note in (self._walled.notes if self._walled else []) if note not in mine]

    @property
    def pid(self) -> int | None:
        """The server's process id, None while it is not running; with two servers, that of the trusted one."""
        if self._process is None:
            return self._walled.pid if self._walled is not None else None
        return self._process.process.pid

    def close(self) -> None:
        """Ends the server and every child, and removes its temporary folder. Can be called twice."""
        with self._lock:
            self._closed = True
            self._stop()
            if self._walled is not None:
                self._walled.close()
            if self._handed is not None and temporary.mine(self._handed):
                temporary.remove(self._handed)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> _ServerProcess:
        known = self._process
        if known is not None and (known.owner != os.getpid() or known.lost or known.process.poll() is not None):
            self._stop()
        if self._process is None:
            self._process = _ServerProcess(self._settings, self._cache_dir, self._joined)
            self._finalizer = weakref.finalize(self, self._process.close)
        return self._process

    def _stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = None


JUDGING = (
    "graphdbg.toolkit.judging.judge",
    "graphdbg.toolkit.live.case:warm",
    "graphdbg.toolkit.replaying.fidelity",
    "graphdbg.dumps.store",
    "graphdbg.dumps.torchside.decode",
    "graphdbg.dumps.torchside.make_inputs",
    "graphdbg.dumps.torchside.encode",
    "graphdbg.toolkit.rungs.eager",
    "graphdbg.toolkit.rungs.nop",
    "graphdbg.toolkit.rungs.inductor",
    "graphdbg.toolkit.rungs.decomposed",
    "graphdbg.toolkit.rungs.inductor_nofuse",
    "graphdbg.toolkit.rungs.torchscript",
)
"""Modules that a server should import once for tasks that load and judge a graph."""


def fork_server(
    warm: str = "inductor",
    preload: Sequence[str] = JUDGING,
    *,
    threads: int | None = None,
    memory_bytes: int | None = None,
    cache_dir: Path | None = None,
    wall: Collection[str] | None = None,
) -> ForkServer:
    """Creates a fork server. `threads` of each child: None for all cores; `memory_bytes` of each child: None for most
    of the machine's, but no limit where children run no graphdbg code."""
    memory = memory_bytes or (None if warm in (WARM, "nothing") else default_memory_bytes())
    return ForkServer(cache_dir, threads or os.cpu_count() or 1, memory, warm=warm, preload=preload, wall=wall)


@contextmanager
def opened(given: ForkServer | None, warm: str = "inductor", *tasks: str) -> Iterator[ForkServer]:
    """Yields the given server, or a new one for judging that also imports the modules of `tasks` and is closed at the
    end."""
    if given is not None:
        yield given
        return
    with fork_server(warm, (*JUDGING, *(task.partition(":")[0] for task in tasks))) as own:
        yield own


@contextmanager
def programs(wall: Collection[str] | None = None) -> Iterator[ForkServer]:
    """Yields a server that imports torch right away, so that whole programs run in it without that wait
    (`child.PROGRAM`). CPU only."""
    with fork_server(WARM, (), wall=wall) as server:
        server.start()
        yield server
