"""What runs in an executor's worker: it asks the warm fork server of its own process, and does nothing else.

A segfault or a hang of a query therefore never ends or blocks the worker. Where the worker is a thread of the process
that minifies, it asks that process's own server. Any other process makes a server when it is first asked, keeps it
warm, and ends it when the minification is over, however that ended. Imports no torch.

For example, `answer = ask(encoded_order, {})`: Lacks of hashes, or the fork server's answer, encoded.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Container, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import msgspec

from ...dumps.atomic import temporary_beside
from ...dumps.errors import ClusterError
from ...dumps.tensors import hash_bytes
from ...toolkit.isolation import Answer as Reply
from ...toolkit.isolation import ForkServer, PendingTask, default_memory_bytes, fork_server, processes

AT_ONCE_BYTES = 256 << 20
"""About how many bytes are asked for at once."""


class ParcelFile(msgspec.Struct, frozen=True):
    """One file of a tree, which is a list of them in order."""

    path: str
    hash: str
    size_bytes: int


class Sender:
    """Names trees and gives out their content. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], str] = {}
        """Hashes of files that have not changed since: by path, size and time."""
        self._files: dict[str, Path | bytes] = {}

    def tree(self, files: Mapping[str, Path | bytes]) -> str:
        """The name of a tree: `files` are its paths and their content, or where that lies."""
        with self._lock:
            entries = [self._entry(path, files[path]) for path in sorted(files)]
            data = msgspec.json.encode(entries)
            name = hash_bytes(data)
            self._files[name] = data
        return name

    def bytes_of(self, name: str) -> bytes:
        """The content of that name, as it was named. Raises EnvironmentLackError where the file has changed since."""
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
                raise ClusterError("a case arrives damaged", f"{name} has other bytes than its name says")
            path = self._files / name
            if not path.exists():
                part = temporary_beside(path)
                part.write_bytes(data)
                part.replace(path)

    def lacks(self, tree: str) -> list[str]:
        """The names of what must be added before `folder`; the tree itself first, then its files, some at a time.
        Empty: nothing."""
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


LOOK_S = 0.2
"""How often a worker looks whether its query is to be ended."""
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


class Order(msgspec.Struct, frozen=True):
    """One query. `token` names the minification, `trees` are the folders in `payload` by key (None: not yet named, they
    lie where the client is). `client` is a folder that the client holds as long as it lives, where that is on this
    machine: a file `stop-<number>` in it ends the query. `ours`: whether the client trusts what it reads.
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
    """The answer of a worker that does not have all of the case yet: what it needs to be sent; empty: the trees."""

    hashes: list[str]


class Content(Protocol):
    """Content that an executor transports in its own way."""

    def fetch(self) -> bytes: ...


_own: dict[str, tuple[int, ForkServer]] = {}
"""By token: the server of the process that minifies, and that process's id (a fork of it is another worker)."""
_hosts: dict[str, Host] = {}
_lock = threading.Lock()


def lend(token: str, server: ForkServer | None) -> None:
    """Sets the server that worker threads of this process ask; None: none any more."""
    if server is None:
        _own.pop(token, None)
    else:
        _own[token] = (os.getpid(), server)


def ask(order: bytes, parts: Mapping[str, bytes | Content]) -> bytes:
    """Runs one query in a worker. `parts`: the content that it reported to lack."""
    wanted = msgspec.json.decode(order, type=Order)
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
    wanted = msgspec.json.decode(order, type=Order)
    if _own.get(wanted.token, (0, None))[0] != os.getpid():
        _host(wanted)


def _host(order: Order) -> Host:
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

    def __init__(self, order: Order) -> None:
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
        self.server = fork_server(
            settings.warm,
            settings.preload,
            threads=1,
            memory_bytes=settings.memory_bytes or default_memory_bytes(settings.jobs),
            cache_dir=self.root
            / "cache",  # one for all workers of this machine: what one has compiled, others need not
        )
        atexit.register(leave, order.token)
        threading.Thread(target=self._watch, name="graphdbg-host", daemon=True).start()

    def ask(self, order: Order, payload: dict[str, Any]) -> Reply:
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
            time.sleep(LOOK_S)


def _asked(
    server: ForkServer,
    order: Order,
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
                return asked.answer(LOOK_S)
            except TimeoutError:
                if word.exists():
                    asked.kill()
    finally:
        del under_way[order.number]
