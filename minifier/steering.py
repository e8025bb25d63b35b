"""Orders of the user's, carried out between two queries: pause, skip a step, disable, enable or raise one, cancel,
restart.

An order that changes the search is a note in the journal before it acts: {"order": ..., "at": queries, "turn":
boundaries so far}. A resumed search meets the same boundaries and takes the note at the same one, so that it ends as
the uninterrupted one did. What is urgent also ends the queries in flight, which then have no answer and do not count.
Must not search.

For example:

    steering = Steering(Path("small"), journal, tell, abort=oracle.abort)
    steering.boundary(engine)   # may raise Skipped, Restarted, Cancelled; returns late while it is paused
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .budget import Cancelled, Restarted, Skipped
from .control import Order, Orders
from .events import Follow, Steered
from .events import Restarted as RestartedEvent
from .journal import Journal

if TYPE_CHECKING:
    from .engine import Engine

NOTE = "steer "
NOTED = ("skip", "disable", "enable", "raise", "restart")
"""Orders that a resumed search carries out again; the others are about the process."""
URGENT = ("pause", "skip", "cancel", "restart")
LOOK_S = 0.2
PAUSE_S = 0.1


class Steering:
    """Reads OUT/control.jsonl. `abort` ends what is asked of the oracle now. `without`: steps disabled from the
    start."""

    def __init__(
        self,
        out: Path,
        journal: Journal,
        tell: Follow,
        *,
        without: Sequence[str] = (),
        abort: Callable[[], None] = lambda: None,
    ) -> None:
        self.paused = False
        self.searching = False
        """Whether there are boundaries at all; before that only the process can be interrupted."""
        self.whole: tuple[int, int] = (0, 0)
        """The size of the original."""
        self._journal, self._tell, self._abort = journal, tell, abort
        self._orders = Orders(out)
        self._waiting: deque[Order] = deque()
        self._turn = 0
        self._cancels = 0
        self._abortable = 0
        self._running = ""
        self._main = threading.get_ident() if threading.current_thread() is threading.main_thread() else None
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._number = 0
        self._noted: list[tuple[int, int, int, Order]] = []
        self._recall(without)
        self._thread = threading.Thread(target=self._watch, name="graphdbg-steering", daemon=True)

    def __enter__(self) -> Steering:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._look()
        for order in self._waiting:
            self._told(order, "" if order.what == "cancel" else "the search is over")

    def _recall(self, without: Sequence[str]) -> None:
        """Takes the notes of earlier processes, and makes those of what is disabled from the start."""
        for name, value in self._journal.facts.items():
            if name.startswith(NOTE):
                self._number = max(self._number, int(name.removeprefix(NOTE)))
                order = msgspec.convert(value["order"], Order)
                self._noted.append((value["at"], value["turn"], int(name.removeprefix(NOTE)), order))
        known = {order.id for *_, order in self._noted}
        for step in dict.fromkeys(without):
            order = Order(f"without {step}", "disable", step)
            if order.id not in known:
                self._note(order, 0)
                self._noted.append((0, 0, self._number, order))
        self._noted.sort(key=lambda one: one[:3])

    # -- what the engine calls, in its thread

    def boundary(self, engine: Engine, *, again: bool = False) -> None:
        """Carries out what is due. `again`: a query was ended from outside, and this is still the boundary before
        it."""
        self._turn += not again
        self._running = engine.step
        while self._noted and self._due(self._noted[0], engine):
            self._carry_out(self._noted.pop(0)[3], engine, noted=True)
        self._look()
        while self._waiting or self.paused:
            if self._waiting:
                self._carry_out(self._waiting.popleft(), engine)
                continue
            began = time.monotonic()
            time.sleep(PAUSE_S)
            engine.budget.started += time.monotonic() - began
            self._look()

    def replaying(self, queries: int) -> bool:
        """Whether an order of an earlier process may be due before so many queries: then they are taken one after the
        other."""
        return bool(self._noted) and self._noted[0][0] <= queries

    @contextmanager
    def asking(self) -> Generator[None]:
        """While the block runs, something is asked that an urgent order may end."""
        with self._lock:
            self._abortable += 1
        try:
            yield
        finally:
            with self._lock:
                self._abortable -= 1

    def abort(self) -> None:
        """Ends what is asked now."""
        self._abort()

    # -- carrying out

    def _due(self, note: tuple[int, int, int, Order], engine: Engine) -> bool:
        at, turn, _, order = note
        if order.what == "skip" and not engine.step:  # another number of workers meets other boundaries
            return False
        return engine.queries > at or (engine.queries == at and self._turn >= turn)

    def _carry_out(self, order: Order, engine: Engine, *, noted: bool = False) -> None:
        why = self._refusal(order, engine, noted)
        if not why and not noted and order.what in NOTED:
            self._note(order, engine.queries)
        self._told(order, why, engine.queries)
        if why:
            return
        match order.what:
            case "pause" | "resume":
                self.paused = order.what == "pause"
            case "skip":
                raise Skipped
            case "restart":
                number = order.number or 0
                best, size = engine.bests[number], engine.history[number - 1][1:] if number else self.whole
                self._tell(RestartedEvent(engine.queries, best.text() if best else "original", *size, number))
                raise Restarted(number)
            case "cancel":
                self.paused = False
                raise Cancelled("cancelled")
            case "disable":
                engine.left_out.add(order.step)
                if engine.step == order.step:
                    raise Skipped
            case "enable":
                engine.left_out.discard(order.step)
            case _:
                engine.agenda.promote(order.step)

    def _refusal(self, order: Order, engine: Engine, noted: bool) -> str:
        match order.what:
            case "pause":
                return "it is paused already" if self.paused else ""
            case "resume":
                return "" if self.paused else "it is not paused"
            case "skip" if not noted:
                return self._stale(order, engine.step)
            case "restart":
                last = len(engine.history)
                known = order.number is not None and 0 <= order.number <= last
                return "" if known else f"the history has 0 (the original) to {last}"
            case "disable" | "enable" | "raise":
                return engine.agenda.refusal(order.what, order.step)
            case _:
                return ""

    def _stale(self, order: Order, running: str) -> str:
        if not running:
            return f"{order.step or 'the step'} has ended already"
        return f"{order.step} has ended already; {running} runs now" if order.step not in ("", running) else ""

    def _note(self, order: Order, queries: int) -> None:
        self._number += 1
        note: dict[str, Any] = {"order": asdict(order), "at": queries, "turn": self._turn}
        self._journal.note(f"{NOTE}{self._number}", note)

    def _told(self, order: Order, why: str, queries: int = 0) -> None:
        state = "refused" if why else "applied"
        step = order.step or (self._running if order.what == "skip" else "")
        self._tell(Steered(order.id, order.what, state, why, step, order.number, queries))

    # -- looking, also while a query runs

    def _look(self) -> None:
        with self._lock:
            for order in self._orders.new():
                self._waiting.append(order)
                self._cancels += order.what == "cancel"
                if order.what == "cancel" and (self._cancels > 1 or not self.searching):
                    self._interrupt()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            self._look()
            with self._lock:
                if self._abortable and (self.paused or any(self._urgent(order) for order in self._waiting)):
                    self._abort()

    def _urgent(self, order: Order) -> bool:
        if order.what == "skip":
            return not self._stale(order, self._running)
        return order.what in URGENT or (order.what == "disable" and order.step == self._running)

    def _interrupt(self) -> None:
        """As Ctrl-C: the second cancel, or one before there is anything to keep."""
        if self._main is not None:
            signal.pthread_kill(self._main, signal.SIGINT)
