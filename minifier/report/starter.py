"""Starts the processes that verify a repro before they are needed: torch is imported while the search still runs.

A `Starter` holds one or more fresh Pythons that have imported torch and nothing of ours (`forks`); every run of a program is a
fork of one of them, with a working folder, caches and an environment of its own. So a run costs its compile, and not 4 s
of imports. What runs share is what an import leaves, the seed of Python's hashes included; two starters make that two. Not for
CUDA, and not for a program whose environment must be set before torch is imported: those get a whole new process (`verify`).

>>> with starting() as starter:            # of `verify`
...     run_once(program, starter=starter).code
1
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Starter:
    """The processes of `places`: (environment, working folder) of each. They start at once; `close` ends them."""

    def __init__(self, places: Sequence[tuple[Mapping[str, str], Path]]) -> None:
        self._last = 0
        self._lock = threading.Lock()
        self._pythons = [_Python(environment, folder) for environment, folder in places]
        self.bare: list[Mapping[str, Path]] = []
        """Folders of processes that began before there were toolchain probes."""

    def furnish(self, plant: Callable[[Mapping[str, Path]], bool]) -> None:
        """Gives the processes the probes that were made since they began."""
        with self._lock:
            self.bare = [home for home in self.bare if not plant(home)]

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [python.pid for python in self._pythons]

    def close(self) -> None:
        """Ends them, and every run."""
        for python in self._pythons:
            python.close()

    def takes(self, command: Sequence[str]) -> bool:
        """Whether a command can run here: Python itself with -c or a file."""
        return command[0] == sys.executable and (command[1] == "-c" or not command[1].startswith("-"))

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, limit_s: float, stop: threading.Event | None
    ) -> tuple[int | None, str] | None:
        """Exit code (None: over the limit or stopped) and output; None where the starter itself has died."""
        with self._lock:
            self._last += 1
            number = self._last
        python = self._pythons[number % len(self._pythons)]
        log = cwd.parent / "log"
        log.touch()
        done = python.ask({
            "id": number, "argv": list(command[1:]), "environment": dict(environment), "cwd": str(cwd), "log": str(log),
        })  # fmt: skip
        deadline = time.monotonic() + limit_s
        while not done.wait(0.1):
            if time.monotonic() > deadline or (stop is not None and stop.is_set()):
                python.kill(number)
                done.wait(5)
                return None, log.read_text(errors="replace")
        code = python.codes.pop(number, None)
        return None if code is None else (code, log.read_text(errors="replace"))


class _Python:
    """One process of `forks`, and the thread that reads its answers."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.codes: dict[int, int] = {}
        self._waiting: dict[int, threading.Event] = {}
        self._lock = threading.Lock()
        self._over = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forks.py"))], env=dict(environment), cwd=folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, name="graphdbg-starter", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, order: dict[str, Any]) -> threading.Event:
        """Sends an order to run; the event is set when it has ended, or when this process has."""
        done = threading.Event()
        with self._lock:
            if self._over:
                done.set()
            else:
                self._waiting[order["id"]] = done
        self._send(order)
        return done

    def kill(self, number: int) -> None:
        """Ends one run and all that it started."""
        self._send({"kill": number})

    def close(self) -> None:
        """Closes its stdin, at which it ends with all its runs."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _send(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError), self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                self.codes[answer["id"]] = answer["code"]
                done = self._waiting.pop(answer["id"], None)
            if done is not None:
                done.set()
        with self._lock:
            self._over = True
            left, self._waiting = list(self._waiting.values()), {}
        for done in left:
            done.set()
