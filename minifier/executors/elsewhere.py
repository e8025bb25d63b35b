"""This side of an executor: queries go to its workers, everything else to this process's own fork server (`home`).

It has the interface of a fork server (`home`, `submit`), so that whoever asks need not know where a query runs. A
worker that dies answers "lost", as a fork server that dies does, and is asked no more than that one query again. An
executor that is broken for good, as a process pool with a dead process is, is asked no more: what is left is asked
here.

For example:

    with Elsewhere(home, ThreadPoolExecutor(2), Settings(jobs=2)) as servers:
        servers.submit(function, payload, 60.0).result().status
    # 'done'
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ...dumps import graph_folder
from ...dumps.errors import ClusterError, GraphdbgError
from ...dumps.reading import stored
from ...dumps.store import load_graph
from ...toolkit.isolation import Answer as Reply
from ...toolkit.isolation import ForkServer, PendingTask, processes
from ...toolkit.isolation.client import trusted
from ...toolkit.isolation.protocol import ChildError
from . import worker
from .worker import Content, Lacks, Order, Sender, WorkerSettings

LOOK_S = 0.5
MOST_SENT = 10_000
"""Rounds of sending after which a worker that still lacks something is given up."""


class Errand(PendingTask):
    """A query on its way to a worker."""

    def __init__(self, servers: Elsewhere, order: Order) -> None:
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
        raise ClusterError(
            "cannot send the case to a worker", "a file of it is missing there each time", "leave --executor out"
        )

    def kill(self) -> None:
        """Ends the query soon."""
        if self.here is not None:
            self.here.kill()
        elif self._future is None or not self._future.cancel():
            self.servers.stop(self.order.number)

    def _send(self, parts: Mapping[str, bytes | Content]) -> None:
        if not self.servers.broken:
            try:
                self._future = self.servers.executor.submit(worker.ask, msgspec.json.encode(self.order), parts)
                return
            except (BrokenExecutor, RuntimeError) as error:  # it has ended, or was shut down
                self.servers.broken = f"{type(error).__name__}: {error}"
        order = self.order
        self.here = self.servers.home.submit(
            order.function, order.payload, order.limit_s, stage_limits=order.stage_limits
        )

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
    """The executor is the caller's: it is neither started nor shut down here.

    An executor may have three methods beside `submit`: `share(bytes)` returns what travels in place of the bytes and
    has `fetch()`; `stop_query(token, number)` has a worker end a query, which otherwise takes its word from a file and
    so must be on this machine; `greet(function, *args)` has every worker call that once, as soon as it lives.
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
        worker.lend(self.token, home)
        if (greet := getattr(executor, "greet", None)) is not None:
            greet(worker.begin, msgspec.json.encode(self._order("", {})))

    def _order(self, function: str, payload: dict[str, Any], limit_s: float = 0.0) -> Order:
        return Order(
            self.token,
            next(self._numbers),
            function,
            payload,
            None,
            limit_s,
            {},
            self.settings,
            str(self._folder),
            trusted(payload),
        )

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

    def far(self, order: Order) -> Order:
        """Submits the same query to a worker in another process, with its folders by content."""
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
        """Releases whoever waits; workers on this machine end their servers soon."""
        self.closed = True
        worker.lend(self.token, None)
        processes.remove(self._folder)
        with contextlib.suppress(OSError):
            os.close(self._held)

    def __exit__(self, *_: object) -> None:
        self.close()

    def trees(self, payload: dict[str, Any]) -> dict[str, str]:
        """The trees of the folders that the payload names; "work" is not needed before there are candidates."""
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
    """A graph as a case folder that needs no run around it: its record, what was seen of its inputs, the tensors of
    both."""
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
