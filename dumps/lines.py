"""Growing files of lines: each line is appended with one write, and other processes read complete lines meanwhile.

Reading never waits. Nothing is assumed about a line, except that most are JSON objects.

>>> append(Path("events.jsonl"), b'{"event":"row"}')
>>> tail = Tail(Path("events.jsonl"))
>>> list(objects(tail.read())), tail.more
([{'event': 'row'}], False)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from .opening import opened

BITE_BYTES = 256 * 1024
"""The bytes read at once where many new lines should not block a screen."""


class LineWriter:
    """Appends lines. An unfinished last line, left by a dead process or a full disk, is ended first, so that only that
    line is lost. Raises OSError."""

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | (os.O_CREAT if create else 0)
        self._descriptor = os.open(path, flags, 0o666)
        size = os.fstat(self._descriptor).st_size
        self.torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        """Whether the file ends in the middle of a line."""

    def write(self, line: bytes) -> int:
        """Writes a line with one write, and returns the bytes written. Raises OSError."""
        data = (b"\n" if self.torn else b"") + line + b"\n"
        self.torn = os.write(self._descriptor, data) != len(data)
        return len(data)

    def sync(self) -> None:
        """Waits until all that was written is on the disk. Raises OSError."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Closes the file; nothing can be written after."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def append(path: Path | str, line: bytes, *, create: bool = True) -> None:
    """Writes one line. Raises OSError."""
    writer = LineWriter(path, create=create)
    try:
        writer.write(line)
    finally:
        writer.close()


class Tail:
    """Returns each line of a growing file once. A file that was replaced, or became shorter, is read from its start.

    `at`: the byte where reading begins, None for the current end. `bite`: the bytes read at once, None for all.
    """

    def __init__(self, path: Path, at: int | None = 0, *, bite: int | None = None) -> None:
        self.path = path
        self.there = False
        """Whether the file existed at the last look."""
        self.fresh = False
        """Whether the last read began with a new file."""
        self.more = False
        """Whether the file was longer than what had been read."""
        self._bite = bite
        self._offset = size_of(path) if at is None else at
        self._file: tuple[int, int] | None = None
        self._rest: list[bytes] = []

    def read(self, *, last: bool = False) -> list[bytes]:
        """Returns the lines completed since the last read, without line breaks; with `last` also an unfinished last
        line. Raises OSError."""
        head, *others = self._data().split(b"\n")
        self._rest += [head] if head else []
        lines: list[bytes] = []
        if others:
            lines = [b"".join(self._rest), *others[:-1]]
            self._rest = [others[-1]] if others[-1] else []
        if last and not self.more and self._rest:
            lines.append(b"".join(self._rest))
            self._rest = []
        return lines

    def _data(self) -> bytes:
        try:
            with opened(self.path) as file:
                status = os.fstat(file.fileno())
                self._look(status)
                file.seek(self._offset)
                data = file.read(-1 if self._bite is None else self._bite)
        except FileNotFoundError:
            self.there = self.fresh = self.more = False
            self._file = None if self._file is None else (-1, -1)
            return b""
        self._offset += len(data)
        self.more = status.st_size > self._offset
        return data

    def _look(self, status: os.stat_result) -> None:
        file = (status.st_dev, status.st_ino)
        another = self._file not in (None, file) or status.st_size < self._offset
        self.there, self.fresh = True, another or self._file is None
        self._file = file
        if another:
            self._offset, self._rest = 0, []


def objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The lines as JSON objects; other lines are left out."""
    return (fields for line in lines if (fields := decoded(line)) is not None)


def decoded(line: bytes) -> dict[str, Any] | None:
    """The line as a JSON object; None where it is none."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def size_of(path: Path) -> int:
    """The bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
