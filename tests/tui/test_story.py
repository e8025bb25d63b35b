"""The whole story in a real terminal: tmux, keys as a user types them, a real run with a planted bug.

open -> search -> jump to the backward partner -> replay -> minify -> report. Every step waits for what is on the
screen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TRAIN = """
import torch
import torch._inductor.config as config
config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
net = Net()
torch.compile(net)(torch.randn(4, 8)).sum().backward()
"""


class Terminal:
    """One tmux session with a program in it."""

    def __init__(self, words: str, cwd: Path, size: tuple[int, int] = (140, 40)) -> None:
        self.server = f"graphdbg-{uuid.uuid4().hex[:8]}"
        columns, lines = map(str, size)
        self._tmux("new-session", "-d", "-s", "story", "-x", columns, "-y", lines, "-c", str(cwd), words)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self.server, "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def keys(self, *names: str) -> None:
        """Types keys; a name that tmux does not know as a key is typed as it is."""
        for name in names:
            self._tmux("send-keys", "-t", "story", name)

    def screen(self) -> str:
        """What is seen."""
        return self._tmux("capture-pane", "-p", "-t", "story")

    def until(self, *wanted: str, limit_s: float = 60.0) -> str:
        """Waits until all of these are seen; gives the screen."""
        ends = time.monotonic() + limit_s
        while True:
            seen = self.screen()
            if all(text in seen for text in wanted):
                return seen
            assert time.monotonic() < ends, f"never came: {wanted}\n{seen}"
            time.sleep(0.1)

    def says(self) -> str:
        """The line in which Home says what enter does on the row of the cursor."""
        return next((line for line in self.screen().splitlines() if ": enter shows" in line), "")

    def changed(self, before: str, seen: Callable[[], str] | None = None, limit_s: float = 30.0) -> None:
        """Waits until something else is seen (there)."""
        ends = time.monotonic() + limit_s
        while (seen or self.screen)() == before:
            assert time.monotonic() < ends, f"nothing changed\n{before}"
            time.sleep(0.1)

    def gone(self, text: str, limit_s: float = 30.0) -> None:
        """Waits until that is not seen any more."""
        ends = time.monotonic() + limit_s
        while text in (seen := self.screen()):
            assert time.monotonic() < ends, f"still there: {text}\n{seen}"
            time.sleep(0.1)

    def end(self) -> None:
        """Kills the session."""
        subprocess.run(["tmux", "-L", self.server, "kill-server"], check=False, capture_output=True, timeout=30)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder with `myrun`: forward and backward of a small network, and Inductor's own relu bug in it."""
    (tmp_path / "train.py").write_text(TRAIN)
    words = [sys.executable, "-m", "graphdbg", "dump", "-o", "myrun", "train.py"]
    subprocess.run(words, check=True, cwd=tmp_path, capture_output=True, timeout=300)
    return tmp_path


@pytest.fixture
def terminal(recorded: Path) -> Iterator[Terminal]:
    """The workbench on that run."""
    if shutil.which("tmux") is None:
        pytest.skip("no tmux on this machine")
    kept = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TORCHINDUCTOR_CACHE_DIR")
    homes = " ".join(f"{name}={os.environ[name]}" for name in kept)
    program = f"env -u COLUMNS -u LINES {homes} {sys.executable} -m graphdbg tui myrun"
    result = Terminal(f"{program}; echo ended with $?; sleep 60", recorded)
    try:
        yield result
    finally:
        result.end()


@pytest.mark.slow
def test_from_the_run_to_the_report(terminal: Terminal, recorded: Path) -> None:
    terminal.until("[1 Home", "myrun", "forward+backward", "0_0: enter shows its graphs", "? all")
    terminal.keys("Enter")
    terminal.gone("0_0: enter shows its graphs")

    for _ in range(12):
        before = terminal.says()  # what Home says of the row of the cursor; ages of runs change elsewhere
        if "0_0/forward:" in before:
            break
        terminal.keys("j")
        terminal.changed(before, terminal.says)
    terminal.keys("Enter")
    terminal.until("[2 Graph]", "myrun/0_0/forward", "float32")

    before = terminal.screen()
    terminal.keys("/")
    terminal.changed(before)
    terminal.keys("relu", "Enter")
    terminal.until("[2 Graph]", "myrun/0_0/forward › relu")
    terminal.keys("p")
    terminal.until("[2 Graph]", "myrun/0_0/backward ›")
    terminal.keys("Escape")
    terminal.until("[2 Graph]", "myrun/0_0/forward › relu")

    terminal.keys("4")
    terminal.until("[4 Replay", "eager", "inductor")
    terminal.keys("r")
    terminal.until("✗ fails: wrong", "` is wrong", limit_s=300)

    terminal.keys("5")
    terminal.until("[5 Minify", "enter starts it")
    terminal.keys("Enter")
    terminal.until("done after", limit_s=400)

    terminal.keys("6")
    terminal.until("[6 Report", "Before you publish this", limit_s=60)
    terminal.keys("@")
    terminal.until("the same at a prompt", "graphdbg report")
    terminal.keys("Escape")
    terminal.gone("the same at a prompt")  # a terminal cannot tell escape and at once a letter from alt and the letter
    terminal.keys("q")
    terminal.until("ended with 0")
    assert list(recorded.glob("*/repro.py")), "the minification left its repro"
