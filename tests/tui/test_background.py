"""The terminal's background is asked for, and a terminal that does not say costs a moment alone."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from graphdbg.tui import _terminal

ANSWERS = {
    b"\x1b]11;rgb:ffff/fafa/f0f0\x1b\\\x1b[?62;22c": True,
    b"\x1b]11;rgb:1e/1e/2e\x07\x1b[?1;2c": False,
    b"\x1b[?6c": False,
    b"": False,
}


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_a_terminal_that_is_asked(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    monkeypatch.delenv("COLORFGBG", raising=False)
    with os.fdopen(slave, "rb+", buffering=0) as terminal, os.fdopen(master, "rb+", buffering=0) as screen:
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys, "stdout", terminal)
        asked: list[bytes] = []

        def answering() -> None:
            asked.append(screen.read(512))
            screen.write(answer)

        thread = threading.Thread(target=answering)
        thread.start()
        began = time.monotonic()
        assert _terminal.is_light(_terminal.colours()) is ANSWERS[answer]
        thread.join()
        assert b"\x1b]11;?" in asked[0] and time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("said", "light"), [("0;15", True), ("15;0", False), ("12;7", True), ("default;default", False)]
)
def test_a_terminal_that_says_it_unasked(said: str, light: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", said)
    assert _terminal.is_light({}) is light
