"""The state of a recording: one Session per recording, its process folder, its errors, and the decorator through which
torch's functions reach it.

The process folder is made when the first graph comes, so that processes which compile nothing leave no trace; a forked
child gets a folder of its own. Never raises into the recorded program.

>>> @hook
... def function_of_torch(session, original, *args):
...     return original(*args)
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...dumps.errors import CannotWriteError, GraphdbgError
from ...dumps.journal import STATES
from ...dumps.output import say
from ...dumps.private_names import Row
from ...dumps.schema import GraphRecord, InputRecord
from ...dumps.writer import LeftOutError, ProcessWriter, RunWriter
from ..live.steps import count
from ..live.torch_state import encoded_settings
from ..torch_private.replacing import Replaced
from ..torch_private.unseen import Function, seen, unseen
from . import leaving, origin, summary
from .budget import Budget
from .options import Options

if TYPE_CHECKING:
    from .backward_hooks import Backwards
    from .hold import Hold, Holder
    from .hooks import Capture

FIRST_S, FACTOR = 5.0, 1.5
"""Seconds after which a compile in progress is first inspected, and the factor by which each next delay grows."""
MOST_FRAMES = 40
_PASSES = ("/torch/_inductor/fx_passes/", "/torch/_inductor/pattern_matcher")
_OURS = __name__.partition(".")[0]


class Stacks:
    """Watches the graphs that are being compiled in one process, by thread. `note` journals a stack of the innermost
    graph when its compile takes long."""

    def __init__(self, note: Callable[..., object]) -> None:
        self._note = note
        self._lock = threading.Lock()
        self._open: dict[str, tuple[int, float]] = {}
        self._begun = threading.Event()
        self._thread: threading.Thread | None = None

    def event(self, kind: str, graph: str) -> None:
        """Notes an event of a graph: whether it is being compiled."""
        with self._lock:
            if kind != "compiling":
                self._open.pop(graph, None)
                return
            self._open[graph] = threading.get_ident(), time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="graphdbg-in-flight", daemon=True)
                self._thread.start()
        self._begun.set()

    def _watch(self) -> None:
        due: dict[str, float] = {}
        while True:
            with self._lock:
                waiting = dict(self._open)
                if not waiting:
                    self._begun.clear()
            if not waiting:
                self._begun.wait()
                continue
            now = time.monotonic()
            innermost = {thread: graph for graph, (thread, _) in waiting.items()}
            due = {graph: due.get(graph, waiting[graph][1] + FIRST_S) for graph in innermost.values()}
            for thread, graph in innermost.items():
                if now >= due[graph]:
                    since = waiting[graph][1]
                    due[graph] = since + FACTOR * (now - since)
                    with contextlib.suppress(Exception):  # at exit, or the graph has just finished
                        self._look(thread, graph, now - since)
            time.sleep(min(1.0, max(0.05, min(due.values()) - now)))

    def _look(self, thread: int, graph: str, seconds: float) -> None:
        frame = sys._current_frames().get(thread)  # documented, meant for debuggers
        frames = [at_frame for at_frame, _ in traceback.walk_stack(frame)] if frame is not None else []
        shown = [at_frame for at_frame in frames if str(at_frame.f_globals.get("__name__")).partition(".")[0] != _OURS]
        if shown:
            in_pass = (at_frame for at_frame in shown if any(part in at_frame.f_code.co_filename for part in _PASSES))
            inside = next(in_pass, shown[0])
            at = _line_of(shown[0]) if inside is shown[0] else f"{inside.f_code.co_name} at {_line_of(shown[0])}"
            stack = [_line_of(at_frame) for at_frame in reversed(shown[:MOST_FRAMES])]
            self._note(graph, at=at, after=round(seconds, 1), stack=stack)


def _line_of(frame: FrameType) -> str:
    """A frame as "fuse_nodes, torch/_inductor/scheduler.py:2345"; files without the folders before their package."""
    file = frame.f_code.co_filename.replace("\\", "/")
    short = file.rpartition("-packages/")[2] or file
    return f"{frame.f_code.co_name}, {short}:{frame.f_lineno}"


_MAX_NOTES = 50
_TRY_AGAIN_S = 10.0


class Session:
    """One recording in this process. `path`: the run folder; `join`: whether it may exist already; `job`: the job for
    which it creates or joins a run, under `wanted` or the next name where another job has that."""

    def __init__(self, options: Options, *, join: bool, job: str | None = None, wanted: str | None = None) -> None:
        self.options = options
        self.path = Path(options.run)
        self.join = join
        self.job = job
        self.wanted = Path(wanted or options.run)
        self.interrupted = self.caches_were_on = False
        self.versions: dict[str, str] = {}
        self.roles: dict[str, list[InputRecord]] = {}
        self.cut: set[str] = set()
        """Names of compiles whose Dynamo graph was compiled in parts."""
        self.outputs: dict[str, list[tuple[str, str]]] = {}
        self.functions: dict[str, str] = {}
        self.captures: dict[str, Capture] = {}
        """File name of the generated code -> a backward that the program's compiled autograd captured."""
        self.backwards: Backwards | None = None
        self.watch: Callable[[Session, Sequence[Any], Any], Any] | None = None
        """Wraps what Dynamo's backend returned, in place of `observe`."""
        self._refused: tuple[float, GraphdbgError] | None = None
        self.afresh()

    def afresh(self) -> None:
        """Initialises the state of this process. In a forked child the parent's folder and lock stay untouched, and
        graphs go to a new folder."""
        self._lock = threading.RLock()
        self._writer: ProcessWriter | None = None
        self.stacks = Stacks(partial(self.event, "note"))
        self.holder: Holder | None = None
        self.budget = Budget(self.options, self._left_out)
        self.waiting = Waiting(self.options.after_step)
        self.models: dict[str, str] = {}
        """Model name -> the compile name of its observed graphs."""
        self.compile_seconds = self.recording_seconds = 0.0
        self.notes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.unreported: list[str] = []
        """What was not recorded, where no journal or other file says so."""

    def wants(self, stage: str) -> bool:
        """Whether graphs of that stage are recorded."""
        return not self.options.stages or stage in self.options.stages

    def open_run(self) -> RunWriter:
        """Creates the run folder, or joins it. Raises GraphdbgError when it is taken or cannot be written."""
        settings, job = encoded_settings(), self.job or ""
        record = origin.run_record(self.options, sys.orig_argv, config=settings, job=job)
        if self.job is not None and not self.join:
            run = origin.open_run(self.wanted, self.path, record)
            if run.path != self.path:
                say(f"graphdbg: {self.path} was taken meanwhile; recording into {run.path}")
            if os.environ.get(origin.OWNER) == str(self.path):  # else the run is this process's alone
                os.environ[origin.OWNER] = str(run.path)
            self.path = run.path
        else:
            run = RunWriter.create(self.path, record, join=self.join, ours=True)
        self.join = True
        return run

    def writer(self) -> ProcessWriter:
        """The process folder, made on first use. Raises GraphdbgError when it cannot be, or was deleted."""
        with self._lock:
            if self._writer is None or not self._writer.owned:
                self._writer = self._opened()
            elif not self._writer.path.is_dir():
                raise CannotWriteError(f"cannot write {self._writer.path}", "the folder was deleted")
            return self._writer

    def _opened(self) -> ProcessWriter:
        if self._refused is not None and time.monotonic() - self._refused[0] < _TRY_AGAIN_S:
            raise self._refused[1].with_traceback(None)
        try:
            rank, restart = origin.rank_and_restart()
            writer = self.open_run().process(rank=rank, restart=restart)
            self.versions = origin.versions()
            facts = {"versions": self.versions, "config": encoded_settings(), "seed": torch_seed()}
            writer.journal.event("note", message=summary.SETTINGS, **facts)
            lost = {stage: hook.whole() for hook in lacking.values() for stage in hook.stages if self.wants(stage)}
            for stage, name in lost.items():
                said = f"stage {stage} cannot be recorded: this torch has no {name}"
                writer.journal.event("note", message=said, missing=stage)
            self.budget.attach(writer)
        except GraphdbgError as error:
            self._refused = time.monotonic(), error
            raise
        if self.options.seen:
            with contextlib.suppress(OSError):
                summary.leave_trace(self.options.seen, folder=str(writer.path.absolute()))
        leaving.close_with_child(self.uncaught, self.close)
        return writer

    def event(self, kind: str, graph: str | None = None, **fields: Any) -> None:
        """Journals an event; a journal that cannot be written is counted, not raised."""
        if graph is not None and kind in STATES:
            self.stacks.event(kind, graph)
        if graph is not None and self.waiting.postpone(graph, lambda: self.event(kind, graph, **fields)):
            return
        if graph is not None and not self.budget.event(kind, graph):
            return
        with self.guarded("journal"):
            self.writer().journal.event(kind, graph, **fields)

    def refuses(self, graph: str) -> bool:
        """Whether a graph is not recorded at all; journals that."""
        function = self.functions.get(graph.partition("/")[0], "")
        reason = self.budget.refusal(graph, function)
        if reason is not None:
            self._left_out(graph, reason)
        return reason is not None

    def waits(self, graph: str, save: Callable[[], object]) -> bool:
        """Whether a graph waits for `--after-step`: `save` is then called when the graph runs after that step; until
        then it counts as left out."""
        if not self.waiting.begin(graph):
            return False
        self._left_out(graph, f"--after-step {self.options.after_step}")
        return self.waiting.postpone(graph, save)

    def release(self, graph: str) -> None:
        """Saves the waiting graphs that belong to the compile of `graph`."""
        with self.guarded(f"what waited with {graph}"):
            self.waiting.release(graph)

    def hold(self, graphs: Sequence[tuple[str, str]], record: GraphRecord) -> Hold | None:
        """Returns the Hold for a callable compiled from `graphs` (id, stage); None when no inputs are held."""
        if self.options.inputs != "last" and not self.options.when:
            return None
        if self.holder is None or self.holder.pid != os.getpid():
            from .hold import Holder

            self.holder = Holder(self)
        return self.holder.hold(graphs, record)

    def _left_out(self, graph: str, reason: str) -> None:
        self.writer().journal.event("left_out", graph, reason=reason)

    def note(self, message: str, **fields: Any) -> None:
        """Journals a sentence once, however often it happens."""
        self.notes[message] += 1
        if self.notes[message] == 1 and len(self.notes) <= _MAX_NOTES:
            self.event("note", message=message, **fields)

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Guards a part of the recorder's work: counts its time, and counts and journals its errors without raising
        them."""
        start, before = time.perf_counter(), self.recording_seconds
        collecting = gc.isenabled()
        # the many objects of a graph would trigger collections over the whole program, slower than the recording
        gc.disable()
        try:
            yield
        except LeftOutError:
            pass  # already counted by the budget
        except Exception as error:  # noqa: BLE001 - the recorded program must not die of its recorder; reported at the end
            self._failed(what, error)
        finally:
            if collecting:
                gc.enable()
            self.recording_seconds = before + time.perf_counter() - start  # includes nested parts

    def _failed(self, what: str, error: Exception) -> None:
        text = f"{what}: {type(error).__name__}: {error}"
        self.errors[text] += 1
        if self.errors[text] > 1:
            return
        try:
            where = "" if isinstance(error, GraphdbgError) else _innermost(error)
            self.writer().journal.event("note", message=f"not recorded, {text}", error=True, where=where)
        except (GraphdbgError, OSError):
            self._report_outside(text)

    def _report_outside(self, text: str) -> None:
        """Reports what cannot be journalled: to `graphdbg dump` through its `seen` file, else on stderr when this
        process ends."""
        with contextlib.suppress(OSError):
            if self.options.seen:
                summary.leave_trace(self.options.seen, lost=text)
                return
        if len(self.unreported) < _MAX_NOTES:
            self.unreported.append(text)

    def uncaught(self, error: BaseException) -> None:
        """Journals the exception that ends the program, if this process recorded anything."""
        self.interrupted = isinstance(error, KeyboardInterrupt)
        if self._writer is not None and self._writer.owned:
            self.event("note", message=leaving.sentence(error), uncaught=True)
            if self.holder is not None:
                self.holder.uncaught(error)

    def close(self, *, programs: bool = False) -> None:
        """Journals the recording's cost and closes the journal. `programs`: write graph.py of each graph, as no outer
        process will.

        Not after Ctrl-C: Python exits with 130 only if no module that compiles code (as dataclasses do) is imported
        until then.
        """
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.close()
        writer, self._writer = self._writer, None
        if writer is None or not writer.owned:
            return
        with contextlib.suppress(GraphdbgError, OSError):
            writer.journal.event(
                "note",
                message=summary.COST,
                compile_seconds=round(self.compile_seconds, 3),
                recording_seconds=round(self.recording_seconds, 3),
                keep_cache=self.options.keep_cache,
                caches_were_on=self.caches_were_on,
            )
        with contextlib.suppress(GraphdbgError, OSError):
            if programs and not self.interrupted:
                writer.write_programs()
            writer.close()


sessions: list[Session] = []
"""Those of this process, the innermost last."""


def _after_fork() -> None:
    for session in sessions:
        session.afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def active() -> Session | None:
    """The session that graphs belong to: the innermost one, or None."""
    return sessions[-1] if sessions else None


def hook(
    body: Callable[..., Any], updated: Sequence[str] = functools.WRAPPER_UPDATES
) -> Callable[[Function], Function]:
    """Makes a wrapper factory for a function of torch: while a session is active it calls `body(session, original,
    *args, **kwargs)`, else the original. `updated`: the dictionaries to copy from the original. Dynamo traces through
    it as if it were the original."""

    def wrapping(original: Function) -> Function:
        theirs = functools.update_wrapper(functools.partial(seen, original), original, updated=())

        @functools.wraps(original, updated=updated)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            session = active()
            return theirs(*args, **kwargs) if session is None else body(session, theirs, *args, **kwargs)

        return unseen(wrapper, updated)

    return wrapping


_MARK = "_graphdbg_original"

installed = Replaced()
lacking: dict[str, Row] = {}
"""Places of hooks that this torch does not have, among imported modules."""


def wrap(owner: Any, name: str, wrapper: Callable[[Function], Function]) -> Function:
    """Wraps a function of torch until the last session ends, unless it is wrapped already; returns the wrapper in
    place."""
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return original
    replacement = wrapper(original)
    setattr(replacement, _MARK, original)
    installed.put(owner, name, replacement)
    return replacement


def torch_seed() -> int | None:
    """The seed of this process, which may differ between ranks; None before torch is imported."""
    torch = sys.modules.get("torch")
    return torch.initial_seed() if torch is not None and hasattr(torch, "initial_seed") else None


def _innermost(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


class Waiting:
    """Callable[[], object]s that wait for a step, in order, by compile name; with `after_step` 0 none waits.

    `--after-step N`: a graph captured before the Nth step waits in memory, and is written only if it runs after that
    step. A model that is compiled once, in its first step, is thus recorded whole with the inputs of a step that
    matters, while compiles that belong to the beginning of a long run leave nothing. A graph that never runs again
    counts as left out.
    """

    def __init__(self, after_step: int) -> None:
        self.after_step = after_step
        self._actions: dict[str, list[Callable[[], object]]] = {}
        self._lock = threading.RLock()

    @property
    def now(self) -> bool:
        """Whether the wanted step is still to come."""
        return self.after_step > 0 and count() < self.after_step

    def begin(self, local: str) -> bool:
        """Whether the graphs of a graph's compile wait; from then on `postpone` keeps actions for that compile."""
        name = local.partition("/")[0]
        if not self.now and name not in self._actions:
            return False
        with self._lock:
            self._actions.setdefault(name, [])
        return True

    def postpone(self, local: str, action: Callable[[], object]) -> bool:
        """Keeps an action for later, if the graph's compile waits; returns whether it does."""
        with self._lock:
            actions = self._actions.get(local.partition("/")[0])
            if actions is None:
                return False
            actions.append(action)
            return True

    def release(self, local: str) -> None:
        """Runs the waiting actions of a graph's compile, in order."""
        with self._lock:
            actions = self._actions.pop(local.partition("/")[0], [])
        for action in actions:
            action()
