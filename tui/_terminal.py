"""The terminal, which may send any byte and may go away at any moment: textual's driver, whose private names stand
here.

What is no UTF-8 is read as replacement characters. Where the terminal has gone, what is written to it is thrown away,
and the app leaves. Tried on textual 8.2.8. Without public alternatives are:

`linux_driver.getincrementaldecoder`, `linux_driver.WriterThread`  what the driver decodes and writes with
`LinuxDriver.run_input_thread`  whose exceptions end the app
`LinuxDriver._get_terminal_size`  how large the terminal is
`LinuxDriver._sigtstp_application`, `_sigcont_application`  the app is stopped, and goes on
`LinuxDriver._auto_restart`, `_must_signal_resume`, `_writer_thread`  whether the app left the terminal before
`App._handle_exception`  which shows an error (see `_textual`)
`WriterThread._queue`  which nothing empties once the thread has died
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from queue import Full

from textual.driver import Driver
from textual.drivers import linux_driver
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver

ASKED_S = 0.2
LEAST = 20, 5
"""The least columns and lines that are painted; a smaller terminal shows the beginning of them."""
WAIT_S = 1.0
"""How long a terminal that takes nothing may delay the end."""


class _TerminalDecoder:
    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def decode(self, data: bytes, final: bool = False) -> str:
        if not data and not final:
            raise EOFError("the terminal has gone")  # textual would ask again at once, for ever
        return self._decode(data, final)


class _TerminalWriter(WriterThread):
    """A writer that takes what nobody reads, and does not keep the program from ending."""

    def write(self, text: str) -> None:
        while self.is_alive() or not self.ident:
            with contextlib.suppress(Full):
                self._queue.put(text, timeout=WAIT_S)
                return

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().run()

    def stop(self) -> None:
        with contextlib.suppress(Full):
            self._queue.put(None, timeout=WAIT_S)
        self.join(WAIT_S)


class Terminal(LinuxDriver):
    """A terminal that may go away, or be made as small as one column."""

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            # COLUMNS and LINES of the environment know of no other size
            width, height = os.get_terminal_size(self.fileno)
        except OSError:
            width, height = super()._get_terminal_size()
        return max(width, LEAST[0]), max(height, LEAST[1])  # textual's layout raises where nothing is left of a widget

    def _sigtstp_application(self, *signalled: object) -> None:
        self._in_turn(super()._sigtstp_application)

    def _sigcont_application(self, *signalled: object) -> None:
        self._in_turn(self._goes_on)

    def _in_turn(self, handle: Callable[[], None]) -> None:
        """Handles a signal in turn: it may come while this very thread holds the lock of the stream. While another
        program has the terminal, nothing is being written, and the signal is handled at once."""
        if self._auto_restart:
            self._loop.call_soon_threadsafe(handle)
        else:
            handle()

    def _goes_on(self) -> None:
        """Resumes after a stop by force (SIGSTOP), when the terminal was not left: its reader and writer are ended
        first, and its earlier state is still to be restored."""
        if self._auto_restart and not self._must_signal_resume and self._writer_thread is not None:
            before = self.attrs_before
            self.disable_input()
            self.close()
            super()._sigcont_application()
            self.attrs_before = before
        else:
            super()._sigcont_application()

    def run_input_thread(self) -> None:
        """Reads keys until the driver is stopped; an error of textual's parser is shown."""
        while True:
            try:
                return super().run_input_thread()
            except (OSError, EOFError):
                self._app.call_later(getattr(self._app, "terminal_gone", self._app.exit))
                return None
            except Exception as error:  # noqa: BLE001 - any byte may come: it is shown, and the next one read
                self._app.call_later(self._app._handle_exception, error)
                time.sleep(WAIT_S)


Colours = dict[str, tuple[float, float, float]]
"""What the terminal shows: "11" its background, "10" its text, "4;1" its colour 1; red, green, blue from 0 to 1."""


def colours() -> Colours:
    """The terminal's colours, as far as it reports them (OSC 4, 10 and 11). A question that every terminal answers
    (DA1) is asked last, so that one without colours costs no wait. Called before the app runs."""
    number, heard = sys.stdin.fileno(), b""
    try:
        before = termios.tcgetattr(number)
        tty.setcbreak(number)
    except termios.error:
        return {}
    try:
        wanted = ["10", "11", *(f"4;{colour}" for colour in range(1, 15))]
        questions = "".join(f"\x1b]{asked};?\x1b\\" for asked in wanted)
        os.write(sys.stdout.fileno(), f"{questions}\x1b[c".encode())
        while not re.search(rb"\x1b\[\?[\d;]*c", heard) and select.select([number], [], [], ASKED_S)[0]:
            heard += (some := os.read(number, 1024))
            if not some:
                break
    except OSError:
        return {}
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(number, termios.TCSANOW, before)
    colours_said: Colours = {}
    for name, *parts in re.findall(
        rb"\x1b\](10|11|4;\d+);rgba?:([\da-fA-F]{1,4})/([\da-fA-F]{1,4})/([\da-fA-F]{1,4})", heard
    ):
        red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in parts)
        colours_said[name.decode()] = red, green, blue
    return colours_said


def is_light(known: Colours) -> bool:
    """Whether the terminal's background is light: by COLORFGBG, else by the reported colour."""
    if said := os.environ.get("COLORFGBG"):
        return said.rpartition(";")[2] in ("7", "15")
    return sum(known.get("11", ())) > 1.5


def driver(chosen: type[Driver]) -> type[Driver]:
    """The driver in place of the one that textual chose: in a terminal, ours."""
    if chosen is not LinuxDriver:
        return chosen  # a page of the browser, or a test
    linux_driver.getincrementaldecoder = lambda _: _TerminalDecoder  # type: ignore[assignment]
    linux_driver.WriterThread = _TerminalWriter  # type: ignore[misc]
    return Terminal
