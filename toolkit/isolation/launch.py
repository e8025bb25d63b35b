"""Runs the recorded command as a child: what to execute, signals passed on, and the exit code to end with.

The child has our stdin, stdout and stderr, so its output is untouched. Imports no torch.

For example: `command_line(["train.py", "--steps", "3"])` gives `['/usr/bin/python3', 'train.py', '--steps', '3']`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ...dumps.errors import CannotStartError, CommandLineError
from .processes import die_with_parent

if TYPE_CHECKING:
    from ..recorder.watching import Watcher

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT")


def command_line(words: Sequence[str]) -> list[str]:
    """The words to execute: a script or `-m module` gets this Python in front, anything else is found on PATH or
    beside this Python (torchrun, say, where the environment is not activated).

    Raises UsageError when there is no such script, module flag or program.
    """
    if not words:
        raise CommandLineError(
            "nothing to run", "no command is given", "put it last, after --, for example: -- python train.py"
        )
    first, rest = words[0], list(words[1:])
    if first in ("-m", "-c"):
        if not rest:
            raise CommandLineError(
                f"{first} needs a {'module' if first == '-m' else 'program text'}", "", f"write it after {first}"
            )
        return [sys.executable, first, *rest]
    path = Path(first)
    if first.endswith((".py", ".pyc")) or (path.is_dir() and (path / "__main__.py").is_file()):
        if not path.exists():
            raise CannotStartError(f"cannot run {first}", "there is no such script", "check the path")
        return [sys.executable, first, *rest]
    if shutil.which(first) is None:
        if beside := shutil.which(first, path=str(Path(sys.executable).parent)):
            return [beside, *rest]
        if path.is_file():
            raise CannotStartError(
                f"cannot run {first}",
                "it is not executable, and its name does not end in .py",
                f"for a Python script: python {first}",
            )
        raise CannotStartError(
            f"cannot run {first}", "there is no such script or program here or on PATH", "check its name"
        )
    return [first, *rest]


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    on_signal: Callable[[int], object] | None = None,
    watcher: Watcher | None = None,
    attend: Callable[[subprocess.Popen[bytes]], int | None] | None = None,
    stdout: int | None = None,
) -> int:
    """Runs the command to its end and returns its exit code, or 128 + the number of the signal that ended it. `attend`:
    called with the running process; an exit code that it returns ends the wait; `stdout`: a descriptor in place of this
    process's.

    Signals sent to us go on to the child, except those that this process ignores from its start; SIGINT and SIGQUIT
    reach it from the terminal, and this process waits for its end. `on_signal` is called with each number. SIGKILL to
    this process kills the child too.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []
    previous = {}

    def forward(number: int, _: FrameType | None) -> None:
        if on_signal is not None:
            on_signal(number)
        if number not in (signal.SIGINT, signal.SIGQUIT):
            child.send_signal(number) if child is not None else early.append(number)

    for number in (getattr(signal, name) for name in (*_FORWARDED, "SIGINT", "SIGQUIT") if hasattr(signal, name)):
        if signal.getsignal(number) != signal.SIG_IGN:
            previous[number] = signal.signal(number, forward)
    try:
        child = _start(command, environment, stdout)
        if watcher is not None:
            watcher.started(child.pid)
        for number in early:
            child.send_signal(number)
        left = attend(child) if attend is not None else None
        code = child.wait() if left is None else left
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if watcher is not None:
        watcher.ended(code)
    return code if code >= 0 else 128 - code


def _start(command: Sequence[str], environment: Mapping[str, str], stdout: int | None) -> subprocess.Popen[bytes]:
    variables, binding = {**os.environ, **environment}, partial(die_with_parent, os.getpid())
    try:
        return subprocess.Popen(list(command), env=variables, stdout=stdout, preexec_fn=binding)
    except OSError as error:
        raise CannotStartError(f"cannot run {command[0]}", error.strerror or str(error)) from error


def signal_text(code: int) -> str:
    """The meaning of an exit code above 128: "signal SIGSEGV", if there is such a signal."""
    try:
        return f"signal {signal.Signals(code - 128).name}"
    except ValueError:
        return "its own choice"


def python_of(command: Sequence[str]) -> str | None:
    """The Python that runs the command: itself, or what the first line of a script on PATH says; None when unknown."""
    program = shutil.which(command[0])
    if program is None:
        return None
    if Path(program).name.startswith(("python", "pypy")):
        return program
    try:
        with Path(program).open("rb") as file:
            head = file.readline(512).decode("utf-8", "replace").strip()
    except OSError:
        return None
    words = head[2:].split() if head.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words and "python" in Path(words[0]).name else None


def lacks(python: str) -> str:
    """Which of torch and graphdbg a Python cannot import, or "plug-in" where its torch does not see graphdbg's entry
    point, asked in that Python; "" when it has all or cannot be asked."""
    program = (
        "import importlib.metadata as m, importlib.util as u; names = [e.name for e in "
        "m.entry_points(group='torch.backends')]; lost = [n for n in ('torch', 'graphdbg') if u.find_spec(n) is None]; "
        "print(' '.join(lost or ['plug-in'] * ('graphdbg' not in names)))"
    )
    return printed_by([python, "-c", program])


def printed_by(command: Sequence[str]) -> str:
    """The standard output of a probe command; "" when it is missing, fails or hangs (as with a driver in a bad
    state)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
