"""What is being recorded: one Session per recording, its run and process folder, its errors, and its end.

The process folder is made when the first graph comes, so that processes which compile nothing leave no trace; a forked child gets
a folder of its own. Must never raise into the recorded program, except from `record()` for a request that makes no sense.

>>> with record("myrun", inputs="first"):
...     train()
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dumps.errors import EnvironmentLackError, GraphdbgError
from ...dumps.output import say
from ...dumps.schema import FORMAT, InputRecord, RunRecord
from ...dumps.writer import LeftOutError, ProcessWriter, RunWriter
from ..torch_private import importing
from . import configs, leaving, naming, steps, summary
from .budget import Budget
from .options import Options, checked, parts
from .origin import environment, rank_and_restart, versions
from .waiting import Waiting

if TYPE_CHECKING:
    from .holding import Holder

_MAX_NOTES = 50
_TRY_AGAIN_S = 10.0


class Session:
    """One recording in this process. `path` is the run folder; `join` adds to what is there. A `job` makes or joins its own run,
    and goes on to the next of the names made from `wanted` when another's is there."""

    def __init__(self, options: Options, *, join: bool, job: str | None = None, wanted: str | None = None) -> None:
        self.options = options
        self.path = Path(options.run)
        self.join = join
        self.job = job
        self.wanted = Path(wanted or options.run)
        self.stages = frozenset(options.stages)
        self.compile_seconds = 0.0
        self.recording_seconds = 0.0
        self.notes: Counter[str] = Counter()
        self.interrupted = False
        self.errors: Counter[str] = Counter()
        self.caches_were_on = False
        self.roles: dict[str, list[InputRecord]] = {}
        self._lock = threading.RLock()
        self._writer: ProcessWriter | None = None
        self._refused: tuple[float, GraphdbgError] | None = None
        self._untold: list[str] = []
        self.holder: Holder | None = None
        self.functions: dict[str, str] = {}
        self.budget = Budget(options, self._left_out)
        self.waiting = Waiting(options.after_step)

    def wants(self, stage: str) -> bool:
        """Whether graphs of that stage are recorded."""
        return not self.stages or stage in self.stages

    def open_run(self) -> RunWriter:
        """Makes the run folder, or joins it. Raises GraphdbgError when it is taken or cannot be written."""
        if self.job is not None and not self.join:
            run = naming.open_run(self.wanted, self.path, self._record())
            if run.path != self.path:
                say(f"graphdbg: {self.path} was taken meanwhile; recording into {run.path}")
            if os.environ.get(naming.OWNER) == str(self.path):  # else a run of this process alone, not its children's
                os.environ[naming.OWNER] = str(run.path)
            self.path = run.path
        else:
            run = RunWriter.create(self.path, self._record(), join=self.join)
        self.join = True
        return run

    def writer(self) -> ProcessWriter:
        """The process folder, made on first use. Raises GraphdbgError when it cannot be, or was deleted."""
        with self._lock:
            if self._writer is None or not self._writer.owned:
                self._writer = self._opened()
            elif not self._writer.path.is_dir():
                raise EnvironmentLackError(f"cannot write {self._writer.path}", "the folder was deleted meanwhile")
            return self._writer

    def _opened(self) -> ProcessWriter:
        if self._refused is not None and time.monotonic() - self._refused[0] < _TRY_AGAIN_S:
            raise self._refused[1].with_traceback(None)
        try:
            rank, restart = rank_and_restart()
            writer = self.open_run().process(rank=rank, restart=restart)
            told = {"versions": versions(live=True), "config": _config(), "seed": torch_seed()}
            writer.journal.event("note", message=summary.SETTINGS, **told)
            self._tell_missing(writer)
            self.budget.attach(writer)
        except GraphdbgError as error:
            self._refused = time.monotonic(), error
            raise
        if self.options.seen:
            with contextlib.suppress(OSError):
                summary.leave_trace(self.options.seen, folder=str(writer.path.absolute()))
        leaving.close_with_child(self.uncaught, self.close)
        return writer

    def _tell_missing(self, writer: ProcessWriter) -> None:
        from .patches import missing_stages

        for stage, name in missing_stages().items():
            if self.wants(stage):
                writer.journal.event("note", message=f"stage {stage} cannot be recorded: this torch has no {name}", missing=stage)

    def _record(self) -> RunRecord:
        return RunRecord(
            format=FORMAT, command=list(sys.orig_argv), versions=versions(live=True), environment=environment(),
            world_size=int(os.environ.get("WORLD_SIZE") or 1), started=time.time(), inputs_policy=self.options.inputs,
            stages=self.options.stages, config=_config(), job=self.job or "",
        )  # fmt: skip

    def event(self, kind: str, graph: str | None = None, **fields: Any) -> None:
        """Journals an event; a journal that cannot be written is counted, not raised."""
        if graph is not None and self.waiting.postpone(graph, lambda: self.event(kind, graph, **fields)):
            return
        if graph is not None and not self.budget.event(kind, graph):
            return
        with self.guarded("journal"):
            self.writer().journal.event(kind, graph, **fields)

    def refuses(self, graph: str) -> bool:
        """Whether a graph is not to be recorded at all, which is journalled."""
        reason = self.budget.refusal(graph, self.functions.get(graph.partition("/")[0], ""))
        if reason is not None:
            self._left_out(graph, reason)
        return reason is not None

    def wait_for(self, graph: str, save: Callable[[], object]) -> None:
        """Saves a graph when it runs after the wanted step; until then it counts as left out."""
        self._left_out(graph, f"--after-step {self.options.after_step}")
        self.waiting.postpone(graph, save)

    def release(self, graph: str) -> None:
        """Writes what waited: a graph, and all others of its compile."""
        with self.guarded(f"what waited with {graph}"):
            self.waiting.release(graph)

    def _left_out(self, graph: str, reason: str) -> None:
        self.writer().journal.event("left_out", graph, reason=reason)

    def note(self, message: str, **fields: Any) -> None:
        """Journals a sentence once, however often it happens."""
        self.notes[message] += 1
        if self.notes[message] == 1 and len(self.notes) <= _MAX_NOTES:
            self.event("note", message=message, **fields)

    def hidden(self, name: str, what: str, by: str) -> None:
        """Journals that a cache answered instead of the compiler."""
        self.note(f"{name}: {what} not recorded, hidden by {by}", hidden=True)

    @contextmanager
    def guarded(self, what: str, **fields: Any) -> Iterator[None]:
        """Runs a part of the recorder: its time is counted, its errors are counted and journalled, and go no further."""
        start = time.perf_counter()
        collecting = gc.isenabled()
        gc.disable()  # the objects of one graph would set off collections of the whole program's, which take longer than we do
        try:
            yield
        except LeftOutError:
            pass  # the budget has counted it
        except Exception as error:  # noqa: BLE001 - the recorded program must not die of its recorder; told at the end
            self._failed(what, error, fields)
        finally:
            if collecting:
                gc.enable()
            self.recording_seconds += time.perf_counter() - start

    def _failed(self, what: str, error: Exception, fields: dict[str, Any]) -> None:
        text = f"{what}: {type(error).__name__}: {error}"
        self.errors[text] += 1
        if self.errors[text] > 1:
            return
        try:
            where = "" if isinstance(error, GraphdbgError) else _innermost(error)
            self.writer().journal.event("note", message=f"not recorded, {text}", error=True, where=where, **fields)
        except (GraphdbgError, OSError):
            self._tell_outside(text)

    def _tell_outside(self, text: str) -> None:
        """What the journal cannot take is told to `graphdbg dump` through its own file, else by this process at its end."""
        try:
            if self.options.seen:
                summary.leave_trace(self.options.seen, lost=text)
                return
        except OSError:
            pass
        if len(self._untold) < _MAX_NOTES:
            self._untold.append(text)

    def untold(self) -> list[str]:
        """What was not recorded and stands nowhere else."""
        untold, self._untold = self._untold, []
        return untold

    def uncaught(self, error: BaseException) -> None:
        """Journals the exception that ends the program, if this process recorded anything."""
        self.interrupted = isinstance(error, KeyboardInterrupt)
        if self._writer is not None and self._writer.owned:
            self.event("note", message=leaving.sentence(error), uncaught=True)
            if self.holder is not None:
                self.holder.uncaught(error)

    def after_fork(self) -> None:
        """In a forked child: the parent's folder and lock are left alone, a graph compiled here gets a folder of its own."""
        self._lock = threading.RLock()
        self._writer = None
        self.holder = None
        self.budget = Budget(self.options, self._left_out)
        self.waiting = Waiting(self.options.after_step)
        self._untold.clear()
        self.compile_seconds = self.recording_seconds = 0.0
        self.notes.clear()
        self.errors.clear()

    def close(self, *, programs: bool = False) -> None:
        """Journals what the recording cost and closes the journal. `programs`: nobody outside will write graph.py of its graphs.

        Not after Ctrl-C: Python exits with 130 then only if nothing is imported meanwhile that compiles code (as dataclasses do).
        """
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.close()
        writer, self._writer = self._writer, None
        if writer is None or not writer.owned:
            return
        with contextlib.suppress(GraphdbgError, OSError):
            writer.journal.event(
                "note", message=summary.COST, compile_seconds=round(self.compile_seconds, 3),
                recording_seconds=round(self.recording_seconds, 3), keep_cache=self.options.keep_cache,
                caches_were_on=self.caches_were_on,
            )  # fmt: skip
        with contextlib.suppress(GraphdbgError, OSError):
            if programs and not self.interrupted:
                writer.write_programs()
            writer.close()


_sessions: list[Session] = []


def _after_fork() -> None:
    for session in _sessions:
        session.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def active() -> Session | None:
    """The session that graphs belong to: the innermost one, or None."""
    return _sessions[-1] if _sessions else None


def begin(session: Session) -> None:
    """Records into the session from here on."""
    from . import patches, tracebacks

    _sessions.append(session)
    patches.install()
    if session.options.compiled_autograd:
        from . import backward_hooks

        backward_hooks.watch(session)
    if session.options.after_step:
        importing.watch({"torch._dynamo": lambda _: _count_steps(session)})
    tracebacks.install(_uncaught)


def _count_steps(session: Session) -> None:
    with session.guarded("counting steps"):
        steps.watch()


def _uncaught(error: BaseException) -> None:
    for session in _sessions:
        session.uncaught(error)


def end(session: Session, *, programs: bool = True) -> None:
    """Ends a recording; with the last one torch is as it was. `programs`: see `Session.close`."""
    from . import patches

    if session.options.compiled_autograd:
        from . import backward_hooks

        backward_hooks.stop(session)
    with contextlib.suppress(ValueError):
        _sessions.remove(session)
    if not _sessions:
        patches.uninstall()
    session.close(programs=programs)


@contextmanager
def record(
    run: str | os.PathLike[str], *, inputs: str = "index", when: str = "", stages: list[str] | tuple[str, ...] = (),
    keep_cache: bool = False, max_disk: int = 0, keep: int = 0, only: str = "", after_step: int = 0,
    compiled_autograd: bool = False,
) -> Iterator[Session]:  # fmt: skip
    """Records every graph that is compiled inside the block into the new run folder `run`.

    Raises UsageError when `run` exists or an option is unknown. Told at the end on stderr: counts, and the commands to try next.
    """
    options = Options(
        run=os.fspath(run), inputs=inputs, when=parts(when), stages=list(stages), keep_cache=keep_cache, max_disk=max_disk,
        keep=keep, only=only, after_step=after_step, compiled_autograd=compiled_autograd,
    )  # fmt: skip
    session = Session(checked(options), join=False)
    session.open_run()
    begin(session)
    try:
        yield session
    except Exception as error:
        if session.holder is not None:
            session.holder.uncaught(error)
        raise
    finally:
        end(session)
        tell(session, in_block=True)


def tell(session: Session, *, in_block: bool) -> None:
    """The closing words, from what is on disk."""
    try:
        for line in summary.lines(session.path, in_block=in_block, errors=session.errors, made=session.join):
            say(line)
    except (GraphdbgError, OSError) as error:
        say(f"graphdbg: {error}")


def torch_seed() -> int | None:
    """The seed of this process, which ranks may have each their own of; None before torch is there."""
    torch = sys.modules.get("torch")
    return torch.initial_seed() if torch is not None and hasattr(torch, "initial_seed") else None


def _config() -> dict[str, dict[str, Any]]:
    return {
        room: {name: configs.encoded(value) for name, value in settings.items()} for room, settings in configs.changed().items()
    }


def _innermost(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
