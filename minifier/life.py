"""One process at work in OUT: it alone holds OUT/lock, OUT/process.json says which it is, OUT/events.jsonl what it
does.

A second one is refused in a sentence. Whoever looks on asks `at_work`, and takes no lock for it. Must not search or
judge.

For example:

    with Life(Path("small"), resume=False) as life:
        life.log.tell(Started("myrun/0_0/forward", "small"))
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType

import msgspec

from ..dumps.atomic import write_file
from ..dumps.bound import MARK
from ..dumps.errors import GraphdbgError, UsageError
from ..dumps.opening import refuse_links
from ..dumps.process import FILE as PROCESS_FILE
from ..dumps.process import Liveness, ProcessRecord, describe, liveness
from ..dumps.reading import read_record
from .events import Ended
from .log import Log
from .results import LIVE, WORK

LOCK_FILE = "lock"

BEFORE_ANYTHING = frozenset({WORK, LOCK_FILE, PROCESS_FILE, MARK})
"""What a process that was killed before its first query leaves in OUT: no reason to refuse the folder."""


def live_file(work: Path, case: str) -> Path:
    """Where a query about a candidate tells what it is at while it runs: its stage, then what it printed of late."""
    name = hashlib.sha1(case.removeprefix("verify ").encode(), usedforsecurity=False).hexdigest()
    return work / LIVE / name[:16]


def refuse_taken(out: Path, *, resume: bool = False) -> None:
    """Raises UsageError where OUT is a file, or has something in it that is not to be gone on with."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"cannot write into {out}", "it is a file", "choose another -o")
    if out.exists() and not resume and any(path.name not in BEFORE_ANYTHING for path in out.iterdir()):
        raise UsageError(f"{out} exists already", "", "choose another -o, or --resume an unfinished one")


class Life(AbstractContextManager["Life"]):
    """A context manager. Raises UsageError where OUT is another's, or in use. `complain` takes what is wrong and ends
    nothing."""

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
            raise UsageError(f"cannot write into {out}", str(error.strerror), "choose another -o") from None
        try:
            self._lock()
            write_file(out / PROCESS_FILE, msgspec.json.encode(describe("minify")))
        except GraphdbgError:
            os.close(self._descriptor)
            raise
        self.log = Log(out, self._complain)

    def end(self, ended: Ended) -> None:
        """What is told when the block is left."""
        self._ended = ended

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.log.story.began and self.out.is_dir():
            if self._ended is None and isinstance(error, KeyboardInterrupt):
                self._ended = Ended("interrupted", "interrupted")
            elif self._ended is None:
                self._ended = Ended("failed", str(error) if error else "it ended without a word")
            self.log.tell(self._ended)
        elif self.made and self.out.is_dir() and all(path.name in BEFORE_ANYTHING for path in self.out.iterdir()):
            shutil.rmtree(self.out, ignore_errors=True)
        self.log.close()
        os.close(self._descriptor)  # which also gives back the lock

    def _lock(self) -> None:
        """Takes OUT for this process. Where the file system knows no locks, the record of the other process must do."""
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
        raise UsageError(
            f"{self.out} is in use", _who(at_work(self.out)[1]), f"see what it does: graphdbg tui {self.out}"
        )


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
