"""The workbench in a pseudo-terminal that controls it, as a person has it, and what that person sees. Needs `pyte` to
see.

>>> with RealTerminal(["myrun"], folder) as terminal:
...     terminal.until("0_0/forward")
...     terminal.keys("q")
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

LIMIT_S = 30.0
NAMED = {"esc": "\x1b", "enter": "\r", "space": " ", "tab": "\t", "ctrl+p": "\x10", "down": "\x1b[B"}
_UNKNOWN = re.compile(rb"\x1b\[[<=>][0-9;]*[a-zA-Z]|\x1bP.*?\x1b\\", re.DOTALL)
"""What pyte would write out as text."""
_CUT = re.compile(rb"\x1b[^a-zA-Z\x1b]*\Z")
LENT, OURS = b"\x1b[?1049l", b"\x1b[?1049h"


class RealTerminal:
    """`graphdbg tui WORDS` in a terminal of its own session; `env` on top of this process's. All it prints is read."""

    def __init__(
        self, words: list[str], folder: Path, size: tuple[int, int] = (120, 36), env: Mapping[str, str] = {}
    ) -> None:
        self.size, self.came_at = size, time.monotonic()
        self._lock, self._gone = Lock(), Event()
        self._parts: list[bytes | tuple[int, int]] = [size]
        self._screen: Any = None
        self._rest = b""
        self.lent = True
        """Whether the program has not taken the screen, or has given it to another one."""
        self.handle, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (size[1], size[0]))
        more = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLORFGBG": "15;0", **env}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "graphdbg", "tui", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, **more},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> RealTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """The terminal goes away, as a window that is closed."""
        if not self._gone.is_set():
            self._gone.set()
            os.close(self.handle)

    def _read(self) -> None:
        while not self._gone.is_set():
            try:
                if not select.select([self.handle], [], [], 0.05)[0]:
                    continue
                data = os.read(self.handle, 1 << 16)
            except (OSError, ValueError):
                return
            with self._lock:
                self._parts.append(data)
                self.came_at = time.monotonic()
                last = max(data.rfind(LENT), data.rfind(OURS))
                if last >= 0:
                    self.lent = data.startswith(LENT, last)

    # -- what a person does

    def send(self, data: bytes) -> None:
        """Bytes, as they are; a program that takes none for a while is left alone."""
        ends = time.monotonic() + LIMIT_S
        os.set_blocking(self.handle, False)
        while data and time.monotonic() < ends:
            try:
                data = data[os.write(self.handle, data) :]
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                return

    def keys(self, *names: str) -> None:
        """Keys by their names, one after the other."""
        for name in names:
            self.send(NAMED.get(name, name).encode())
            time.sleep(0.12 if name == "esc" else 0.03)  # what follows an escape at once is alt with a key

    def resize(self, width: int, height: int) -> None:
        """Another size; the kernel tells the program."""
        with self._lock:
            self._parts.append((width, height))
        self.size = (width, height)
        termios.tcsetwinsize(self.handle, (height, width))

    def signal(self, number: signal.Signals) -> None:
        """As the terminal's driver or the shell sends it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def raw(self, limit_s: float) -> bool:
        """Waits until the program takes each key as it is; whether it does."""
        ends = time.monotonic() + limit_s
        while termios.tcgetattr(self.handle)[3] & termios.ICANON:
            if time.monotonic() > ends:
                return False
            time.sleep(0.01)
        return True

    # -- what a person sees

    def screen(self) -> Any:
        """The emulated screen, with all that came so far."""
        import pyte

        with self._lock:
            parts, self._parts = self._parts, []
        for part in parts:
            if isinstance(part, tuple):
                self._screen = pyte.Screen(*part)  # all is painted anew
                self._stream = pyte.ByteStream(self._screen)
                continue
            data = _UNKNOWN.sub(b"", self._rest + part)
            cut = _CUT.search(data)
            data, self._rest = (data[: cut.start()], cut[0]) if cut and len(cut[0]) < 64 else (data, b"")
            self._stream.feed(data)
        return self._screen

    def rows(self) -> list[str]:
        """The text of the screen."""
        return [row.rstrip() for row in self.screen().display]

    @property
    def text(self) -> str:
        """The same in one piece."""
        return "\n".join(self.rows())

    def until(self, holds: str | Callable[[str], object], limit_s: float = LIMIT_S) -> float:
        """Waits for a text, or for what holds of the text that is seen; the seconds that it took. Raises
        TimeoutError."""
        began = time.monotonic()
        while not (holds in self.text if isinstance(holds, str) else holds(self.text)):
            if time.monotonic() - began > limit_s or (self.process.poll() is not None and not self._parts):
                age, program = time.monotonic() - self.began, "another program" if self.lent else "the workbench"
                how = f"exit code {self.process.poll()} after {age:.0f} s, {program} has the screen"
                raise TimeoutError(f"never came: {holds!r}; {how}:\n{self.text}")
            time.sleep(0.01)
        return time.monotonic() - began

    def rest(self, quiet_s: float = 0.3, limit_s: float = 3.0) -> None:
        """Until nothing came for a moment."""
        began = time.monotonic()
        while time.monotonic() - max(began, self.came_at) < quiet_s and time.monotonic() - began < limit_s:
            time.sleep(0.02)
