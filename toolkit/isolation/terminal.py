"""A terminal of its own for one child, joined to the one that a person sits at.

The child never gets the person's terminal, into which a program can type: it gets a new one, and this process carries
bytes between the two. Imports no torch.

For example:

    with Terminal() as terminal:
        terminal.join(ask(TASK, {"path": "case", TERMINAL: terminal.name}, server=server))
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .protocol import PendingTask

TERMINAL = "terminal"
"""What a payload calls the terminal that its child is to sit at."""
_BLOCK = 1 << 16


def join_terminal(name: str) -> None:
    """Makes the terminal this process's own, as leader of a session: its stdin, stdout and stderr, and where Ctrl-C
    comes from."""
    handle = os.open(name, os.O_RDWR)
    for number in range(3):
        os.dup2(handle, number)
    if handle > 2:
        os.close(handle)
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


class Terminal:
    """A new terminal. `name`: its device."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        self.name = os.ttyname(self._theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self._ours, self._theirs):
            os.close(handle)

    def join(self, asked: PendingTask, stdin: int = 0, stdout: int = 1) -> None:
        """Carries bytes both ways until the question has ended; `stdin` is a terminal."""
        ended, end = os.pipe()

        def wait() -> None:
            for _ in asked:
                pass
            os.write(end, b"x")

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        try:
            with _raw(stdin), self._sized_like(stdin):
                self._carry(stdin, stdout, ended)
        finally:
            asked.kill()
            waiting.join()
            for handle in (ended, end):
                os.close(handle)

    def _carry(self, stdin: int, stdout: int, ended: int) -> None:
        sources = [stdin, self._ours, ended]
        while True:
            ready = select.select(sources, [], [])[0]
            if self._ours in ready:
                _write(stdout, os.read(self._ours, _BLOCK))
            elif ended in ready:
                return
            if stdin in ready:
                typed = os.read(stdin, _BLOCK)
                _write(self._ours, typed or b"\x04")
                if not typed:  # nobody sits there any more
                    sources.remove(stdin)

    @contextlib.contextmanager
    def _sized_like(self, stdin: int) -> Iterator[None]:
        def size(*_: object) -> None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, fcntl.ioctl(stdin, termios.TIOCGWINSZ, bytes(8)))

        size()
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGWINCH, size) if main else None
        try:
            yield
        finally:
            if main:
                signal.signal(signal.SIGWINCH, before)


@contextlib.contextmanager
def _raw(stdin: int) -> Iterator[None]:
    """Sets the terminal to pass keys on one by one, Ctrl-C too."""
    before = termios.tcgetattr(stdin)
    try:
        tty.setraw(stdin, termios.TCSANOW)
        yield
    finally:
        with contextlib.suppress(termios.error):  # it is gone
            termios.tcsetattr(stdin, termios.TCSANOW, before)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
