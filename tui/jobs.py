"""A graphdbg command in a process of its own: what it prints comes back line by line. Must not know any command.

The workbench starts what it shows; a segfault, a hang or a lack of memory there is an exit code here. Lines of
stdout that are JSON objects are data, all else is narration. A job ends with the workbench unless it is `detached`.

>>> job = Job(["triage", "myrun/0_0/forward", "--json"], on_data=rows.append, on_said=log.append, on_end=ended)
>>> job.stop()
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any

PATIENCE_S = 5.0
"""Between the signals of a stop: Ctrl-C first, so that a command can save what it has, then harder ones."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LAST_LINES = 200
"""Of narration, for the panel of a job that failed."""


class Job:
    """One running command. The callbacks are called in threads of the job: the screen brings them home (`call_from_thread`)."""

    def __init__(
        self, words: Sequence[str], *, on_data: Callable[[dict[str, Any]], None] = lambda data: None,
        on_said: Callable[[str], None] = lambda text: None, on_end: Callable[[int], None] = lambda code: None,
        cwd: Path | None = None,
    ) -> None:  # fmt: skip
        self.words = list(words)
        self.said: list[str] = []
        self.code: int | None = None
        self._on_data, self._on_said, self._on_end = on_data, on_said, on_end
        self._lock = Lock()
        self._ended = Event()
        self._stopping = False
        self._process = subprocess.Popen(
            command_of(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
            start_new_session=True, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        assert self._process.stdout is not None and self._process.stderr is not None
        readers = [
            Thread(target=self._read, args=(self._process.stdout, self._data), daemon=True),
            Thread(target=self._read, args=(self._process.stderr, self._tell), daemon=True),
        ]
        for reader in readers:
            reader.start()
        Thread(target=self._wait, args=(readers,), daemon=True).start()

    @property
    def line(self) -> str:
        """The command line as a user would type it."""
        return shlex.join(["graphdbg", *self.words])

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.code is None

    def stop(self) -> None:
        """Ends it and all that it started, without waiting: Ctrl-C, and harder after a while each."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        Thread(target=self._stop, daemon=True).start()

    def kill(self) -> None:
        """Ends it at once; for when the workbench is left."""
        self._signal(signal.SIGTERM)
        if not self._ended.wait(1.0):
            self._signal(signal.SIGKILL)

    def _stop(self) -> None:
        for number in STOP_SIGNALS:
            self._signal(number)
            if self._ended.wait(PATIENCE_S):
                return

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read(self, stream: IO[str], take: Callable[[str], None]) -> None:
        with stream, contextlib.suppress(ValueError, OSError):
            for line in stream:
                take(line.rstrip("\n"))

    def _data(self, line: str) -> None:
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        if isinstance(data, dict):
            self._on_data(data)
        elif line:
            self._tell(line)

    def _tell(self, line: str) -> None:
        self.said.append(line)
        del self.said[:-LAST_LINES]
        self._on_said(line)

    def _wait(self, readers: list[Thread]) -> None:
        code = self._process.wait()
        for reader in readers:
            reader.join(PATIENCE_S)
        self.code = code
        self._ended.set()
        self._on_end(code)


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
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was killed by {name}"
