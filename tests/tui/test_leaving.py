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

from .real_terminal import RealTerminal

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
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONUNBUFFERED": ""}  # as a terminal's are
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
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


def test_what_is_painted_after_the_terminal_went_away_does_not_change_the_exit_code() -> None:
    terminal, theirs = pty.openpty()
    ends = "import sys; from graphdbg.dumps.output import settle; input(); code = settle(129)"
    late = f"{ends}; print('late'); sys.exit(code)"
    process = subprocess.Popen([sys.executable, "-c", late], stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(terminal)
    process.communicate(b"\n", LIMIT_S)
    assert process.returncode == 129


def opened(*words: str) -> tuple[subprocess.Popen[bytes], int]:
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (30, 100))
    environment = {**os.environ, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "graphdbg", "tui", *words]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    return process, terminal


def test_any_byte_may_come(work: Any) -> None:
    process, terminal = opened("myrun")
    try:
        read_until(terminal, b"0_0")
        beyond = b"\x1b[<99999999999999999999;1;1M"
        for odd in (b"\xe9", b"\x1b\xff", b"\x1b[M\xe9!!", beyond, b"\x1b[200~\xff\xfe\x1b[201~", b"\0"):
            os.write(terminal, odd)
            time.sleep(0.1)
        os.write(terminal, b"?")
        read_until(terminal, b"esc")
        assert process.poll() is None
        os.write(terminal, b"\x11")
        read_until(terminal, b"\x1b[?1049l")
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        os.close(terminal)


@pytest.mark.parametrize("key", [b"", b"q", b"j" * 500])
def test_it_ends_with_its_terminal(key: bytes, work: Any) -> None:
    process, terminal = opened("myrun")
    try:
        read_until(terminal, b"0_0")
        os.write(terminal, key)
        os.close(terminal)  # without a signal: it is no terminal that controls the process
        began = time.monotonic()
        process.wait(LIMIT_S)
        assert time.monotonic() - began < 5
    finally:
        process.kill()


def test_keys_that_end_a_program_end_not_the_workbench_behind_it(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyte")
    monkeypatch.setenv("EDITOR", "sh -c 'echo over the workbench; sleep 9'")
    with RealTerminal(["myrun/0_0/forward"], work) as terminal:
        terminal.until("[Detail]")
        terminal.keys("]", "]")
        terminal.until("import torch")
        terminal.keys("e")
        terminal.until("over the workbench")
        terminal.keys("\x1c")
        terminal.until("ended with exit code -3")
        assert terminal.process.poll() is None


def test_after_a_stop_by_force_it_leaves_the_terminal_as_it_was(work: Any) -> None:
    process, terminal = opened("myrun")
    try:
        read_until(terminal, b"0_0")
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        since = read_until(terminal, b"\x1b[?1049h").rpartition(b"\x1b[?1049h")[2]
        assert b"0_0" in since or read_until(terminal, b"0_0")
        # only now a key: what is typed before it goes on is thrown away
        os.write(terminal, b"q")
        read_until(terminal, b"\x1b[?1049l")
        assert process.wait(LIMIT_S) == 0
        assert termios.tcgetattr(terminal)[3] & termios.ICANON
    finally:
        process.kill()
        os.close(terminal)


def test_a_terminal_of_one_column_ends_nothing(work: Any) -> None:
    process, terminal = opened("myrun")
    try:
        read_until(terminal, b"0_0")
        os.write(terminal, b"@")
        read_until(terminal, b"graphdbg ls myrun")
        for size in (*((12, width) for width in range(1, 10)), (30, 100)):
            termios.tcsetwinsize(terminal, size)
            process.send_signal(signal.SIGWINCH)
            time.sleep(0.1)
        read_until(terminal, b"graphdbg ls myrun")
        assert process.poll() is None
    finally:
        process.kill()
        os.close(terminal)
