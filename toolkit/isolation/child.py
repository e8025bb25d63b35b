"""What a forked child does: bind itself to its limits, call the asked function, leave its answer in a file, exit.

Must not return to the server's loop, flush the server's buffers, or run its exit handlers: it ends with os._exit.

>>> from graphdbg.toolkit.isolation.child import mark
>>> mark("compile")        # inside a task: the stage that a segfault or a time-out is charged to
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from ..imports import import_modules
from . import bare
from .processes import bind_child
from .protocol import Failure, Query

TRACE_SIGNAL = signal.SIGUSR1
"""The server sends it before it kills a child for time: faulthandler then prints where the child hangs."""

_MEMORY_WORDS = ("can't allocate memory", "std::bad_alloc", "out of memory", "cannot allocate memory")

_mark_fd: int | None = None
_events_fd: int | None = None
_began = 0.0
_marks: list[tuple[str, float]] = []


class Reply(msgspec.Struct, omit_defaults=True):
    """The child's own part of an answer, left in a file for the server."""

    value: Any = None
    error: Failure | None = None
    memory: bool = False
    marks: list[tuple[str, float]] = []


def mark(stage: str) -> None:
    """Notes the stage that the task enters ("compile", "run"), so that an answer tells it even after a segfault; no-op
    elsewhere. What a device still has to do belongs to the stage before: the task waits for it first (`execution.settle`).
    """
    if _mark_fd is not None:
        _marks.append((stage, time.monotonic() - _began))
        os.ftruncate(_mark_fd, 0)
        os.pwrite(_mark_fd, stage.encode(), 0)


def report(event: Any) -> None:
    """Hands an event (with a JSON form) to whoever asked, at once, so that it outlives this process; no-op elsewhere.

    An answer without a value has the last one as `told`.
    """
    if _events_fd is not None:
        rest = msgspec.json.encode(event) + b"\n"
        while rest:
            rest = rest[os.write(_events_fd, rest) :]


def is_memory_error(error: BaseException) -> bool:
    """Whether an exception says that memory ran out: MemoryError, torch's allocator, std::bad_alloc, CUDA's OutOfMemoryError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(word in str(error).lower() for word in _MEMORY_WORDS)


def failure_of(error: BaseException) -> Failure:
    """Describes an exception: its type, text, traceback, and module:function of its frames, innermost first."""
    cls = type(error)
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_name}"
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    text = "".join(traceback.format_exception(cls, error, error.__traceback__))
    return Failure(name, str(error), text[-20_000:], frames[::-1][:40])


def run_child(query: Query, folder: Path, output_fd: int, events_fd: int, server: int) -> None:
    """The whole life of a child, from just after fork to os._exit. `folder` receives `reply` and `mark`."""
    global _began, _events_fd
    _events_fd = events_fd
    _began = time.monotonic()
    code = 70
    try:
        code = _live(query, folder, output_fd, server)
    finally:
        os._exit(code)


def _live(query: Query, folder: Path, output_fd: int, server: int) -> int:
    global _mark_fd
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    bind_child(server, query.memory_bytes)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(output_fd)
    if (become := bare.LIVES.get(query.function)) is not None:
        return become(query.payload)
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.enable(file=2, all_threads=False)
    faulthandler.register(TRACE_SIGNAL, file=2, all_threads=False)
    _mark_fd = os.open(folder / "mark", os.O_RDWR | os.O_CREAT, 0o600)
    reply, code = _answer(query)
    _write(folder, "reply", _encode(reply))
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _write(folder: Path, name: str, data: bytes) -> None:
    part = folder / f"{name}.part"
    part.write_bytes(data)
    part.rename(folder / name)


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
        return msgspec.json.encode(Reply(error=Failure("TypeError", f"the task's value has no JSON form: {error}")))
