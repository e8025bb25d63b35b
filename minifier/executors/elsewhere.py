"""This side of an executor: queries go to its workers, everything else to this process's own fork server (`home`).

Also: the worker's side, which passes each query to the warm fork server of the worker's own process.

`Elsewhere` has the interface of a fork server (`home`, `submit`), so that callers need not know where a query runs. A
worker that dies answers "lost", as a fork server that dies does; only the query that it was at is asked again. An
executor that is broken for good, as a process pool with a dead process is, gets no more queries: the remaining ones are
asked here.

For example:

    with Elsewhere(home, ThreadPoolExecutor(2), WorkerSettings(jobs=2)) as servers:
        servers.submit(function, payload, 60.0).answer().status
    # 'done'
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Container, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import replace

from ...dumps import graph_folder
from ...dumps.atomic import temporary_beside
from ...dumps.errors import ClusterError, GraphdbgError
from ...dumps.reading import stored
from ...dumps.store import load_graph
from ...dumps.tensors import hash_bytes
from ...toolkit.isolation import ForkServer, PendingTask, default_memory_bytes, fork_server, processes
from ...toolkit.isolation import TaskResult as Reply
from ...toolkit.isolation.client import trusted
from ...toolkit.isolation.protocol import ChildError

AT_ONCE_BYTES = 256 << 20
"""About how many bytes are asked for at once."""


class ParcelFile(msgspec.Struct, frozen=True):
    """One file of a tree; a tree is an ordered list of them."""

    path: str
    hash: str
    size_bytes: int


class Sender:
    """Names trees of files by their content, and returns content by name. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], str] = {}
        """Hashes of files that have not changed since: by path, size and time."""
        self._files: dict[str, Path | bytes] = {}

    def tree(self, files: Mapping[str, Path | bytes]) -> str:
        """The name of a tree. `files`: path in the tree -> its content, or the file that holds it."""
        with self._lock:
            entries = [self._entry(path, files[path]) for path in sorted(files)]
            data = msgspec.json.encode(entries)
            name = hash_bytes(data)
            self._files[name] = data
        return name

    def bytes_of(self, name: str) -> bytes:
        """The content of that name. Raises EnvironmentLackError where the file has changed since it was named."""
        held = self._files[name]
        data = held if isinstance(held, bytes) else held.read_bytes()
        if hash_bytes(data) != name:
            raise ClusterError("cannot send a case to a worker", f"{held} changed during the query")
        return data

    def _entry(self, path: str, content: Path | bytes) -> ParcelFile:
        if isinstance(content, bytes):
            name = hash_bytes(content)
            size = len(content)
        else:
            status = content.stat()
            key, size = (str(content), status.st_size, status.st_mtime_ns), status.st_size
            name = self._known.get(key) or hash_bytes(content.read_bytes())
            self._known[key] = name
        self._files[name] = content
        return ParcelFile(path, name, size)


class Store:
    """A worker's store below `root`; shared by all processes that are given the same one."""

    def __init__(self, root: Path) -> None:
        self._files, self._trees = root / "files", root / "trees"
        self._files.mkdir(parents=True, exist_ok=True)
        self._trees.mkdir(parents=True, exist_ok=True)

    def add(self, parts: Mapping[str, bytes]) -> None:
        """Keeps content by its name. Raises EnvironmentLackError for content that arrived altered."""
        for name, data in parts.items():
            if hash_bytes(data) != name:
                why = f"the content of {name} does not match the hash in its name"
                raise ClusterError("a case arrived damaged", why)
            path = self._files / name
            if not path.exists():
                part = temporary_beside(path)
                part.write_bytes(data)
                part.replace(path)

    def lacks(self, tree: str) -> list[str]:
        """The names of content that must be added before `folder`: the tree itself first, then its files, some at a
        time. Empty: nothing is missing."""
        if (self._trees / tree).is_dir():
            return []
        if not (self._files / tree).exists():
            return [tree]
        missing: list[str] = []
        total = 0
        for entry in self._read(tree):
            if entry.hash not in missing and not (self._files / entry.hash).exists():
                missing.append(entry.hash)
                total += entry.size_bytes
                if total >= AT_ONCE_BYTES:
                    break
        return missing

    def folder(self, tree: str) -> Path:
        """The folder of a tree that is complete here."""
        folder = self._trees / tree
        if folder.is_dir():
            return folder
        fresh = temporary_beside(folder)
        for entry in self._read(tree):
            target = fresh / _inside(entry.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(self._files / entry.hash)
            except OSError:  # a file system without links
                shutil.copyfile(self._files / entry.hash, target)
        fresh.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # another worker was first
            fresh.rename(folder)
        shutil.rmtree(fresh, ignore_errors=True)
        return folder

    def _read(self, tree: str) -> list[ParcelFile]:
        return msgspec.json.decode((self._files / tree).read_bytes(), type=list[ParcelFile])


def _inside(path: str) -> PurePosixPath:
    """A path that stays inside its folder. Raises EnvironmentLackError for any other."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or (os.sep != "/" and os.sep in path):
        raise ClusterError("a case names a file outside of its folder", path)
    return pure


WORKER_LOOK_S = 0.2
"""Seconds between two looks of a worker whether its query is to be ended."""
IDLE_S = 900.0
"""Seconds without a query after which a worker ends its server; the next query starts another."""


class WorkerSettings(msgspec.Struct, frozen=True):
    """The servers that workers make. `memory_bytes`: of each query; None: a share, among `jobs`, of the memory of the
    worker's machine. `path` is where the user's modules are searched.
    """

    jobs: int = 1
    memory_bytes: int | None = None
    warm: str = "inductor"
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


class RemoteQuery(msgspec.Struct, frozen=True):
    """One query. `token` names the minification, `trees` are the folders in `payload` by key (None: not named yet; the
    folders are on the client's machine). `client` is a folder that the client holds as long as it lives, where that is
    on this machine: a file `stop-<number>` in it ends the query. `ours`: whether the client trusts what it reads.
    """

    token: str
    number: int
    function: str
    payload: dict[str, Any]
    trees: dict[str, str] | None
    limit_s: float
    stage_limits: dict[str, float]
    settings: WorkerSettings
    client: str
    ours: bool | None = None


class Lacks(msgspec.Struct, tag="lacks"):
    """The answer of a worker that lacks a part of the case. `hashes`: the content that it needs; empty: it needs the
    order with `trees`."""

    hashes: list[str]


class Content(Protocol):
    """Content that an executor transports in its own way."""

    def fetch(self) -> bytes: ...


_own: dict[str, tuple[int, ForkServer]] = {}
"""By token: the server of the process that minifies, and that process's id (a fork of it is another worker)."""
_hosts: dict[str, Host] = {}
_lock = threading.Lock()


def lend(token: str, server: ForkServer | None) -> None:
    """Sets the server that worker threads of this process ask; None: removes it."""
    if server is None:
        _own.pop(token, None)
    else:
        _own[token] = (os.getpid(), server)


def ask(order: bytes, parts: Mapping[str, bytes | Content]) -> bytes:
    """Runs one query in a worker. `parts`: the content that it reported to lack."""
    wanted = msgspec.json.decode(order, type=RemoteQuery)
    process, server = _own.get(wanted.token, (0, None))
    if server is not None and process == os.getpid():
        return msgspec.json.encode(_asked(server, wanted, wanted.payload, {}))
    if wanted.trees is None:
        return msgspec.json.encode(Lacks([]))
    host = _host(wanted)
    host.store.add({name: part if isinstance(part, bytes) else part.fetch() for name, part in parts.items()})
    lacks = [name for tree in wanted.trees.values() for name in host.store.lacks(tree)]
    if lacks:
        return msgspec.json.encode(Lacks(list(dict.fromkeys(lacks))))
    there = {key: str(host.store.folder(tree)) for key, tree in wanted.trees.items()}
    return msgspec.json.encode(host.ask(wanted, wanted.payload | there))


def begin(order: bytes) -> None:
    """Starts this worker's server for a minification before the first query comes. `order`: any query of it."""
    wanted = msgspec.json.decode(order, type=RemoteQuery)
    if _own.get(wanted.token, (0, None))[0] != os.getpid():
        _host(wanted)


def _host(order: RemoteQuery) -> Host:
    with _lock:
        if order.token not in _hosts:
            _hosts[order.token] = Host(order)
        return _hosts[order.token]


def stop(token: str, number: int) -> None:
    """Ends one query, if this worker runs it."""
    host = _hosts.get(token)
    if host is not None:
        host.stop(number)


def leave(token: str) -> None:
    """Ends this worker's server for that minification, and removes its files."""
    with _lock:
        host = _hosts.pop(token, None)
    if host is not None:
        host.close()


def leave_all() -> None:
    """Ends all servers of this process."""
    for token in list(_hosts):
        leave(token)


class Host:
    """This process's server for one minification, and the folder of this machine where cases are kept for it."""

    def __init__(self, order: RemoteQuery) -> None:
        settings = order.settings
        self.token, self.client = order.token, Path(order.client)
        self.root = Path(tempfile.gettempdir()) / f"{processes.HOST_PREFIX}{order.token}"
        self.root.mkdir(exist_ok=True)
        self._held = processes.hold(self.root)
        self.store = Store(self.root)
        self._near = self.client.is_dir()
        self._pending: dict[int, PendingTask] = {}
        self._stopped: set[int] = set()
        self._asked = time.monotonic()
        sys.path.extend(entry for entry in settings.path if entry not in sys.path)
        memory = settings.memory_bytes or default_memory_bytes(settings.jobs)
        cache = self.root / "cache"  # one for all workers of this machine: what one has compiled, others need not
        self.server = fork_server(settings.warm, settings.preload, threads=1, memory_bytes=memory, cache_dir=cache)
        atexit.register(leave, order.token)
        threading.Thread(target=self._watch, name="graphdbg-host", daemon=True).start()

    def ask(self, order: RemoteQuery, payload: dict[str, Any]) -> Reply:
        """The answer of this process's server."""
        self._asked = time.monotonic()
        return _asked(self.server, order, payload, self._pending, self._stopped)

    def stop(self, number: int) -> None:
        """Ends a query, also one that is still to come."""
        self._stopped.add(number)
        asked = self._pending.get(number)
        if asked is not None:
            asked.kill()

    def close(self) -> None:
        """Ends the server; the last one of this machine removes the folder."""
        self.server.close()
        os.close(self._held)
        processes.remove_left_over()

    def _watch(self) -> None:
        """Ends this host once the minification is over, or nobody has asked for long."""
        while _hosts.get(self.token, self) is self:
            over = self._near and processes.left_over(self.client)
            if over or (not self._pending and time.monotonic() - self._asked > IDLE_S):
                leave(self.token)
                return
            time.sleep(WORKER_LOOK_S)


def _asked(
    server: ForkServer,
    order: RemoteQuery,
    payload: dict[str, Any],
    under_way: dict[int, PendingTask],
    stopped: Container[int] = (),
) -> Reply:
    """The answer to a query, which is ended where the client leaves a stop file in its folder."""
    asked = server.submit(order.function, payload, order.limit_s, stage_limits=order.stage_limits, ours=order.ours)
    under_way[order.number] = asked
    if order.number in stopped:
        asked.kill()
    word = Path(order.client) / f"stop-{order.number}"
    try:
        while True:
            try:
                return asked.answer(WORKER_LOOK_S)
            except TimeoutError:
                if word.exists():
                    asked.kill()
    finally:
        del under_way[order.number]


LOOK_S = 0.5
MOST_SENT = 10_000
"""Rounds of sending after which a worker that still lacks something is given up."""


class Errand(PendingTask):
    """A query on its way to a worker."""

    def __init__(self, servers: Elsewhere, order: RemoteQuery) -> None:
        self.servers, self.order = servers, order
        self.here: PendingTask | None = None
        """The pending query at this process's own server, where the executor is broken."""
        self._future: Future[bytes] | None = None
        self._send({})

    def answer(self, timeout_s: float | None = None) -> Reply:
        """Waits for the answer, however long. Raises GraphdbgError where a worker cannot ask at all."""
        for _ in range(MOST_SENT):
            if self.here is not None:
                return self.here.answer(timeout_s)
            answer = self._answer()
            if not isinstance(answer, Lacks):
                return answer
            if self.order.trees is None:
                self.order = self.servers.far(self.order)
            self._send({name: self.servers.part(name) for name in answer.hashes})
        why = "one of its files does not arrive there"
        raise ClusterError("cannot send the case to a worker", why, "leave --executor out")

    def kill(self) -> None:
        """Ends the query soon."""
        if self.here is not None:
            self.here.kill()
        elif self._future is None or not self._future.cancel():
            self.servers.stop(self.order.number)

    def _send(self, parts: Mapping[str, bytes | Content]) -> None:
        if not self.servers.broken:
            try:
                self._future = self.servers.executor.submit(ask, msgspec.json.encode(self.order), parts)
                return
            except (BrokenExecutor, RuntimeError) as error:  # it has ended, or was shut down
                self.servers.broken = f"{type(error).__name__}: {error}"
        order, home = self.order, self.servers.home
        self.here = home.submit(order.function, order.payload, order.limit_s, stage_limits=order.stage_limits)

    def _answer(self) -> Reply | Lacks:
        assert self._future is not None
        while True:
            try:
                return msgspec.json.decode(self._future.result(LOOK_S), type=Reply | Lacks)
            except NotYet:
                if self.servers.closed:
                    return self._lost("the minification was ended")
            except CancelledError:
                return Reply(self.order.number, "signal", signal="SIGKILL")
            except BrokenExecutor as error:
                return self._lost(str(error) or type(error).__name__)
            except GraphdbgError:
                raise
            except Exception as error:
                what = "a worker of the executor cannot ask its fork server"
                fix = "graphdbg and what it needs must be installed where the workers run"
                raise ClusterError(what, f"{type(error).__name__}: {error}", fix) from error

    def _lost(self, why: str) -> Reply:
        return Reply(self.order.number, "lost", error=ChildError("WorkerLost", why))


class Elsewhere(contextlib.AbstractContextManager["Elsewhere"]):
    """A fork server's interface over an executor. The executor is the caller's: it is neither started nor shut down
    here.

    An executor may have three methods beside `submit`: `share(bytes)` returns what travels in place of the bytes and
    has `fetch()`; `stop_query(token, number)` has a worker end a query; without it, a stop file does, and workers must
    be on this machine; `greet(function, *args)` has every worker call that once, as soon as it lives.
    """

    def __init__(self, home: ForkServer, executor: Executor, settings: WorkerSettings) -> None:
        self.home, self.executor, self.settings = home, executor, settings
        self.broken = ""
        """Why the executor is not asked any more."""
        self.closed = False
        self.token = os.urandom(8).hex()
        self._sender = Sender()
        self._shared: dict[str, Content] = {}
        self._cases: dict[tuple[Path, object, object], str] = {}
        self._far = False
        """Whether a worker turned out to be another process, which has to be sent the folders."""
        self._numbers = itertools.count(1)
        with contextlib.suppress(BrokenExecutor, RuntimeError):  # a pool that forks does so now, before our threads
            executor.submit(os.getpid)
        self._folder, self._held = processes.make("graphdbg-minify-")
        lend(self.token, home)
        if (greet := getattr(executor, "greet", None)) is not None:
            greet(begin, msgspec.json.encode(self._order("", {})))

    def _order(self, function: str, payload: dict[str, Any], limit_s: float = 0.0) -> RemoteQuery:
        query = (next(self._numbers), function, payload, None, limit_s, dict[str, float]())
        return RemoteQuery(self.token, *query, self.settings, str(self._folder), trusted(payload))

    def submit(
        self,
        function: str,
        payload: dict[str, Any],
        limit_s: float = 600.0,
        *,
        stage_limits: Mapping[str, float] | None = None,
    ) -> Errand:
        """Submits a query as `ForkServer.submit` does; the folders that the payload names travel with it where the
        worker has another disk."""
        order = self._order(function, payload, limit_s)
        trees = self.trees(payload) if self._far else None
        return Errand(self, replace(order, trees=trees, stage_limits=dict(stage_limits or {})))

    def far(self, order: RemoteQuery) -> RemoteQuery:
        """The order with its folders named by content, for a worker in another process; later queries are sent like
        that at once."""
        self._far = True
        return replace(order, trees=self.trees(order.payload))

    def part(self, name: str) -> bytes | Content:
        """The part that travels under that name."""
        share = getattr(self.executor, "share", None)
        if share is None:
            return self._sender.bytes_of(name)
        if name not in self._shared:
            self._shared[name] = cast("Content", share(self._sender.bytes_of(name)))
        return self._shared[name]

    def stop(self, number: int) -> None:
        """Tells the workers to end a query."""
        tell = getattr(self.executor, "stop_query", None)
        if tell is not None:
            tell(self.token, number)
        (self._folder / f"stop-{number}").touch()

    def close(self) -> None:
        """Releases callers that wait for an answer; workers on this machine end their servers soon."""
        self.closed = True
        lend(self.token, None)
        processes.remove(self._folder)
        with contextlib.suppress(OSError):
            os.close(self._held)

    def __exit__(self, *_: object) -> None:
        self.close()

    def trees(self, payload: dict[str, Any]) -> dict[str, str]:
        """The trees of the folders that the payload names; "work" only where a candidate is asked about."""
        trees_of_folders: dict[str, str] = {}
        if "case" in payload:
            stamp = _stamp(Path(payload["case"]))
            if stamp not in self._cases:
                self._cases[stamp] = self._sender.tree(case_files(stamp[0]))
            trees_of_folders["case"] = self._cases[stamp]
        if payload.get("candidate") is not None and "work" in payload:
            work = Path(payload["work"])
            trees_of_folders["work"] = self._sender.tree({path.name: path for path in work.iterdir() if path.is_file()})
        return trees_of_folders


def case_files(folder: Path) -> dict[str, Path | bytes]:
    """The files of a graph as a case folder that needs no run around it: its record, the record of its inputs, the
    tensors of both."""
    saved = load_graph(folder)
    record, inputs = saved.record, saved.inputs_record
    files: dict[str, Path | bytes] = {graph_folder.GRAPH_FILE: graph_folder.encode(record)}
    if inputs is not None:
        files[graph_folder.INPUTS_FILE] = graph_folder.encode(inputs)
    for name in graph_folder.stored_names(record, inputs):
        if saved.tensors.has(name):
            files[f"{graph_folder.TENSORS_FOLDER}/{name}"] = saved.tensors.folder / name
    return files


def _stamp(folder: Path) -> tuple[Path, object, object]:
    """A stamp that changes when the graph in a folder is written again."""
    files = (stored(folder / name) for name in (graph_folder.GRAPH_FILE, graph_folder.INPUTS_FILE))
    graph, inputs = (file and (file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return folder, graph, inputs
