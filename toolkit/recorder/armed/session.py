"""The ring of this process: a recording of what Dynamo made, bounded, that goes when the process ends well."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....dumps.output import say
from .. import flight
from ..hold import one_line
from ..options import Options
from ..session import Function, Session, hook
from ..wrapping import wrap
from . import rings

if TYPE_CHECKING:
    from .calls import Calls

RING_BYTES = 48 << 20
"""Of graphs and the journal; with copies of inputs a ring stays below 64 MB."""
HOOKS = {"OutputGraph.call_user_compiler"}


class Armed(Session):
    """`at_end`: whether what went wrong is written when the process ends; `minify`: whether it is minified then, in
    `max_time` seconds."""

    def __init__(self, *, at_end: bool = True, minify: bool = False, max_time: float = 300.0) -> None:
        self.at_end, self.minify, self.max_time = at_end, minify, max_time
        self.calls: Calls | None = None
        self.error: BaseException | None = None
        self.saved: set[str] = set()
        """Graphs whose failing calls are written already."""
        self.unfit: set[str] = set()
        """Graphs that could not be compiled."""
        self.written = -1
        """The call up to which all was written."""
        super().__init__(
            Options(run=str(rings.fresh()), stages=["dynamo"], keep_cache=True, max_disk=RING_BYTES), join=False
        )
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
        """Forgets what was called and failed so far, because a test ended."""
        self.saved |= self.unfit
        if self.calls is not None:
            self.calls.failure = None
            for graph in self.calls.kept:
                graph.newest = None

    def holds_graph(self, graph: str) -> None:
        """Records that a graph is compiled; the failure of an earlier one with that name is past."""
        self.saved.discard(graph)

    def uncaught(self, error: BaseException) -> None:
        """Records the exception that ends the program."""
        if isinstance(error, Exception) and os.getpid() == self.pid:
            self.error = error

    def close(self, *, programs: bool = False) -> None:
        """Writes what went wrong, where that was asked for, and removes the ring."""
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
            if not unsaved:  # else the next command makes a run of it, as if the process had died
                shutil.rmtree(self.path, ignore_errors=True)

    def went_wrong(self) -> str:
        """A line on what went wrong and is not written yet; "" for nothing."""
        failure = self.calls.failure if self.calls is not None else None
        if failure is not None and failure.kept.local not in self.saved:
            return f"{failure.kept.local} raised {failure.error}"
        if self.unfit - self.saved:
            return f"{min(self.unfit - self.saved)} could not be compiled"
        if (
            self.error is not None
            and self._writer is not None
            and (self.calls is None or self.calls.sequence != self.written)
        ):
            return f"the program ended with {one_line(self.error)}"
        return ""


@contextmanager
def _backward(session: Session) -> Iterator[None]:
    calls = session.calls if isinstance(session, Armed) else None
    if calls is None or flight.here.flights:  # AOTAutograd traces the joint graph by the engine
        yield
        return
    calls.mark.state(rings.BACKWARD)
    try:
        yield
    finally:
        calls.mark.state(rings.IDLE)
        calls.backward_ran = True


@hook
def engine(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """Wraps a top-level call of autograd's engine, which may run compiled backwards."""
    with _backward(session):
        return original(*args, **kwargs)


def watch_backwards() -> None:
    """Marks backwards from now on, if torch has been imported."""
    from ... import torch_private as t

    for name in ("engine_call", "graph_engine_call"):
        if callable(t.loaded(name)):
            wrap(*t.home(name), engine)
