"""Orders of the user's, carried out between two queries: pause, skip a step, disable, enable or raise one, cancel,
restart.

Also: OUT/control.jsonl, the file with the user's orders to a running minification, one per line.

The outcome of an order is a `steered` event, in the log before the order acts. A resumed search meets the same
boundaries (it counts its `turn`s) and carries out orders that change the search at the same one, so that it ends as the
uninterrupted one did. Urgent orders also end the queries in flight, which then have no answer and do not count. Must
not search.

For example:

    steering = Steering(Path("small"), log, tell, abort=oracle.abort)
    steering.boundary(engine)   # may raise Skipped, Restarted, Cancelled; returns late while it is paused
"""

from __future__ import annotations

import difflib
import shlex
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..dumps import lines, opening
from ..dumps.atomic import cannot_write
from ..dumps.errors import CannotResumeError, UnknownWordError
from ..dumps.wording import why_not_there
from .agenda import Cancelled, RestartAsked, SkipAsked
from .engine import Engine
from .events import EVENTS_FILE, STEPS, Follow, Restarted, Steered, from_json
from .log import Log, at_work, read
from .starting import again

CONTROL_FILE = "control.jsonl"
ANSWER_LOOK_S = 0.05
LAST = "report"
"""The step in which no order is read: the search is over."""
OF_STEPS = ("disable", "enable", "raise")
"""Orders that name a step."""
WHATS = ("pause", "resume", "skip", *OF_STEPS, "cancel", "restart")


@dataclass(frozen=True)
class Order:
    """One order. `step`: the step that it is about; of `skip`, the step that ran when the order was given. `number`: of
    `restart`."""

    id: str
    what: str
    step: str = ""
    number: int | None = None
    time: float = 0.0

    @classmethod
    def new(cls, what: str, *, step: str = "", number: int | None = None) -> Order:
        """A new order, with an id of its own."""
        return cls(uuid.uuid4().hex, what, step, number, round(time.time(), 3))

    @property
    def words(self) -> str:
        """The order as it is typed after `graphdbg steer OUT`."""
        more = self.step if self.what in OF_STEPS else "" if self.number is None else str(self.number)
        return f"{self.what} {more}".strip()


def known_step(name: str) -> str:
    """The name of a step; raises UsageError, with the likeliest one, where there is none of that name."""
    if name not in STEPS:
        near = difflib.get_close_matches(name, STEPS, n=1)
        fix = f"did you mean {near[0]}?" if near else ""
        raise UnknownWordError(f"there is no step {name!r}", f"the steps are {', '.join(STEPS)}", fix)
    return name


def append(out: Path, order: Order) -> None:
    """Writes one order, with one write; raises EnvironmentLackError where the disk refuses."""
    path = out / CONTROL_FILE
    try:
        opening.refuse_links(out)
        lines.append(path, msgspec.json.encode(order))
    except OSError as error:
        raise cannot_write(path, error) from error


class Orders:
    """Reads orders that were given after this object was made, each once; other lines are left out."""

    def __init__(self, out: Path) -> None:
        self._tail = lines.Tail(out / CONTROL_FILE, at=None)
        self._seen: set[str] = set()

    def new(self) -> list[Order]:
        """The orders that came since the last call."""
        orders: list[Order] = []
        for fields in lines.objects(self._tail.read()):
            with suppress(msgspec.ValidationError):
                order = msgspec.convert(fields, Order)
                if order.what in WHATS and order.id not in self._seen:
                    self._seen.add(order.id)
                    orders.append(order)
        return orders


class NobodyThereError(CannotResumeError):
    """No process is at work in the folder: nobody would carry the order out."""


@dataclass(frozen=True)
class Given:
    """An order that was written. `offset`: the place in OUT/events.jsonl from which its outcome can come."""

    order: Order
    offset: int


def give(out: Path, what: str, *, step: str = "", number: int | None = None) -> Given:
    """Writes one order. Raises UsageError for an unknown order or step, and where nothing is minified in `out`."""
    if what not in WHATS:
        raise UnknownWordError(f"there is no order {what!r}", "", f"the orders are {', '.join(WHATS)}")
    if what in OF_STEPS:
        known_step(step)
    events = out / EVENTS_FILE
    if not events.is_file():
        raise no_minification(out)
    state, record = at_work(out)
    if state in ("dead", "ended"):
        why = "its process has ended" if record is None else f"its process {record.pid} has ended"
        raise NobodyThereError(f"no minification runs in {out}", why, f"go on with: {again(out)}")
    offset, story = events.stat().st_size, read(out)[0]
    if story.done is not None or story.ended or story.step == LAST:
        shown = shlex.join(["graphdbg", "steer", str(out)])
        raise NobodyThereError(f"the search in {out} takes no orders", "it has ended", f"see {shown}")
    order = Order.new(what, step=step or (story.step if what == "skip" else ""), number=number)
    append(out, order)
    return Given(order, offset)


def no_minification(out: Path) -> CannotResumeError:
    """The error for a folder that is not a minification's."""
    why, fix = why_not_there(out, "events.jsonl"), "minify a graph: graphdbg minify RUN/ID -o OUT"
    return CannotResumeError(f"{out} is not the folder of a minification", why, fix)


def outcome(out: Path, given: Given, wait_s: float) -> Steered | None:
    """Waits for the outcome of an order; None where there is none after so many seconds (an order does not end a task
    between two queries)."""
    deadline = time.monotonic() + wait_s
    tail = lines.Tail(out / EVENTS_FILE, given.offset)
    while True:
        written = tail.read()
        if not tail.there:
            return None
        for event in map(from_json, lines.objects(written)):
            if isinstance(event, Steered) and event.id == given.order.id:
                return event
        if time.monotonic() >= deadline or (not written and at_work(out)[0] == "dead"):
            return None
        time.sleep(ANSWER_LOOK_S)


NOTED = ("skip", "disable", "enable", "raise", "restart")
"""Orders that a resumed search carries out again; the others are about the process."""
URGENT = ("pause", "skip", "cancel", "restart")
LOOK_S = 0.2
PAUSE_S = 0.1


class Steering:
    """Reads OUT/control.jsonl. `abort` ends the oracle's queries in flight. `without`: steps disabled from the
    start."""

    def __init__(
        self,
        out: Path,
        log: Log,
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
        self._tell, self.abort = tell, abort
        self._orders = Orders(out)
        self._waiting: deque[Order] = deque()
        self._turn = 0
        self._cancels = 0
        self._abortable = 0
        self._running = ""
        self._main = threading.get_ident() if threading.current_thread() is threading.main_thread() else None
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._noted = [order for order in log.earlier.orders.values() if order.what in NOTED]
        """Orders that earlier processes carried out, and the steps disabled from the start."""
        left_out = [Steered(f"without {step}", "disable", step=step) for step in dict.fromkeys(without)]
        self._noted += [order for order in left_out if order.id not in log.earlier.orders]
        self._noted.sort(key=lambda order: (order.queries, order.turn))
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
            self._answer(order, "" if order.what == "cancel" else "the search is over")

    # -- what the engine calls, in its thread

    def boundary(self, engine: Engine, *, again: bool = False) -> None:
        """Carries out the orders that are due. `again`: a query was aborted, and this is still the boundary before
        it."""
        self._turn += not again
        self._running = engine.step
        while self._noted and self._due(self._noted[0], engine):
            self._carry_out(self._noted.pop(0), engine, noted=True)
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
        """Whether an order of an earlier process may be due before `queries` queries were made: these are then asked
        one after the other."""
        return bool(self._noted) and self._noted[0].queries <= queries

    @contextmanager
    def asking(self) -> Generator[None]:
        """Marks, for the block, that a query is in flight which an urgent order may end."""
        with self._lock:
            self._abortable += 1
        try:
            yield
        finally:
            with self._lock:
                self._abortable -= 1

    # -- carrying out

    def _due(self, noted: Steered, engine: Engine) -> bool:
        if noted.what == "skip" and not engine.step:  # another number of workers meets other boundaries
            return False
        return engine.queries > noted.queries or (engine.queries == noted.queries and self._turn >= noted.turn)

    def _carry_out(self, order: Order | Steered, engine: Engine, *, noted: bool = False) -> None:
        why = self._refusal(order, engine, noted)
        self._answer(order, why, engine.queries)
        if why:
            return
        match order.what:
            case "pause" | "resume":
                self.paused = order.what == "pause"
            case "skip":
                raise SkipAsked
            case "restart":
                number = order.number or 0
                best, size = engine.bests[number], engine.history[number - 1][1:] if number else self.whole
                self._tell(Restarted(engine.queries, best.text() if best else "original", *size, number))
                raise RestartAsked(number)
            case "cancel":
                self.paused = False
                raise Cancelled("cancelled")
            case "disable":
                engine.left_out.add(order.step)
                if engine.step == order.step:
                    raise SkipAsked
            case "enable":
                engine.left_out.discard(order.step)
            case _:
                engine.agenda.promote(order.step)

    def _refusal(self, order: Order | Steered, engine: Engine, noted: bool) -> str:
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

    def _stale(self, order: Order | Steered, running: str) -> str:
        if not running:
            return f"{order.step or 'the step'} has ended already"
        return f"{order.step} has ended already; {running} runs now" if order.step not in ("", running) else ""

    def _answer(self, order: Order | Steered, why: str, queries: int = 0) -> None:
        state = "refused" if why else "applied"
        step = order.step or (self._running if order.what == "skip" else "")
        self._tell(Steered(order.id, order.what, state, why, step, order.number, queries, self._turn))

    # -- looking, also while a query runs

    def _look(self) -> None:
        with self._lock:
            for order in self._orders.new():
                self._waiting.append(order)
                self._cancels += order.what == "cancel"
                at_once = self._cancels > 1 or not self.searching  # before that there is nothing to keep
                if order.what == "cancel" and at_once and self._main is not None:
                    signal.pthread_kill(self._main, signal.SIGINT)  # as Ctrl-C

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            self._look()
            with self._lock:
                if self._abortable and (self.paused or any(self._urgent(order) for order in self._waiting)):
                    self.abort()

    def _urgent(self, order: Order) -> bool:
        if order.what == "skip":
            return not self._stale(order, self._running)
        return order.what in URGENT or (order.what == "disable" and order.step == self._running)
