"""The first paint: no torch before it, and a real terminal that gets its screen back."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from ..house.test_hygiene import run_light

PAINT = """
import asyncio
from graphdbg.tui.app import Workbench
from graphdbg.tui.room import first_room
async def main():
    app = Workbench(first_room({target!r}))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause(0.2)
        text = chr(10).join(strip.text for strip in app.screen._compositor.render_strips())
        print(text)
        assert not app.troubles, app.troubles[0].text
asyncio.run(main())
late = "textual_serve", "aiohttp", "graphdbg.tui.screens.tour", "graphdbg.tui.screens.report.room"
for name in late: assert name not in sys.modules, name
"""


@pytest.mark.parametrize(("target", "seen"), [("myrun", "0_0/forward"), ("myrun/0_0/forward", "sin_0")])
def test_the_first_paint_imports_no_torch(target: str, seen: str, work: Path) -> None:
    code, text, heavy = run_light(PAINT.format(target=target), work)
    assert code == 0
    assert seen in text
    assert set(heavy) <= {"textual"}


@pytest.mark.slow
def test_in_a_terminal_it_paints_and_gives_the_screen_back(work: Path) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    words = [sys.executable, "-m", "graphdbg", "tui", "myrun"]
    process = subprocess.Popen(
        words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(slave)
    try:
        got = _until(master, b"0_0/forward")
        os.write(master, b"q")
        got += _until(master, b"\x1b[?1049l")  # the end of the other screen
        assert process.wait(20) == 0
        assert b"\x1b[?1049h" in got and b"\x1b[?25h" in got and b"Traceback" not in got
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        os.close(master)


def _until(master: int, wanted: bytes, limit_s: float = 30.0) -> bytes:
    got, ends = b"", time.monotonic() + limit_s
    while wanted not in got:
        assert time.monotonic() < ends, got[-500:]
        if select.select([master], [], [], 0.5)[0]:
            try:
                got += os.read(master, 65536)
            except OSError:  # the other end is closed
                assert wanted in got, got[-500:]
    return got
