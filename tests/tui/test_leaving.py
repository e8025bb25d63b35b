"""A kill of the workbench and a terminal that goes away: the terminal is given back, nothing is left running."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from typing import Any

import pytest

LIMIT_S = 30.0


def read_until(terminal: int, text: bytes) -> bytes:
    """What the terminal got, until a text is in it."""
    got, ends = b"", time.monotonic() + LIMIT_S
    while text not in got and time.monotonic() < ends:
        if select.select([terminal], [], [], 0.1)[0]:
            got += os.read(terminal, 65536)
    assert text in got, f"never came: {text!r}"
    return got


@pytest.mark.parametrize("how", ["kill", "hang up"])
def test_the_terminal_is_given_back_at_a_signal(how: str, work: Any) -> None:
    terminal, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)[3]
    command = [sys.executable, "-m", "graphdbg", "tui", "myrun"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True)
    try:
        read_until(terminal, b"0_0")
        if how == "kill":
            process.send_signal(signal.SIGTERM)
            read_until(terminal, b"\x1b[?1049l")
            assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
            assert termios.tcgetattr(theirs)[3] == before
        else:
            os.close(theirs)
            os.close(terminal)
            process.send_signal(signal.SIGHUP)
            assert process.wait(LIMIT_S) == 128 + signal.SIGHUP
    finally:
        process.kill()
        for descriptor in (terminal, theirs) if how == "kill" else ():
            os.close(descriptor)
