"""What is being recorded: one Session per recording, its run and process folder, its errors, and its end.

The process folder is made when the first graph comes, so that processes which compile nothing leave no trace; a forked child gets
a folder of its own. Must never raise into the recorded program, except from `record()` for a request that makes no sense.

>>> with record("myrun", inputs="first"):
...     train()
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...dumps.errors import GraphdbgError
from ...dumps.output import say
from ...dumps.schema import FORMAT, InputRecord, RunRecord
from ...dumps.writer import ProcessWriter, RunWriter
from . import configs, summary
from .options import Options, checked, from_environment
from .origin import environment, rank_and_restart, versions

_MAX_NOTES = 50
_OWNER = "_GRAPHDBG_OWNER"
"""Set by the first process that records without a wrapper, to its run: its children join that run and leave the telling to it."""


class Session:
    """One recording in this process. `path` is the run folder."""

    def __init__(self, options: Options, *, join: bool) -> None:
        self.options = options
        self.path = Path(options.run)
        self.join = join
        self.stages = frozenset(options.stages)
        self.compile_seconds = 0.0
        self.recording_seconds = 0.0
        self.notes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.caches_were_on = False
        self.roles: dict[str, list[InputRecord]] = {}
        self._lock = threading.RLock()
        self._writer: ProcessWriter | None = None

    def wants(self, stage: str) -> bool:
        """Whether graphs of that stage are recorded."""
        return not self.stages or stage in self.stages

    def open_run(self) -> RunWriter:
        """Makes the run folder, or joins it. Raises GraphdbgError when it is taken or cannot be written."""
        run = RunWriter.create(self.path, self._record(), join=self.join)
        self.join = True
        return run

    def writer(self) -> ProcessWriter:
        """The process folder, made on first use. Raises GraphdbgError when it cannot be."""
        with self._lock:
            if self._writer is None or not self._writer.owned:
                rank, restart = rank_and_restart()
                self._writer = self.open_run().process(rank=rank, restart=restart)
                told = {"versions": versions(live=True), "config": _config()}
                self._writer.journal.event("note", message=summary.SETTINGS, **told)
                self._tell_missing(self._writer)
            return self._writer

    def _tell_missing(self, writer: ProcessWriter) -> None:
        from .patches import missing_stages

        for stage, name in missing_stages().items():
            if self.wants(stage):
                writer.journal.event("note", message=f"stage {stage} cannot be recorded: this torch has no {name}", missing=stage)

    def _record(self) -> RunRecord:
        return RunRecord(
            format=FORMAT, command=list(sys.orig_argv), versions=versions(live=True), environment=environment(),
            world_size=int(os.environ.get("WORLD_SIZE") or 1), started=time.time(), inputs_policy=self.options.inputs,
            stages=self.options.stages, config=_config(),
        )  # fmt: skip

    def event(self, kind: str, graph: str | None = None, **fields: Any) -> None:
        """Journals an event; a journal that cannot be written is counted, not raised."""
        with self.guarded("journal"):
            self.writer().journal.event(kind, graph, **fields)

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
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the recorded program must not die of its recorder; told at the end
            self._failed(what, error, fields)
        finally:
            self.recording_seconds += time.perf_counter() - start

    def _failed(self, what: str, error: Exception, fields: dict[str, Any]) -> None:
        text = f"{what}: {type(error).__name__}: {error}"
        self.errors[text] += 1
        if self.errors[text] > 1 or what == "journal":
            return
        with contextlib.suppress(GraphdbgError, OSError):
            where = "" if isinstance(error, GraphdbgError) else _innermost(error)
            self.writer().journal.event("note", message=f"not recorded, {text}", error=True, where=where, **fields)

    def after_fork(self) -> None:
        """In a forked child: the parent's folder and lock are left alone, a graph compiled here gets a folder of its own."""
        self._lock = threading.RLock()
        self._writer = None
        self.compile_seconds = self.recording_seconds = 0.0
        self.notes.clear()
        self.errors.clear()

    def close(self) -> None:
        """Journals what the recording cost and closes the journal."""
        writer, self._writer = self._writer, None
        if writer is None or not writer.owned:
            return
        with contextlib.suppress(GraphdbgError, OSError):
            writer.journal.event(
                "note", message=summary.COST, compile_seconds=round(self.compile_seconds, 3),
                recording_seconds=round(self.recording_seconds, 3), keep_cache=self.options.keep_cache,
                caches_were_on=self.caches_were_on,
            )  # fmt: skip
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


def _begin(session: Session) -> None:
    from . import patches, tracebacks

    _sessions.append(session)
    patches.install()
    tracebacks.install()


def _end(session: Session) -> None:
    from . import patches

    with contextlib.suppress(ValueError):
        _sessions.remove(session)
    if not _sessions:
        patches.uninstall()
    session.close()


@contextmanager
def record(
    run: str | os.PathLike[str], *, inputs: str = "index", stages: list[str] | tuple[str, ...] = (), keep_cache: bool = False
) -> Iterator[Session]:
    """Records every graph that is compiled inside the block into the new run folder `run`.

    Raises UsageError when `run` exists or an option is unknown. Told at the end on stderr: counts, and the commands to try next.
    """
    session = Session(checked(Options(run=os.fspath(run), inputs=inputs, stages=list(stages), keep_cache=keep_cache)), join=False)
    session.open_run()
    _begin(session)
    try:
        yield session
    finally:
        _end(session)
        _tell(session, in_block=True)


def start_from_environment(run: str) -> Session:
    """Records this process as GRAPHDBG and GRAPHDBG_OPTIONS ask, until it ends. Called while torch is still being imported."""
    options = from_environment(run)
    owner = not options.wrapped and _OWNER not in os.environ
    join = options.wrapped or not owner or rank_and_restart()[0] is not None
    if not options.wrapped:
        options.run = _owned_run(options.run, join)
    session = Session(options, join=join)
    if options.seen:
        summary.leave_trace(options.seen)
    _begin(session)
    pid = os.getpid()

    def at_exit() -> None:
        _end(session)
        if owner and os.getpid() == pid:
            _tell(session, in_block=False)

    atexit.register(at_exit)
    return session


def _owned_run(run: str, join: bool) -> str:
    """The path to record into without a wrapper: a taken name gets `-2`, ...; children and ranks of one job share it."""
    if _OWNER in os.environ:
        return os.environ[_OWNER]
    chosen, count = run, 1
    while not join and _taken(Path(chosen)):
        count += 1
        chosen = f"{run}-{count}"
    if chosen != run:
        say(f"graphdbg: {run} exists and runs are never overwritten; recording into {chosen}")
    os.environ[_OWNER] = chosen
    return chosen


def _taken(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


def _tell(session: Session, *, in_block: bool) -> None:
    try:
        for line in summary.lines(session.path, in_block=in_block, errors=session.errors):
            say(line)
    except (GraphdbgError, OSError) as error:
        say(f"graphdbg: {error}")


def _config() -> dict[str, dict[str, Any]]:
    return {
        room: {name: configs.encoded(value) for name, value in settings.items()} for room, settings in configs.changed().items()
    }


def _innermost(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
