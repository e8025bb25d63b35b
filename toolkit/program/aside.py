# pyright: basic
"""Isolates a run that graphdbg makes beside the program's own call: the program's hooks on saved tensors, files and
processes, Dynamo's counters, other ranks, and output, logs and warnings stay untouched. Output of other threads passes
through.

For example:

    with own_hooks(), no_side_effects(True), counters():
        step(*args)
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .. import torch_private as t
from ..live import torch_state
from ..torch_private import all_replaced
from .records import TRACE_SIGNAL


class Outside(BaseException):
    """A run beside the program's own was about to do something that must not happen twice, such as writing a file."""


class Lost(Exception):
    """A kernel in a run beside the program's own destroyed the device context: this process can no longer use the
    device."""

    def __init__(self, part: str, rung: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.part, self.rung, self.error = part, rung, error


def own_hooks() -> contextlib.AbstractContextManager[None]:
    """Bypasses the program's hooks on saved tensors (a checkpoint counts what is saved for its backward)."""
    if t.look_up("top_saved_tensors_hooks")(False) is None:
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


@contextlib.contextmanager
def no_hooks(leaves: list[torch.Tensor]) -> Iterator[None]:
    """Disables the program's own hooks on these leaf tensors for the block: they do not belong to the function."""
    held = [(hooks, dict(hooks)) for leaf in leaves if (hooks := getattr(leaf, "_backward_hooks", None))]
    for hooks, _ in held:
        hooks.clear()  # in place: autograd keeps the dictionary
    try:
        yield
    finally:
        for hooks, kept in held:
            hooks.update(kept)


@contextlib.contextmanager
def traced(path: Path) -> Iterator[None]:
    """Inside the block, a fatal signal, or TRACE_SIGNAL, writes the stack of each thread to the file `path`. A
    faulthandler that the program enabled itself keeps the fatal signals."""
    dying = not faulthandler.is_enabled()
    try:
        file = path.open("wb")
    except OSError:  # an unwritable folder is reported with the records
        yield
        return
    with file:
        faulthandler.register(TRACE_SIGNAL, file=file, chain=True)
        faulthandler.enable(file=file) if dying else None
        try:
            yield
        finally:
            faulthandler.disable() if dying else None
            faulthandler.unregister(TRACE_SIGNAL)
    path.unlink(missing_ok=True)


_watching = threading.local()
_audited = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not getattr(_watching, "on", False):
        return
    if event == "open":
        path, mode, flags = args
        by_flags = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else by_flags
        if writes and not str(path).endswith((".pyc", os.devnull)) and ".pyc." not in str(path) and not _compiles():
            raise Outside(f"writes to {path}")
    elif event in ("socket.connect", "subprocess.Popen", "os.system") and not _compiles():
        raise Outside("connects to something" if event == "socket.connect" else "starts a process")


def _compiles() -> bool:
    """Whether Triton is the caller, ignoring frames of the standard library: it compiles a kernel of the program at its
    first launch, with a cache and a C compiler, which is harmless to repeat."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "").partition(".")[0]
        if name not in sys.stdlib_module_names:
            return name == "triton"
        frame = frame.f_back
    return False


@contextlib.contextmanager
def no_side_effects(asked: bool) -> Iterator[None]:
    """Where `asked`, raises Outside in this thread for writing a file, connecting a socket and starting a process."""
    global _audited
    if asked and not _audited:
        sys.addaudithook(_audit)
        _audited = True
    _watching.on = asked
    try:
        yield
    finally:
        _watching.on = False


def dispatch_keys() -> tuple[Any, ...]:
    """torch's dispatch keys of this thread, for `dispatch`; empty where torch lacks the names for that."""
    on, off = t.optional("dispatch_keys_on"), t.optional("dispatch_keys_off")
    return () if None in (on, off, t.optional("dispatch_keys_kept")) else (on(), off())


@contextlib.contextmanager
def dispatch(keys: tuple[Any, ...] | None = None) -> Iterator[None]:
    """Restores torch's dispatch keys of this thread after the block, in which they are the given ones, if any."""
    keys = dispatch_keys() if keys is None else keys
    with t.look_up("dispatch_keys_kept")(*keys) if keys else contextlib.nullcontext():
        yield


def let_go(error: BaseException | None) -> None:
    """Empties the frames of an error and of those that caused it: they may hold guards that change torch's dispatch
    keys when they go, after a compile that failed."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


@contextlib.contextmanager
def counters() -> Iterator[None]:
    """Restores Dynamo's counters after the block."""
    known = torch_state.loaded("counters")
    before = {group: dict(held) for group, held in known.items()} if known is not None else {}
    try:
        yield
    finally:
        if known is not None:
            for group in list(known):
                known[group].clear()
                known[group].update(before.get(group, {}))


def fork_computes() -> bool:
    """Whether a fork of this process can compute: not after CUDA was initialised, and not once autograd has threads,
    which a backward starts in a torch built for GPUs, even on a machine without one. Tries a backward in a child."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return False
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException), torch.enable_grad():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            torch.ones((), device="cpu", requires_grad=True).backward()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def alone() -> bool:
    """Whether this is the only rank."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def collectives() -> int:
    """The sequence number of the default process group: it grows with each collective. 0 where this is the only
    rank."""
    return 0 if alone() else t.look_up("group_sequence_number")(torch.distributed.group.WORLD)


@contextlib.contextmanager
def replicas_alone() -> Iterator[None]:
    """Reduces DistributedDataParallel to a call of its module with the inputs moved to its device: no buffer is
    broadcast, no gradient is averaged."""

    def before(replica: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not replica.device_ids:
            return inputs, kwargs
        place = torch.device(replica.device_type, replica.device_ids[0])
        elsewhere = lambda value: isinstance(value, torch.Tensor) and value.device != place  # noqa: E731
        move = lambda value: value.to(place) if elsewhere(value) else value  # noqa: E731 - Dynamo may make a graph of it
        return t.tree_map(move, (inputs, kwargs))

    with t.swapped("ddp_before", before), t.swapped("ddp_after", lambda replica, result: result):
        yield


def watched_by() -> str:
    """Why nothing can run beside the call while a dispatch mode of the program is active; "" where none is."""
    modes = t.look_up("dispatch_mode_stack")()
    return f"it is called under {type(modes[-1]).__name__}, which would count what runs beside, too" if modes else ""


def in_backward() -> bool:
    """Whether autograd is running a backward on this thread."""
    return t.look_up("current_graph_task_id")() != -1


class _ThreadOutput:
    """A stream that captures what one thread writes, and passes the writes of other threads on."""

    def __init__(self, stream: Any, heard: io.StringIO) -> None:
        self._stream, self._heard, self._thread = stream, heard, threading.get_ident()

    def write(self, text: str) -> int:
        return (self._heard if threading.get_ident() == self._thread else self._stream).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Redirects this thread's standard output, standard error, logs and warnings into the yielded stream; no warning is
    marked as shown."""
    heard, thread, handle = io.StringIO(), threading.get_ident(), logging.Logger.handle
    ours = lambda logger, record: None if threading.get_ident() == thread else handle(logger, record)  # noqa: E731
    unheard: Any = ("ignore", None, Warning, None, 0)
    streams = [(sys, name, _ThreadOutput(getattr(sys, name), heard)) for name in ("stdout", "stderr")]
    warnings.filters.insert(0, unheard)  # type: ignore[attr-defined]  # in place: catch_warnings would make torch's warn again
    try:
        with all_replaced([*streams, (logging.Logger, "handle", ours)]):
            yield heard
    finally:
        with contextlib.suppress(ValueError):
            warnings.filters.remove(unheard)  # type: ignore[attr-defined]
