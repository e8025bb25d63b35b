"""OUT/events.jsonl, the one log of a minification: a line per event; a query whose answer is in it is never asked
again.

A line that a process needs to resume (`events.KEPT`) is on the disk before the search does anything else. The other
lines show progress: where the disk refuses them, one sentence says so, and the search goes on. Resuming is a replay:
the search starts over, and takes each answer that the log has from the log. The file is only ever appended to. Must not
search or judge.

>>> Path("small-log").mkdir()
>>> log = Log(Path("small-log"))
>>> log.begin({"graph": "c0ffee", "torch": "2.13.0"})
>>> log.answer("0-2", 0, lambda: Answer(Ruling.SAME, nodes=5))[1]
False
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any

import msgspec
from msgspec.structs import replace

from ..dumps import opening
from ..dumps.atomic import cannot_write, write_file
from ..dumps.errors import CannotResumeError, ExistsAlreadyError, GraphdbgError, InUseError, UsageError
from ..dumps.lines import LineWriter, decoded
from ..dumps.opening import refuse_links
from ..dumps.process import FILE as PROCESS_FILE
from ..dumps.process import Liveness, ProcessRecord, describe, liveness
from ..dumps.reading import read_record
from ..dumps.trust import MARK
from ..dumps.wording import counted, why_not_there
from .events import EVENTS_FILE, KEPT, Answered, Conditions, Ended, Happening, Said, Started
from .results import LIVE, WORK
from .search.problem import Answer, Ruling
from .story import Story

OTHER_NAME = "journal.jsonl"
"""The same file once more, where the file system has hard links. In a folder of an earlier graphdbg it is a file of
its own with the answers."""
FORMAT = 2


class Log:
    """Appends the events of one process, and knows the answers of earlier ones. Safe from several threads.

    `complain` takes sentences about what is wrong with the file. The file is made when the first line comes.
    """

    def __init__(self, out: Path, complain: Callable[[str], None] = lambda text: None) -> None:
        self.path = out / EVENTS_FILE
        self.story = Story(out=str(out))
        """The story of this process so far."""
        self.earlier = Story(out=str(out))
        """The story of earlier processes, once the file is open."""
        self.damage = 0
        """How many lines of earlier processes cannot be read."""
        self._life = 0
        self._complain = complain
        self._lines: LineWriter | None = None
        self._closed = self._broken = False
        self._lock = RLock()

    def begin(self, header: Mapping[str, Any], about: Mapping[str, Any] | None = None, *, resume: bool = False) -> None:
        """Writes what the answers depend on (`header`), and what else is worth knowing in order to go on (`about`).

        With `resume` reads the answers of earlier processes. Raises UsageError where these depend on something else,
        where there are none, and without `resume` where there are some.
        """
        whole = {"format": FORMAT, **header}
        with self._lock:
            self._opened(True)
        before = self.earlier.conditions
        if before is None:
            if resume:
                raise nothing_to_resume(self.path.parent)
            self.tell(Conditions(whole, dict(about or {})))
        elif not resume:
            fix = "choose another folder with -o, or add --resume"
            raise CannotResumeError(f"{self.path} exists", "it is the log of another minification", fix)
        else:
            self._compare(before.header, whole)
            if self.damage:
                what = f"{counted(self.damage, 'line')} of {self.path} cannot be read"
                self._complain(f"{what}: what it answered, if anything, is asked again")
        with suppress(OSError):  # there already, or no such thing on this file system
            os.link(self.path, self.path.with_name(OTHER_NAME))

    def _compare(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        now = json.loads(json.dumps(now))
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                why = f"{key} was {before.get(key)!r} and is now {now.get(key)!r}"
                fix = "resume with the same settings and versions, or start again with another -o"
                raise CannotResumeError(f"cannot resume from {self.path}", why, fix)

    # -- answers

    @property
    def known(self) -> int:
        """How many answers of earlier processes there are."""
        return len(self.earlier.answers)

    def recall(self, case: str, run: int) -> Answer | None:
        """The answer of an earlier process to this very query, or None."""
        return self.earlier.answers.get((case, run))

    def answer(self, case: str, run: int, ask: Callable[[], Answer]) -> tuple[Answer, bool]:
        """The answer to a query, and whether the log had it. A new answer, unless it is INFRA, is on the disk before
        this returns."""
        known = self.recall(case, run)
        answer = known or ask()
        if known is None and answer.verdict is not Ruling.INFRA:
            self.tell(Answered(run, case=case, **answer.to_json()))
        return answer, known is not None

    # -- writing

    def tell(self, event: Happening) -> None:
        """Writes one event. Raises EnvironmentLackError where one of `KEPT` cannot be written."""
        with self._lock:
            kept = isinstance(event, KEPT)
            self._opened(kept)
            self._life += isinstance(event, Started)
            event = replace(event, time=round(time.time(), 3), life=self._life)
            if not isinstance(event, Answered):
                self.story.hear(event)
            self._write(event.to_json(), kept=kept)

    def say(self, text: str) -> None:
        """Writes a sentence for those who look on."""
        self.tell(Said(text))

    def write(self, line: dict[str, Any]) -> None:
        """Writes a line that is no event of the search, such as `done`."""
        with self._lock:
            self._write(line, kept=False)

    def close(self) -> None:
        """Closes the file; later events are dropped."""
        with self._lock:
            if self._lines is not None:
                self._lines.close()
            self._lines, self._closed = None, True

    def _opened(self, kept: bool) -> LineWriter | None:
        """The writer of the file, opened at the first call; None where it cannot be opened or is closed. Opening reads
        what earlier processes did."""
        if self._lines is None and not self._closed and (kept or not self._broken):
            try:
                lines = LineWriter(self.path)
                if self.path.stat().st_size:  # of a device it is 0, whatever can be read
                    self.earlier, self.damage = read(self.path.parent)
                    self._life += self.earlier.life
                self._lines = lines
            except OSError as error:
                self._fail(error, kept)
        return self._lines

    def _write(self, line: dict[str, Any], *, kept: bool) -> None:
        lines = self._opened(kept)
        if lines is None or (self._broken and not kept):
            return
        try:
            now = {"time": round(time.time(), 3), "life": self._life}
            lines.write(msgspec.json.encode({**line, **now}))
            if lines.torn:
                raise OSError(errno.ENOSPC, "the disk is full")
            if kept:
                lines.sync()
        except OSError as error:
            self._fail(error, kept)

    def _fail(self, error: OSError, kept: bool) -> None:
        if kept:
            raise cannot_write(self.path, error) from error
        self._broken = True
        what = f"{self.path} can no longer be written ({error.strerror or error})"
        self._complain(f"{what}: the search goes on, but the workbench and steer see nothing new")


def read(out: Path) -> tuple[Story, int]:
    """Reads the log of a folder: its story, and how many of its lines cannot be read. Raises OSError."""
    story, damage = Story(out=str(out)), 0
    for line in opening.read(out / EVENTS_FILE).split(b"\n"):
        fields = decoded(line) if line else None
        damage += bool(line) and fields is None
        story.take(fields or {})
    return story, damage


def nothing_to_resume(out: Path) -> UsageError:
    """Why there is nothing to go on with in a folder."""
    why = why_not_there(out, "events.jsonl with answers")
    if (out / OTHER_NAME).is_file():
        why = f"an earlier graphdbg wrote its answers, into {OTHER_NAME}, which this one does not read"
    return CannotResumeError(f"there is nothing to resume in {out}", why, "minify without --resume, into another -o")


LOCK_FILE = "lock"

BEFORE_ANYTHING = frozenset({WORK, LOCK_FILE, PROCESS_FILE, MARK})
"""Names of files that a process killed before its first query leaves in OUT: no reason to refuse the folder."""


def live_file(work: Path, case: str) -> Path:
    """The file into which a running query about a candidate writes its stage, then its latest output."""
    name = hashlib.sha1(case.removeprefix("verify ").encode(), usedforsecurity=False).hexdigest()
    return work / LIVE / name[:16]


def refuse_taken(out: Path, *, resume: bool = False) -> None:
    """Raises UsageError where OUT is a file, or, without `resume`, holds more than BEFORE_ANYTHING."""
    if out.exists() and not out.is_dir():
        raise ExistsAlreadyError(f"cannot write into {out}", "it is a file", "choose another -o")
    if out.exists() and not resume and any(path.name not in BEFORE_ANYTHING for path in out.iterdir()):
        raise ExistsAlreadyError(f"{out} exists already", "", "choose another -o, or add --resume to go on with it")


class Life(AbstractContextManager["Life"]):
    """Holds OUT for this process while the block runs. Raises UsageError where OUT is another's, or in use. `complain`
    takes warnings."""

    def __init__(self, out: Path, *, resume: bool = False, complain: Callable[[str], None] = lambda text: None) -> None:
        self.out = out
        self._complain = complain
        self._ended: Ended | None = None
        refuse_taken(out, resume=resume)
        self.made = not out.exists()
        """Whether the folder is new."""
        try:
            out.mkdir(parents=True, exist_ok=True)
            refuse_links(out)
            self._descriptor = os.open(out / LOCK_FILE, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise ExistsAlreadyError(f"cannot write into {out}", str(error.strerror), "choose another -o") from None
        try:
            self._lock()
            write_file(out / PROCESS_FILE, msgspec.json.encode(describe("minify")))
        except GraphdbgError:
            os.close(self._descriptor)
            raise
        self.log = Log(out, self._complain)

    def end(self, ended: Ended) -> None:
        """Sets the event that is written when the block is left."""
        self._ended = ended

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.log.story.began and self.out.is_dir():
            if self._ended is None and isinstance(error, KeyboardInterrupt):
                self._ended = Ended("interrupted", "interrupted")
            elif self._ended is None:
                self._ended = Ended("failed", str(error) if error else "it ended and did not say how")
            self.log.tell(self._ended)
        elif self.made and self.out.is_dir() and all(path.name in BEFORE_ANYTHING for path in self.out.iterdir()):
            shutil.rmtree(self.out, ignore_errors=True)
        self.log.close()
        os.close(self._descriptor)  # which also gives back the lock

    def _lock(self) -> None:
        """Locks OUT for this process. Where the file system has no locks, the record of the other process is looked at
        instead."""
        try:
            import fcntl

            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except (ImportError, OSError) as error:
            if at_work(self.out)[0] != "alive":
                self._complain(f"{self.out} cannot be locked ({error}): nothing keeps a second process out of it")
                return
        look = f"see what it does: graphdbg tui {shlex.quote(str(self.out))}"
        raise InUseError(f"{self.out} is in use", _who(at_work(self.out)[1]), look)


def at_work(out: Path) -> tuple[Liveness, ProcessRecord | None]:
    """Whether a process is at work in OUT, and its record; ("dead", None) where none ever was."""
    with suppress(GraphdbgError):
        record = read_record(out / PROCESS_FILE, ProcessRecord)
        return liveness(record, ended=False), record
    return "dead", None


def _who(record: ProcessRecord | None) -> str:
    if record is None:
        return "another process is minifying into it"
    since = time.strftime("%H:%M:%S", time.localtime(record.started))
    return f"process {record.pid} on {record.host} has been minifying into it since {since}"
