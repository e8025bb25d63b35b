"""`graphdbg.arm()` and `graphdbg.save_repro()`; GRAPHDBG_ARM=1 arms a process when it imports torch.

For example:

    import graphdbg; graphdbg.arm()
    try:
        train()
    except FloatingPointError:
        graphdbg.save_repro(minify=True)
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....dumps.errors import NoGraphError
from ....dumps.output import say
from ....dumps.wording import raised_line
from ...torch_private import importing
from .. import flight, leaving, patches
from ..options import Options
from ..session import Function, Session, hook, sessions, wrap
from ..starting import uncaught
from . import rings

if TYPE_CHECKING:
    from .calls import Calls

RING_BYTES = 48 << 20
"""Limit for graphs and the journal; with copies of inputs a ring stays below 64 MB."""
HOOKS = {"OutputGraph.call_user_compiler"}


class Armed(Session):
    """The session of an armed process. `at_end`: whether a failure is written as a run when the process ends; `minify`:
    whether that run is then minified, within `max_time` seconds."""

    def __init__(self, *, at_end: bool, minify: bool, max_time: float) -> None:
        self.at_end, self.minify, self.max_time = at_end, minify, max_time
        self.calls: Calls | None = None
        self.error: BaseException | None = None
        self.saved: set[str] = set()
        """Graphs whose failing call is already written."""
        self.unfit: set[str] = set()
        """Graphs that could not be compiled."""
        self.written = -1
        """Number of the last call that `save` has written."""
        options = Options(run=str(rings.fresh()), stages=["dynamo"], keep_cache=True, max_disk=RING_BYTES)
        super().__init__(options, join=False)
        self.watch = self._watched

    def afresh(self) -> None:
        """Gives a forked child a ring of its own."""
        self.pid = os.getpid()
        if self.calls is not None:
            self.calls.forked = True
        self.options.run = str(rings.fresh())
        self.path, self.join, self.calls, self.error = Path(self.options.run), False, None, None
        self.unfit, self.saved = set(), set()
        super().afresh()

    def _watched(self, session: Session, graphs: Any, compiled: Any) -> Any:
        """The callable that watches a compiled graph; see `Session.watch`."""
        from .calls import Calls

        if self.calls is None:
            self.calls = Calls(self)
            self.event("note", message="armed", armed=os.getcwd())  # noqa: PTH109  as the program has it
        return self.calls.watch(session, graphs, compiled)

    def event(self, kind: str, graph: str | None = None, **fields: Any) -> None:
        """Journals an event, and notes failures."""
        if kind == "failed" and graph is not None:
            self.unfit.add(graph)
            self.saved.discard(graph)
        super().event(kind, graph, **fields)

    def forget(self) -> None:
        """Discards the calls and failures so far, because a test ended."""
        self.saved |= self.unfit
        if self.calls is not None:
            self.calls.failure = None
            for graph in self.calls.kept:
                graph.newest = None

    def has_called(self) -> bool:
        """Whether, since the last `forget`, a compiled graph was called or failed to compile."""
        called = self.calls is not None and any(graph.newest is not None for graph in self.calls.kept)
        return called or bool(self.unfit - self.saved)

    def uncaught(self, error: BaseException) -> None:
        """Records the exception that ends the program."""
        if isinstance(error, Exception) and os.getpid() == self.pid:
            self.error = error

    def close(self, *, programs: bool = False) -> None:
        """Writes a run of a failure, where `at_end` asks for it, and removes the ring."""
        if os.getpid() != self.pid:
            return
        unsaved: list[str] = []
        try:
            if self.at_end and self.went_wrong():
                from .saving import said

                unsaved = said(self)
                for line in unsaved:
                    say(line)
        finally:
            writer, self._writer, self.calls = self._writer, None, None
            if writer is not None and writer.owned:
                writer.syncing.finish()
                writer.journal.close()
            if not unsaved:  # else the ring stays, and the next command makes a run of it
                shutil.rmtree(self.path, ignore_errors=True)

    def went_wrong(self) -> str:
        """A line about a failure that is not written yet; "" where there is none."""
        failure = self.calls.failure if self.calls is not None else None
        if failure is not None and failure.kept.local not in self.saved:
            return f"{failure.kept.local} raised {failure.error}"
        if self.unfit - self.saved:
            return f"{min(self.unfit - self.saved)} could not be compiled"
        unwritten = self.calls is None or self.calls.sequence != self.written
        if self.error is not None and self._writer is not None and unwritten:
            return f"the program ended with {raised_line(self.error)}"
        return ""


@hook
def engine(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """Wraps a top-level call of autograd's engine, which may run compiled backwards."""
    calls = session.calls if isinstance(session, Armed) else None
    if calls is None or flight.here.flights:  # AOTAutograd traces the joint graph by the engine
        return original(*args, **kwargs)
    calls.mark.state(rings.BACKWARD)
    try:
        return original(*args, **kwargs)
    finally:
        calls.mark.state(rings.IDLE)
        calls.backward_ran = True


def watch_backwards() -> None:
    """Wraps autograd's engine to note backwards from now on; does nothing before torch is imported."""
    from ... import torch_private as t

    for name in ("engine_call", "graph_engine_call"):
        if callable(t.loaded(name)):
            wrap(*t.home(name), engine)


VARIABLE = "GRAPHDBG_ARM"


def arm(*, minify: bool = False, max_time: float = 300.0) -> None:
    """Keeps what this process compiles from here on, and the inputs of each graph's last call, so that a failure leaves
    a run.

    What is compiled before is not seen. A call that raises, or an exception that ends the program, is written as the
    run graphdbg-armed-N when the process ends; with `minify` it is minified then too, within `max_time` seconds, by a
    process of its own. `save_repro` writes at any time. A process that is killed leaves its ring to the next `graphdbg`
    command. Costs: 64 MB of disk, at most; a second call only changes what is asked for. Nothing is kept while a
    recording (`record`, `graphdbg dump`) goes on.
    """
    try:
        begin(minify=minify, max_time=max_time)
    except (OSError, RuntimeError) as error:  # the program goes on
        say(f"graphdbg: not armed: no ring can be made ({error}); set XDG_STATE_HOME to a folder that can be written")


def begin(*, at_end: bool = True, minify: bool = False, max_time: float = 300.0) -> Armed:
    """Starts the ring of this process, which is removed when it ends. Imports nothing of torch's."""
    there = armed()
    if there is not None:
        there.at_end, there.minify, there.max_time = at_end, minify, max_time
        return there
    session = Armed(at_end=at_end, minify=minify, max_time=max_time)
    sessions.insert(0, session)
    if len(sessions) == 1:
        patches.install(HOOKS)
    importing.watch({"torch.autograd.graph": lambda _: watch_backwards()})
    leaving.install(uncaught)
    atexit.register(end)
    return session


def armed() -> Armed | None:
    """The ring of this process, or None."""
    return next((session for session in sessions if isinstance(session, Armed)), None)


def end() -> None:
    """Writes what went wrong, and removes the ring."""
    session = armed()
    if session is None:
        return
    sessions.remove(session)
    if not sessions:
        patches.uninstall()
    session.close()


def start_from_environment(value: str) -> None:
    """GRAPHDBG_ARM: 1, or minify; pytest's plugin sets pytest, for this process alone."""
    if value == "pytest":
        del os.environ[VARIABLE]
    if value not in ("", "0"):
        begin(at_end=value != "pytest", minify=value == "minify")


def save_repro(
    fn: Callable[..., Any] | None = None,
    *,
    run: str | os.PathLike[str] | None = None,
    minify: bool = False,
    max_time: float = 300.0,
) -> Path:
    """Writes the graphs of the last step of an armed process, with the inputs of their last calls, as a run; returns
    its folder.

    Where a call raised, that graph alone. `fn`: only graphs of this function or module (compiled, or what was
    compiled). `run`: a new folder; default graphdbg-armed-N here. With `minify` a process of its own minifies it,
    within `max_time` seconds, into RUN-minified (case/, repro.py, issue.md). What was overwritten since the calls is
    reported on stderr and in the run's journal. Raises UsageError where nothing was compiled since `arm()`, nothing of
    `fn`, or `run` exists.
    """
    session = armed()
    if session is None:
        raise NoGraphError(
            "cannot save a repro", "this process is not armed", "call graphdbg.arm() first, or set GRAPHDBG_ARM=1"
        )
    from .saving import said_of, save

    saved = save(session, fn, Path(run) if run is not None else None)
    said_of(session, saved, minify=minify, max_time=max_time)
    return saved.path
