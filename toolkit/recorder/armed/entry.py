"""`graphdbg.arm()` and `graphdbg.save_repro()`; GRAPHDBG_ARM=1 arms a process when it imports torch.

For example:

    import graphdbg; graphdbg.arm()
    try:
        train()
    except FloatingPointError:
        graphdbg.save_repro(minify=True)
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....dumps.errors import UsageError
from ....dumps.output import say
from ...torch_private import importing
from .. import leaving, patches
from ..session import sessions
from .session import HOOKS, Armed, watch_backwards

VARIABLE = "GRAPHDBG_ARM"


def arm(*, minify: bool = False, max_time: float = 300.0) -> None:
    """Keeps what this process compiles from here on, and the inputs of each graph's last call, so that a failure leaves
    a run.

    What is compiled before is not seen. A call that raises, or an exception that ends the program, is written as the
    run graphdbg-armed-N when the process ends; with `minify` it is minified then too, within `max_time` seconds, by a
    process of its own. `save_repro` writes at any time. A process that is killed leaves its ring to the next `graphdbg`
    command. Costs: 64 MB of disk, at most; a second call only changes what is asked for. Nothing is kept while a
    recording (`record`, `graphdbg dump`) goes on.
    """
    try:
        begin(minify=minify, max_time=max_time)
    except (OSError, RuntimeError) as error:  # the program goes on
        say(f"graphdbg: not armed: no ring can be made ({error}); set XDG_STATE_HOME to a folder that can be written")


def begin(*, at_end: bool = True, minify: bool = False, max_time: float = 300.0) -> Armed:
    """Starts the ring of this process, which is removed when it ends. Imports nothing of torch's."""
    there = armed()
    if there is not None:
        there.at_end, there.minify, there.max_time = at_end, minify, max_time
        return there
    session = Armed(at_end=at_end, minify=minify, max_time=max_time)
    sessions.insert(0, session)
    if len(sessions) == 1:
        patches.install(HOOKS)
    importing.watch({"torch.autograd.graph": lambda _: watch_backwards()})
    leaving.install(_uncaught)
    atexit.register(end)
    return session


def armed() -> Armed | None:
    """The ring of this process, or None."""
    return next((session for session in sessions if isinstance(session, Armed)), None)


def end() -> None:
    """Writes what went wrong, and removes the ring."""
    session = armed()
    if session is None:
        return
    sessions.remove(session)
    if not sessions:
        patches.uninstall()
    session.close()


def _uncaught(error: BaseException) -> None:
    for session in sessions:
        session.uncaught(error)


def start_from_environment(value: str) -> None:
    """GRAPHDBG_ARM: 1, or minify; pytest's plugin sets pytest, for this process alone."""
    if value == "pytest":
        del os.environ[VARIABLE]
    if value not in ("", "0"):
        begin(at_end=value != "pytest", minify=value == "minify")


def save_repro(
    fn: Callable[..., Any] | None = None,
    *,
    run: str | os.PathLike[str] | None = None,
    minify: bool = False,
    max_time: float = 300.0,
) -> Path:
    """Writes the graphs of the last step of an armed process, with the inputs of their last calls, as a run; returns
    its folder.

    Where a call raised, that graph alone. `fn`: only graphs of this function or module (compiled, or what was
    compiled). `run`: a new folder; default graphdbg-armed-N here. With `minify` a process of its own minifies it,
    within `max_time` seconds, into RUN-minified (case/, repro.py, issue.md). What was overwritten since the calls is
    reported on stderr and in the run's journal. Raises UsageError where nothing was compiled since `arm()`, nothing of
    `fn`, or `run` exists.
    """
    session = armed()
    if session is None:
        raise UsageError(
            "cannot save a repro", "this process is not armed", "call graphdbg.arm() first, or set GRAPHDBG_ARM=1"
        )
    from .saving import said_of, save

    saved = save(session, fn, Path(run) if run is not None else None)
    said_of(session, saved, minify=minify, max_time=max_time)
    return saved.path
