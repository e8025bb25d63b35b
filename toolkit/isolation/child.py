"""What a forked child does: bind itself to its limits, call the asked function, leave its answer in a file, exit.

It ends with os._exit, so that it neither returns to the server's loop nor flushes the server's buffers nor runs its
exit handlers.

>>> from graphdbg.toolkit.isolation.child import mark
>>> mark("compile")        # inside a task: the stage that a segfault or a time-out is charged to
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import runpy
import select
import signal
import sys
import tempfile
import termios
import threading
import time
import traceback
import tty
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps import trust
from .imports import import_modules
from .processes import bind_child
from .protocol import ChildError, Query, frames_of

if TYPE_CHECKING:
    from .protocol import PendingTask

TERMINAL = "terminal"
"""Payload key that names the terminal device for the child."""
_BLOCK = 1 << 16


def join_terminal(name: str) -> None:
    """Makes a terminal this process's controlling terminal, as leader of a new session: its stdin, stdout and stderr,
    and the source of Ctrl-C."""
    handle = os.open(name, os.O_RDWR)
    for number in range(3):
        os.dup2(handle, number)
    if handle > 2:
        os.close(handle)
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


class NewTerminal:
    """A new pseudo-terminal. `name`: the device for the child."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        self.name = os.ttyname(self._theirs)

    def __enter__(self) -> NewTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self._ours, self._theirs):
            os.close(handle)

    def join(self, asked: PendingTask, stdin: int = 0, stdout: int = 1) -> None:
        """Passes bytes between this process and the terminal until the query has ended; `stdin` must be a terminal."""
        ended, end = os.pipe()

        def wait() -> None:
            for _ in asked:
                pass
            os.write(end, b"x")

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        try:
            with _raw(stdin), self._sized_like(stdin):
                self._carry(stdin, stdout, ended)
        finally:
            asked.kill()
            waiting.join()
            for handle in (ended, end):
                os.close(handle)

    def _carry(self, stdin: int, stdout: int, ended: int) -> None:
        sources = [stdin, self._ours, ended]
        while True:
            ready = select.select(sources, [], [])[0]
            if self._ours in ready:
                _write(stdout, os.read(self._ours, _BLOCK))
            elif ended in ready:
                return
            if stdin in ready:
                typed = os.read(stdin, _BLOCK)
                _write(self._ours, typed or b"\x04")
                if not typed:  # end of file: nothing more will be typed
                    sources.remove(stdin)

    @contextlib.contextmanager
    def _sized_like(self, stdin: int) -> Iterator[None]:
        def size(*_: object) -> None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, fcntl.ioctl(stdin, termios.TIOCGWINSZ, bytes(8)))

        size()
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGWINCH, size) if main else None
        try:
            yield
        finally:
            if main:
                signal.signal(signal.SIGWINCH, before)


@contextlib.contextmanager
def _raw(stdin: int) -> Iterator[None]:
    """Sets the terminal to raw mode: it passes each key on at once, Ctrl-C too."""
    before = termios.tcgetattr(stdin)
    try:
        tty.setraw(stdin, termios.TCSANOW)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(stdin, termios.TCSANOW, before)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


TRACE_SIGNAL = signal.SIGUSR1
"""Sent by the server before it kills a child for its time limit: faulthandler then prints where the child hangs."""

_MEMORY_WORDS = ("can't allocate memory", "std::bad_alloc", "out of memory", "cannot allocate memory")

_mark_fd: int | None = None
_events_fd: int | None = None
_began = 0.0
_marks: list[tuple[str, float]] = []


class Reply(msgspec.Struct, omit_defaults=True):
    """The child's own part of an answer, left in a file for the server."""

    value: Any = None
    error: ChildError | None = None
    memory: bool = False
    marks: list[tuple[str, float]] = []


def mark(stage: str) -> None:
    """Records the stage that the task enters ("compile", "run"), so that the answer names it even after a segfault;
    no-op elsewhere. The task first waits for pending device work (`execution.settle`), which belongs to the stage
    before."""
    if _mark_fd is not None:
        _marks.append((stage, time.monotonic() - _began))
        os.ftruncate(_mark_fd, 0)
        os.pwrite(_mark_fd, stage.encode(), 0)


def report(event: Any) -> None:
    """Sends an event (with a JSON form) to the asking process at once, so that it outlives this process; no-op
    elsewhere.

    An answer without a value carries the last event as `event`.
    """
    if _events_fd is not None:
        rest = msgspec.json.encode(event) + b"\n"
        while rest:
            rest = rest[os.write(_events_fd, rest) :]


def is_memory_error(error: BaseException) -> bool:
    """Whether an exception says that memory ran out: MemoryError, torch's allocator, std::bad_alloc, CUDA's
    OutOfMemoryError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(word in str(error).lower() for word in _MEMORY_WORDS)


def failure_of(error: BaseException) -> ChildError:
    """Describes an exception: its type, text, traceback, and module:function of its frames, innermost first."""
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    text = "".join(traceback.format_exception(cls, error, error.__traceback__))
    return ChildError(name, str(error), text[-20_000:], frames_of(error)[:40])


def run_child(
    query: Query, folder: Path, output_fd: int, events_fd: int, server: int, enter: Callable[[], object]
) -> None:
    """The whole life of a child, from just after fork to os._exit. `folder` receives the files `reply` and `mark`.
    `enter` puts the child behind the wall, where its query asks for that.
    """
    global _began, _events_fd
    _events_fd = events_fd
    _began = time.monotonic()
    code = 70
    try:
        code = _live(query, folder, output_fd, server, enter)
    finally:
        os._exit(code)


def _live(query: Query, folder: Path, output_fd: int, server: int, enter: Callable[[], object]) -> int:
    global _mark_fd
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    bind_child(server, query.memory_bytes)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(output_fd)
    if terminal := query.payload.get(TERMINAL):
        join_terminal(terminal)
    enter()
    if query.trusted:
        trust.settle()
    if (become := LIVES.get(query.function)) is not None:
        return become(query.payload)
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.enable(file=2, all_threads=False)
    faulthandler.register(TRACE_SIGNAL, file=2, all_threads=False)
    _mark_fd = os.open(folder / "mark", os.O_RDWR | os.O_CREAT, 0o600)
    reply, code = _answer(query)
    part = folder / "reply.part"
    part.write_bytes(_encode(reply))
    part.rename(folder / "reply")
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _answer(query: Query) -> tuple[Reply, int]:
    try:
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(query.threads)
        if query.payload.get("imports"):
            mark("import")
            import_modules(query.payload["imports"])
        module, _, name = query.function.partition(":")
        return Reply(value=getattr(import_module(module), name)(query.payload), marks=_marks), 0
    except BaseException as error:  # noqa: BLE001  the verdict of a query is whatever was raised, SystemExit included
        return Reply(error=failure_of(error), memory=is_memory_error(error), marks=_marks), 1


def _encode(reply: Reply) -> bytes:
    try:
        return msgspec.json.encode(reply)
    except TypeError as error:
        return msgspec.json.encode(Reply(error=ChildError("TypeError", f"the task's value has no JSON form: {error}")))


PROGRAM, COMMAND = f"{__name__}:run", f"{__name__}:execute"
"""Tasks of children that become whole programs, each with its own environment, folder, output file and exit code.

PROGRAM needs a server that is warm "bare": it runs `python FILE` or `python -c CODE` as a fresh Python would, except
that torch is imported already; no module of graphdbg is left in `sys.modules`. Such children share only what an import
leaves, and the seed of Python's hashes. Not for CUDA, nor for a program whose environment must be set before torch is
imported: for those, and for any other command, COMMAND replaces the child (of any server), as a shell's `exec` does.

>>> asked = ask(PROGRAM, {"argv": ["repro.py"], "environment": {}, "cwd": "work", "log": "log"}, server=server)
>>> asked.answer().exit_code
1
"""
WARM = "bare"
_MODULES = ("torch", "torch._dynamo", "torch._inductor.compile_fx")
"""Modules that any program with torch.compile imports."""


def warm() -> None:
    """Prepares the server before its first child: imports modules, and lets Inductor probe this CPU and compiler."""
    for name in _MODULES:
        import_module(name)
    with contextlib.suppress(Exception):  # programs then probe for themselves
        import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()


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
"""Task -> the function that the child becomes."""


def _enter(program: dict[str, Any]) -> None:
    """Sets output, environment and folder of a program."""
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
    except BaseException as error:  # noqa: BLE001  as at any program's end
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as end:  # an excepthook may set the exit code
            return end.code & 0xFF if isinstance(end.code, int) else 1
        return 1
    return 0
