"""Limits what a recording keeps, as `--only`, `--keep`, `--max-disk` and `--after-step` ask.

How much disk the run takes is kept by each process for itself and read by the others: `<process>/disk.txt` holds one
number. The unit is a compile (all stages under one compile name). Old compiles are dropped first; one that failed, or
that is being compiled or run, never is. Whatever is left out is journalled as `left_out` with its reason, so that it
can be counted after any death.

For example:

    budget = Budget(Options(run="myrun", only="forward"), left_out=print)
    budget.refusal("0_0/backward", "Model.forward model.py:31")  # -> '--only forward'
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...dumps.writer import ProcessWriter
    from .options import Options

LeftOut = Callable[[str, str], None]

KEEP_BYTES = 1 << 16
"""Bytes kept free of graphs, for the end of the journal and for the report of a failure."""

DISK_FILE = "disk.txt"

_STAYING = frozenset({"failed", "compiling", "running"})
"""A graph whose last event is one of these is not dropped."""


class Disk:
    """One process's share of its run's disk limit, in blocks of 4 KiB, as `du` counts.

    A process publishes what it is about to take before it reads the others' numbers, so that two processes never both
    take the last free room. No locks, so this works on network folders.

    For example: `Disk(run_path, "rank0_pid12", limit_bytes=10_000_000).reserve(50_000)` gives `True`.
    """

    def __init__(self, run: Path, process: str, limit_bytes: int) -> None:
        self.run = run
        self.process = process
        self.limit_bytes = limit_bytes
        self._own = 0
        self._others = 0
        self._lock = threading.RLock()

    def reserve(self, size_bytes: int) -> bool:
        """Reserves bytes, if they fit in the run's limit."""
        with self._lock:
            self.set(self._own + size_bytes)
            if self._own + self.others() <= self.limit_bytes:
                return True
            self.set(self._own - size_bytes)
            return False

    def set(self, own_bytes: int) -> None:
        """Publishes how many bytes this process takes."""
        with self._lock:
            self._own = max(0, own_bytes)
            path = self.run / self.process / DISK_FILE
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(descriptor, f"{self._own:020d}\n".encode(), 0)
            finally:
                os.close(descriptor)

    def others(self) -> int:
        """The bytes of all other processes of the run, as far as they have reported them."""
        total = 0
        with os.scandir(self.run) as entries:
            names = [entry.name for entry in entries if entry.name != self.process and entry.is_dir()]
        for name in names:
            try:
                text = (self.run / name / DISK_FILE).read_text()
            except OSError:
                continue
            total += int(text) if text.strip().isdigit() else 0
        return total


class Budget:
    """Decides what one process records; safe for several threads. `left_out(graph, reason)` journals what is left
    out."""

    def __init__(self, options: Options, left_out: LeftOut) -> None:
        self.only = re.compile(options.only) if options.only else None
        self.keep = options.keep
        self.limit_bytes = options.max_disk
        self.left_out = left_out
        self.disk: Disk | None = None
        self.writer: ProcessWriter | None = None
        self.gone: set[str] = set()
        self._compiles: dict[str, dict[str, str]] = {}
        """Compile -> its graphs on disk -> the last event of each."""
        self._lock = threading.RLock()

    def attach(self, writer: ProcessWriter) -> None:
        """Makes a writer ask this budget before it writes."""
        if self.keep or self.limit_bytes:
            self.writer, writer.gate = writer, self
        if self.limit_bytes:
            self.disk = Disk(writer.run.path, writer.name, self.limit_bytes)
            writer.tensors.room = lambda size_bytes: self._room(size_bytes, "")

    def refusal(self, local: str, function: str) -> str | None:
        """Why a graph is not recorded at all (`--only`); None when it is."""
        if self.only is not None and not self.only.search(f"{local} {function}"):
            return f"--only {self.only.pattern}"
        return None

    def event(self, kind: str, local: str) -> bool:
        """Notes an event of a graph; returns whether it is journalled. A failure always is."""
        with self._lock:
            states = self._compiles.get(local.partition("/")[0], {})
            if local in states:
                states[local] = kind
            return kind == "failed" or local not in self.gone

    def admit(self, local: str, size_bytes: int) -> bool:
        """Makes room for a graph and tracks it from now on. False where there is no room, which is journalled."""
        with self._lock:
            name = local.partition("/")[0]
            if self.keep and name not in self._compiles:
                self._keep_newest(name)
            if self.limit_bytes and not self._room(size_bytes, name):
                self.gone.add(local)
                self.left_out(local, self._limit)
                return False
            self._compiles.setdefault(name, {})[local] = "captured"
            return True

    def admit_more(self, size_bytes: int, local: str) -> bool:
        """Makes room for inputs or code of a graph; False when there is none."""
        with self._lock:
            return not self.limit_bytes or self._room(size_bytes, local.partition("/")[0])

    def spare(self, size_bytes: int) -> bool:
        """Whether so many bytes are free without dropping anything."""
        with self._lock:
            if self.disk is None or self.writer is None:
                return True
            self.disk.set(self.writer.disk_bytes())
            return self.disk.reserve(size_bytes + KEEP_BYTES // 8)

    @property
    def _limit(self) -> str:
        return f"--max-disk {self.limit_bytes}"

    def _room(self, size_bytes: int, name: str) -> bool:
        """Whether there is room, if need be after dropping older compiles."""
        if self.disk is None or self.writer is None:
            return True
        while True:
            self.disk.set(self.writer.disk_bytes())
            if self.disk.reserve(size_bytes + KEEP_BYTES):
                self.disk.set(self.writer.disk_bytes() + size_bytes)
                return True
            others = [other for other in self._may_go() if other != name]
            if not others:
                return False
            ran = [other for other in others if "ran" in self._compiles[other].values()]
            self._drop((ran or others)[0], self._limit)

    def _keep_newest(self, name: str) -> None:
        """Drops old compiles of the same function until one more stays within `--keep`."""
        alike = [other for other in self._compiles if other.partition("_")[0] == name.partition("_")[0]]
        surplus = len(alike) + 1 - self.keep
        for other in [other for other in self._may_go() if other in alike][: max(0, surplus)]:
            self._drop(other, f"--keep {self.keep}")

    def _may_go(self) -> list[str]:
        """The compiles that may be dropped, the oldest first."""
        return [name for name, states in self._compiles.items() if _STAYING.isdisjoint(states.values())]

    def _drop(self, name: str, reason: str) -> None:
        for local in self._compiles.pop(name):
            self.gone.add(local)
            self.left_out(local, reason)
            if self.writer is not None:
                self.writer.remove_graph(local)
