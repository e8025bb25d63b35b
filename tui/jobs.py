"""A graphdbg command in a session of its own, its output in files that are read as they grow. Knows no command.

A segfault, a hang or a lack of memory there is an exit code here. The command goes on when the workbench is left, and
another workbench can attach to it. Lines of stdout that are JSON objects are data, all else is narration.

For example:

    job = Job(["triage", "myrun/0_0/forward", "--json"], on_batch=rows.extend, on_said=log.append, on_end=ended)
    job.stop()
    again = Job.attach(job.folder, on_said=log.append)
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from ..dumps.answers import KEPT_ELSEWHERE
from ..dumps.atomic import cannot_write
from ..dumps.deaths import signal_name
from ..dumps.errors import CannotResumeError, CannotStartError, GraphdbgError, UsageError
from ..dumps.lines import BITE_BYTES, Tail, decoded
from ..dumps.process import liveness
from . import job_files

Data = dict[str, Any]

PATIENCE_S = 10.0
"""Seconds between the signals of a stop: Ctrl-C first, so that a command can save its state, then harder ones."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LAST_LINES = 200
"""Lines of narration that are kept for the panel of a job that failed."""
TICK_S = 0.1

NO_COLOR = os.environ.get("NO_COLOR")
"""NO_COLOR as the user set it: textual removes it from the environment, and the commands need it."""

KEEPER = 'trap : INT TERM HUP; "$@"; code=$?; printf %s "$code" > "$0/exit"; exit "$code"'
"""A shell that outlives the workbench and its command, to write how the command ended."""


class Job:
    """One command. The callbacks are called in a thread of the job: the screen brings them home (`call_later`, a
    message). `on_batch` gets the data that came in a tenth of a second at once.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        on_batch: Callable[[list[Data]], None] | None = None,
        on_said: Callable[[str], None] | None = None,
        on_end: Callable[[int], None] | None = None,
        passing: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.words = list(words)
        self.said: list[str] = []
        self.code: int | None = None
        self.passing = passing
        """Whether a screen alone wanted the job: it is not listed, ends with the workbench, and leaves no files."""
        self.note = ""
        """A sentence where the job's files had to go elsewhere, or something of the job cannot be kept."""
        self._on_batch, self._on_said, self._on_end = on_batch, on_said, on_end
        self._lock = Lock()
        self._ended = Event()
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        if folder is None:
            self.folder, self.note = job_files.new_folder(words, passing=passing)
            self._process = self._start()
        else:
            self.folder = folder
        try:
            self._out, self._err = (_tail(self.folder / name) for name in (job_files.OUT_FILE, job_files.ERR_FILE))
        except OSError as error:
            raise UsageError(f"cannot follow {self.line}", f"{error.filename}: {error.strerror}") from error
        Thread(target=self._follow, name=f"job {self.words[:1]}", daemon=True).start()

    @classmethod
    def attach(cls, folder: Path, **heard: Any) -> Job:
        """Attaches to a job that was started before, from its first line on; raises GraphdbgError where its files are
        gone. `heard`: the callbacks."""
        return cls(job_files.look(folder).record.words, folder=folder, **heard)

    @property
    def line(self) -> str:
        """The command line as a user would type it."""
        return shlex.join(["graphdbg", *self.words])

    @property
    def running(self) -> bool:
        """Whether the job has not ended yet."""
        return self.code is None

    def last_said(self, none: str = "it printed nothing") -> str:
        """The last line of its narration, or of its error where it reported one."""
        said = [line for line in self.said if line.strip()]
        errors = [line.removeprefix("graphdbg: ") for line in said if line.startswith("graphdbg: ")]
        return (errors or said or [none])[-1]

    def stop(self) -> None:
        """Ends the job and all that it started, without waiting: Ctrl-C, and harder signals after a while. Raises
        UsageError where it runs on another host."""
        if self._process is None and job_files.look(self.folder).state == "elsewhere":
            raise CannotResumeError(f"cannot stop {self.line}", "it runs on another host", "stop it there")
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        Thread(target=self._stop, daemon=True).start()

    def kill(self) -> None:
        """Ends the job at once; for when the workbench is left."""
        self._signal(signal.SIGTERM)
        if not self._ended.wait(1.0):
            self._signal(signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end, in a thread or a test; returns whether it came."""
        return self._ended.wait(timeout_s)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        environment[KEPT_ELSEWHERE] = "1"  # here
        environment.pop("PYTHONUNBUFFERED", None)  # with it, Python drops without a word what a full disk did not take
        if NO_COLOR is not None:
            environment["NO_COLOR"] = NO_COLOR
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            out, err = (os.open(self.folder / name, flags, 0o600) for name in ("out", "err"))
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", KEEPER, str(self.folder), *command_of(self.words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotStartError(f"cannot start {self.line}", error.strerror or str(error)) from error
        finally:
            os.close(out)
            os.close(err)
        try:
            job_files.note_process(self.folder, process.pid)
        except GraphdbgError as error:
            self.note = f"another workbench will not find {self.line}: {error}"
        return process

    def _stop(self) -> None:
        for number in STOP_SIGNALS:
            self._signal(number)
            if self._ended.wait(PATIENCE_S):
                return

    def _signal(self, number: signal.Signals) -> None:
        """Signals its whole session, only where its first process is surely still the same."""
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError, GraphdbgError):
            if self._process is not None:
                if self._process.poll() is None:
                    os.killpg(self._process.pid, number)
                return
            kept = job_files.look(self.folder)
            process = kept.record.process
            if process is not None and liveness(process, ended=kept.state == "ended") == "alive":
                os.killpg(process.pid, number)

    def _follow(self) -> None:
        """Hands over output as it comes, until the command has ended and all of it was read."""
        while True:
            ended = self._has_ended()
            more = self._hand_over(last=ended)
            if ended and not more:
                break
            self._ended.wait(0.001 if more else TICK_S)
        code = self._final_code()
        self._note_losses(code)
        if self.passing:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.code = code
        self._ended.set()
        self._call(self._on_end, code)

    def _has_ended(self) -> bool:
        if self._process is not None:
            with self._lock:
                return self._process.poll() is not None
        try:
            return job_files.look(self.folder).state in ("ended", "gone")
        except GraphdbgError:  # its folder vanished: nothing more can come
            return True

    def _hand_over(self, *, last: bool) -> bool:
        """Hands over what was written since the last call; returns whether there is more than one bite of it."""
        batch: list[Data] = []
        for line in _lines(self._out, last):
            data = decoded(line)
            if data is None:
                torn = line.startswith(b"{") and last
                self._note_line("its output ends in the middle of a line" if torn else line.decode("utf-8", "replace"))
                continue
            batch.append(data)
        if batch:
            self._call(self._on_batch, batch)
        for line in _lines(self._err, last):
            self._note_line(line.decode("utf-8", "replace"))
        return self._out.more or self._err.more

    def _note_line(self, line: str) -> None:
        if line:
            self.said.append(line)
            del self.said[:-LAST_LINES]
            self._call(self._on_said, line)

    def _call(self, function: Callable[[Any], None] | None, value: Any) -> None:
        """Calls a screen; one that is gone or fails does not end the job, and is noted among what the job said."""
        if function is None:
            return
        try:
            function(value)
        except Exception as error:  # noqa: BLE001 - reported below
            self.said.append(f"graphdbg tui: a screen could not take this: {type(error).__name__}: {error}")

    def _final_code(self) -> int:
        code = job_files.code_of(self.folder)
        if code is not None:
            return code
        if self._process is None:
            return -signal.SIGKILL  # gone without a word
        code = self._process.returncode
        return code if code < 128 else 128 - code

    def _note_losses(self, code: int) -> None:
        if not self.folder.exists():
            self._note_line(f"graphdbg tui: {self.folder} was deleted; what it printed is lost")
        elif code != 0:
            with contextlib.suppress(OSError):
                if shutil.disk_usage(self.folder).free == 0:
                    self._note_line(f"graphdbg tui: the disk of {self.folder} is full; what it printed may be lost")


def _tail(path: Path) -> Tail:
    """The tail of a file. Raises OSError where it cannot be read."""
    path.open("rb").close()
    return Tail(path, bite=BITE_BYTES)


def _lines(tail: Tail, last: bool) -> list[bytes]:
    try:
        return tail.read(last=last)
    except OSError:
        return []


def command_of(words: Sequence[str]) -> list[str]:
    """The program and its arguments for the words after `graphdbg`."""
    return [sys.executable, "-m", "graphdbg", *words]


def ending(code: int) -> str:
    """How a command ended, in words.

    >>> ending(-9)
    'it was killed by SIGKILL'
    """
    if code >= 0:
        return f"it ended with exit code {code}"
    return f"it was killed by {signal_name(-code)}"
