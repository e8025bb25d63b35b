"""Reading a file that somebody else is still writing: whole lines only, a bounded bite at a time. Must not wait for anything.

>>> tail = Tail(Path("out"))
>>> tail.read()
([b'{"event": "row"}'], False)
"""

from __future__ import annotations

import os
from pathlib import Path

BITE_BYTES = 256 * 1024
"""So much is read at once, so that a flood of lines does not stop the screen."""


class Tail:
    """One open file and the place up to which its lines were handed out. Raises OSError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._rest: list[bytes] = []

    def read(self, *, last: bool = False) -> tuple[list[bytes], bool]:
        """The lines that were finished since, without their ends, and whether more is there already. With `last`, an
        unfinished line at the end of the file is handed out, too."""
        if self._descriptor < 0:
            return [], False
        try:
            data = os.read(self._descriptor, BITE_BYTES)
        except OSError:
            data = b""
        more = len(data) == BITE_BYTES
        lines: list[bytes] = []
        if data:
            head, *others = data.split(b"\n")
            self._rest.append(head)
            if others:
                lines = [b"".join(self._rest), *others[:-1]]
                self._rest = [others[-1]] if others[-1] else []
        if last and not more and self._rest:
            lines.append(b"".join(self._rest))
            self._rest = []
        return lines, more

    def close(self) -> None:
        """Closes the file; nothing comes after."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
