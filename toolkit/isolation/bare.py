"""Children that become whole programs, each with its own environment, folder, output file and exit code.

PROGRAM, of a server that is warm "bare", runs `python FILE` or `python -c CODE` as a fresh Python would, but torch is imported
already; of our modules none is left in `sys.modules`. What such children share is what an import leaves, the seed of Python's
hashes included. Not for CUDA, and not for a program whose environment must be set before torch is imported: for those, and any
other command, COMMAND replaces the child, of a server of any kind, as a shell's `exec` does.

>>> asked = ask(PROGRAM, {"argv": ["repro.py"], "environment": {}, "cwd": "work", "log": "log"}, server=server)
>>> asked.answer().exit_code
1
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PROGRAM, COMMAND = f"{__name__}:run", f"{__name__}:execute"
WARM = "bare"
_MODULES = ("torch", "torch._dynamo", "torch._inductor.compile_fx")
"""What a program that calls torch.compile imports in any case."""


def warm() -> None:
    """What the server does before its first child: the imports, and the answer of this CPU and compiler to Inductor's probes."""
    for name in _MODULES:
        importlib.import_module(name)
    with contextlib.suppress(Exception):  # programs then ask for it anew
        importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()


def run(program: dict[str, Any]) -> int:
    """Becomes the Python program `argv`; returns its exit code. What it prints goes to the file `log`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _enter(program)
    tempfile.tempdir = None
    ours = __name__.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == ours]:
        del sys.modules[name]
    main = sys.modules["__main__"] = ModuleType("__main__")
    code = _run(program["argv"], main)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def execute(program: dict[str, Any]) -> int:
    """Becomes the command `argv`; returns only where that cannot be run, with a shell's exit code."""
    _enter(program)
    name, *_ = argv = program["argv"]
    try:
        return os.execvp(name, argv)
    except OSError as error:
        os.write(2, f"{name}: {error.strerror}\n".encode())
        return 126 if isinstance(error, PermissionError) else 127


LIVES = {PROGRAM: run, COMMAND: execute}
"""By what was asked: the rest of the child's life."""


def _enter(program: dict[str, Any]) -> None:
    """Output, environment and folder of a program."""
    log = os.open(program["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target in (1, 2):
        os.dup2(log, target)
    os.environ.clear()
    os.environ.update(program["environment"])
    os.chdir(program["cwd"])


def _run(argv: Sequence[str], main: ModuleType) -> int:
    for folder in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        if argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            sys.path.insert(0, "")
            exec(compile(argv[1], "<string>", "exec"), vars(main))
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
