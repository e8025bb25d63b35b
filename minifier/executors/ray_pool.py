"""Ray as a `concurrent.futures.Executor`: a fixed number of actors, each with a warm fork server of its own; extra
`graphdbg[ray]`.

The cluster is that of RAY_ADDRESS, or a local one that ends with the executor. Submitted calls wait in one queue for
the next free actor. An actor that dies costs the one call that it was at (WorkerDiedError), and another takes its
place. Content is put into Ray's store once, and fetched by the actors that lack it. Knows nothing of the queries.

For example:

    with RayExecutor(workers=2) as pool:
        pool.submit(os.getpid).result()
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from importlib import import_module
from math import ceil
from typing import Any

from ...dumps.errors import ClusterError, DeviceMissingError, PackageMissingError
from ...dumps.wording import counted
from . import elsewhere

ADDRESS = "RAY_ADDRESS"
START_S = 180.0
"""Seconds to wait for the first actor."""
CLOSE_S = 10.0
SIDE_CALLS = 4
"""Calls that an actor takes besides its query: to end that, to end itself."""
DEATHS = 20
"""Actors in a row that die before they have answered anything, after which no more are started."""


class WorkerDiedError(BrokenExecutor):
    """The actor died; the others go on."""


def required() -> None:
    """Raises EnvironmentLackError where Ray is not installed. Does not import it."""
    if importlib.util.find_spec("ray") is None:
        why = "Ray is not installed; it is an extra"
        raise PackageMissingError("cannot use --executor ray", why, "install it: pip install 'graphdbg[ray]'")


def _ray() -> Any:
    """The module `ray`, untyped: it may be missing where the types are checked."""
    return import_module("ray")


class Shared:
    """Content in Ray's object store."""

    def __init__(self, reference: Any) -> None:
        self.reference = reference

    def fetch(self) -> bytes:
        """The bytes, in any process."""
        return _ray().get(self.reference)


class Actor:
    """The actor: an object that lives in a Ray worker."""

    def pid(self) -> int:
        """The process id of the actor, which answers once it lives."""
        return os.getpid()

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs one call."""
        return function(*args, **kwargs)

    def stop_query(self, token: str, number: int) -> None:
        """Ends a query that `run` is working on."""
        elsewhere.stop(token, number)

    def leave(self) -> None:
        """Ends the servers of this process."""
        elsewhere.leave_all()


class RayExecutor(Executor):
    """An executor over `workers` Ray actors. `gpu`: each gets one, or a share of one where there are fewer.

    Raises EnvironmentLackError where Ray is missing, or its cluster cannot be reached or has no place for a single
    actor.
    """

    def __init__(self, workers: int = 1, *, gpu: bool = False, say: Callable[[str], None] = lambda text: None) -> None:
        required()
        self._ray, self.workers, self._gpus = _ray(), workers, 0.0
        self._lock = threading.RLock()
        self._queue: deque[tuple[Future[Any], tuple[Any, ...]]] = deque()
        self._free: deque[Any] = deque()
        self._actors: set[Any] = set()
        self._ended = False
        self._fruitless = 0
        self._greeting: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = None
        self.began = not self._ray.is_initialized()
        """Whether the connection is ours, to be closed at the end."""
        if self.began:
            self._connect()
        try:
            if gpu:
                there = int(self._ray.cluster_resources().get("GPU", 0))
                if not there:
                    raise DeviceMissingError("the case needs a GPU", "the Ray cluster has none", "leave --executor out")
                self._gpus = 1 / ceil(workers / there)
            with self._lock:
                for _ in range(workers):
                    self._hire()
            self._wait_for_one(say)
        except BaseException:
            self.shutdown(wait=False, cancel_futures=True)
            raise

    # -- the Executor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls the function in an actor; the future raises WorkerDiedError where that dies."""
        future: Future[Any] = Future()
        with self._lock:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._fruitless >= DEATHS and not self._actors:
                raise BrokenExecutor(f"{DEATHS} Ray actors died one after the other")
            self._queue.append((future, (fn, args, kwargs)))
        self._dispatch()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the actors with their servers, and a local cluster that was started here. Can be called twice."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            left, self._queue = list(self._queue), deque()
            actors, self._actors = list(self._actors), set()
        for future, _ in left:
            future.cancel()
        leaving = [actor.leave.remote() for actor in actors]
        if leaving and wait:
            self._ray.wait(leaving, num_returns=len(leaving), timeout=CLOSE_S)
        for actor in actors:
            self._ray.kill(actor)
        if self.began and self._ray.is_initialized():
            self._ray.shutdown()

    # -- what the minifier asks of an executor beside that

    def share(self, data: bytes) -> Shared:
        """Puts content where every actor can fetch it."""
        return Shared(self._ray.put(data))

    def greet(self, function: Callable[..., Any], *args: Any) -> None:
        """Has every actor, also one that is started later, call this as soon as it lives; the result is ignored."""
        with self._lock:
            self._greeting = function, args, {}
            actors = list(self._actors)
        for actor in actors:
            actor.run.remote(*self._greeting)

    def stop_query(self, token: str, number: int) -> None:
        """Has the actor that works on this query end it."""
        with self._lock:
            actors = list(self._actors)
        for actor in actors:
            actor.stop_query.remote(token, number)

    # -- actors

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        logging.getLogger("ray").setLevel(logging.ERROR)
        address = os.environ.get(ADDRESS)
        how: dict[str, Any] = {"address": address}
        what, fix = f"the Ray cluster at {address} cannot be reached", "see ray status"
        if not address or address == "local":
            cpus = max(self.workers, os.cpu_count() or 1)
            how = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
            what, fix = "a local Ray cluster cannot be started", f"or name a running one by {ADDRESS}"
        before = signal.getsignal(signal.SIGTERM)
        try:
            self._ray.init(**how, log_to_driver=False, configure_logging=False, logging_level="ERROR")
        except Exception as error:  # of many kinds, all meaning this
            raise ClusterError(what, f"{type(error).__name__}: {error}", fix) from error
        finally:
            if before is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray takes it

    def _hire(self) -> None:
        """Starts one more actor, which is given work as soon as it lives."""
        needs = {"num_cpus": 1, "num_gpus": self._gpus, "max_restarts": 0, "max_concurrency": 1 + SIDE_CALLS}
        actor = self._ray.remote(Actor).options(**needs).remote()
        self._actors.add(actor)
        if self._greeting is not None:
            actor.run.remote(*self._greeting)
        actor.pid.remote().future().add_done_callback(partial(self._lives, actor))

    def _lives(self, actor: Any, alive: Future[Any]) -> None:
        if alive.cancelled() or alive.exception() is not None:
            self._replace(actor)
            return
        with self._lock:
            self._free.append(actor)
        self._dispatch()

    def _replace(self, actor: Any) -> None:
        """Starts another actor for one that has died, unless all of them die."""
        with self._lock:
            if self._ended or actor not in self._actors:
                return
            self._actors.discard(actor)
            self._fruitless += 1
            if self._fruitless < DEATHS:
                self._hire()
            left = [] if self._actors else list(self._queue)
            if left:
                self._queue.clear()
        for future, _ in left:
            future.set_exception(BrokenExecutor(f"{DEATHS} Ray actors died one after the other"))

    def _dispatch(self) -> None:
        """Gives waiting calls to free actors."""
        while True:
            with self._lock:
                if self._ended or not self._queue or not self._free:
                    return
                future, call = self._queue.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                actor = self._free.popleft()
            reference = actor.run.remote(*call)
            reference.future().add_done_callback(partial(self._done, actor, future))

    def _done(self, actor: Any, future: Future[Any], done: Future[Any]) -> None:
        """Passes an answer on; called in a thread of Ray's."""
        errors = self._ray.exceptions
        error = done.exception()
        died = isinstance(error, (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError))
        if died:
            self._replace(actor)
            future.set_exception(WorkerDiedError("a Ray worker died"))
            return
        with self._lock:
            self._fruitless = 0
            if actor in self._actors:
                self._free.append(actor)
        self._dispatch()
        if error is not None:
            future.set_exception(getattr(error, "cause", None) or error)
        else:
            future.set_result(done.result())

    def _wait_for_one(self, say: Callable[[str], None]) -> None:
        """Waits until the first actor lives."""
        cpus = self._ray.cluster_resources().get("CPU", 0)
        if cpus < self.workers:
            short = f"{counted(cpus, 'CPU', form='g')} for {counted(self.workers, 'worker')}"
            say(f"the Ray cluster has {short}: some will wait until there are more")
        with self._lock:
            waiting = [actor.pid.remote() for actor in self._actors]
        there, _ = self._ray.wait(waiting, num_returns=1, timeout=START_S)
        if not there:
            why = f"it has {cpus:g} CPUs in all, and none was free for {START_S:g} s"
            fix = "see ray status, or give a smaller -j"
            raise ClusterError("the Ray cluster has no free CPU for a worker", why, fix)
