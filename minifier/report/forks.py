"""A Python that has imported torch and nothing else, and forks itself for each program it is asked to run.

Started by `starter.Starter` and by nobody else, as a file of its own, so that nothing of ours is imported and a program finds
only what a fresh Python finds. Orders come as lines of JSON on stdin: {"id", "argv", "environment", "cwd", "log"} runs a program
("-c CODE" or a file), {"kill": ID} ends one. An answer is a line {"id", "code"}; a code below 0 is a signal. When stdin closes,
which the kernel does when the asking process dies, everything that runs is killed.

    python forks.py < orders
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

_EVERY_S = 1.0
_MODULES = ("torch", "torch._dynamo", "torch._inductor.compile_fx")
"""What a program that calls torch.compile imports in any case."""


def main() -> int:
    """Serves orders until stdin closes."""
    import importlib

    del sys.path[0]  # our own folder
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for name in _MODULES:
        importlib.import_module(name)
    with contextlib.suppress(Exception):  # an answer of this CPU and compiler; programs then need not ask for it anew
        importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
    gc.freeze()
    wake, waker = os.pipe()
    for end in (wake, waker):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _woken)
    running: dict[int, int] = {}
    held = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [], _EVERY_S)
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        for pid, code in _ended():
            if pid in running:
                _kill(pid)
                answers.write(json.dumps({"id": running.pop(pid), "code": code}) + "\n")
        if 0 not in ready:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            for pid in running:
                _kill(pid)
            return 0
        *lines, held = (held + data).split(b"\n")
        for order in map(json.loads, lines):
            if "kill" in order:
                for pid in [pid for pid, number in running.items() if number == order["kill"]]:
                    _kill(pid)
                continue
            pid = os.fork()
            if pid == 0:
                _become(order, answers.fileno())
            running[pid] = order["id"]


def _woken(_number: int, _frame: object) -> None:
    """Nothing: the signal's number lies in the pipe."""


def _ended() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            found.append((pid, os.waitstatus_to_exitcode(status)))
    return found


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _become(order: dict[str, Any], answers: int) -> None:
    """The whole life of a fork: its own group, folders and environment, then the program, then out."""
    code = 70
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(answers)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.update(order["environment"])
        tempfile.tempdir = None
        os.chdir(order["cwd"])
        code = _run(order["argv"])
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(argv: Sequence[str]) -> int:
    for folder in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        if argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            sys.path.insert(0, "")
            exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = list(argv)
            sys.path.insert(0, os.path.dirname(argv[0]))  # noqa: PTH120  as Python itself does
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001  as at the end of any program
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as end:  # a hook may say what the exit code is
            return end.code & 0xFF if isinstance(end.code, int) else 1
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
