"""How much disk a run takes, kept by each process for itself and read by the others: `<process>/disk.txt` holds one number.

A process writes down what it is about to take before it looks at the others' numbers, so that two of them never both believe that
there is room for one. No locks, so it works on network folders. Counts blocks of 4 KiB, as `du` does.

>>> disk = Disk(run_path, "rank0_pid12", limit_bytes=10_000_000)
>>> disk.reserve(50_000)
True
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

FILE = "disk.txt"


class Disk:
    """The share of one process in the limit of its run."""

    def __init__(self, run: Path, process: str, limit_bytes: int) -> None:
        self.run = run
        self.process = process
        self.limit_bytes = limit_bytes
        self._own = 0
        self._others = 0
        self._lock = threading.RLock()

    def reserve(self, size_bytes: int) -> bool:
        """Takes so many bytes if the run has room for them."""
        with self._lock:
            self.set(self._own + size_bytes)
            if self._own + self.others() <= self.limit_bytes:
                return True
            self.set(self._own - size_bytes)
            return False

    def set(self, own_bytes: int) -> None:
        """Tells the others what this process takes."""
        with self._lock:
            self._own = max(0, own_bytes)
            path = self.run / self.process / FILE
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(descriptor, f"{self._own:020d}\n".encode(), 0)
            finally:
                os.close(descriptor)

    def others(self) -> int:
        """What all other processes of the run take, as far as they have told."""
        total = 0
        with os.scandir(self.run) as entries:
            names = [entry.name for entry in entries if entry.name != self.process and entry.is_dir()]
        for name in names:
            try:
                text = (self.run / name / FILE).read_text()
            except OSError:
                continue
            total += int(text) if text.strip().isdigit() else 0
        return total
