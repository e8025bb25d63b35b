"""Starts and ends recordings: `record()` around a block, or this process as GRAPHDBG and GRAPHDBG_OPTIONS ask, while
torch is still being imported.

Under `graphdbg dump` the run exists already. Without it the process picks the run's name (`origin`), passes it to its
children and prints the summary when it ends. Imports next to nothing: the hooks wait for the modules they wrap. Never
raises into the recorded program, except from `record()` for a request that makes no sense.

>>> with record("another", inputs="first"):
...     y = torch.compile(torch.sin, backend="eager")(torch.ones(2))
>>> [graph.stage for graph in open_run("another").graphs()]
['dynamo']
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...dumps.errors import GraphdbgError, said
from ...dumps.output import say
from ..live import steps
from ..torch_private import importing
from . import leaving, origin, summary
from .options import Options, checked, from_environment, parts
from .session import Session, sessions


def begin(session: Session) -> None:
    """Records into the session from here on."""
    from . import patches  # imported here: nothing that knows torch's compiler is imported before a recording begins

    sessions.append(session)
    patches.install()
    if session.options.compiled_autograd:
        from . import backward_hooks

        backward_hooks.watch(session)
    if session.options.after_step:
        importing.watch({"torch._dynamo": lambda _: _count_steps(session)})
    leaving.install(uncaught)


def _count_steps(session: Session) -> None:
    with session.guarded("counting steps"):
        steps.watch()


def uncaught(error: BaseException) -> None:
    """Passes an exception that ends the program to all sessions."""
    for session in sessions:
        session.uncaught(error)


def end(session: Session, *, programs: bool = True) -> None:
    """Ends a recording; with the last one torch is as it was. `programs`: see `Session.close`."""
    from . import patches

    if session.backwards is not None:
        session.backwards.stop()
    with contextlib.suppress(ValueError):
        sessions.remove(session)
    if not sessions:
        patches.uninstall()
        steps.forget()
    session.close(programs=programs)


@contextmanager
def record(
    run: str | os.PathLike[str],
    *,
    inputs: str = "index",
    when: str = "",
    stages: list[str] | tuple[str, ...] = (),
    keep_cache: bool = False,
    max_disk: int = 0,
    keep: int = 0,
    only: str = "",
    after_step: int = 0,
    compiled_autograd: bool = False,
) -> Iterator[Session]:
    """Records every graph that is compiled inside the block into the new run folder `run`.

    Options are those of `graphdbg dump`; `max_disk` is in bytes. Raises UsageError when `run` exists or an option is
    unknown. At the end stderr has counts, and the commands to try next.

    >>> with record("recorded", inputs="first"):
    ...     y = torch.compile(torch.cos, backend="eager")(torch.ones(2))
    >>> len(open_run("recorded").graphs())
    1
    """
    options = Options(
        run=os.fspath(run),
        inputs=inputs,
        when=parts(when),
        stages=list(stages),
        keep_cache=keep_cache,
        max_disk=max_disk,
        keep=keep,
        only=only,
        after_step=after_step,
        compiled_autograd=compiled_autograd,
    )
    session = begin_block(options)
    try:
        yield session
    except Exception as error:
        if session.holder is not None:
            session.holder.uncaught(error)
        raise
    finally:
        end(session)
        print_summary(session, in_block=True)


def begin_block(options: Options) -> Session:
    """Records what is compiled from here on into a new run. Raises UsageError when it exists or an option is
    unknown."""
    session = Session(checked(options), join=False)
    session.open_run()
    begin(session)
    return session


def print_summary(session: Session, *, in_block: bool, reason: str = "", typed: Callable[[str], str] = str) -> None:
    """Prints the summary, from what is on disk. `reason`: why there may be nothing; `typed`: how commands are written
    in it."""
    try:
        for line in summary.lines(
            session.path, in_block=in_block, errors=session.errors, reason=reason, created=session.join, typed=typed
        ):
            say(line)
    except (GraphdbgError, OSError) as error:
        say(f"graphdbg: {said(error)}")


def start_from_environment(run: str) -> Session:
    """Records this process until it ends. Raises GraphdbgError when GRAPHDBG_OPTIONS make no sense."""
    options = from_environment(run)
    if options.wrapped:
        return _started(Session(options, join=True), prints=False)
    rank, restart = origin.rank_and_restart()
    job, owner = origin.job(rank), origin.OWNER not in os.environ
    wanted = options.run
    if owner:
        options.run = str(origin.choose(wanted, job=job, rank=rank, restart=restart))
        if options.run != wanted and not rank:
            say(f"graphdbg: {wanted} exists and runs are never overwritten; recording into {options.run}")
        os.environ[origin.OWNER], os.environ[origin.JOB] = options.run, job
    else:
        options.run = os.environ[origin.OWNER]
    return _started(Session(options, join=not owner, job=job, wanted=wanted), prints=owner and not rank)


def _started(session: Session, *, prints: bool) -> Session:
    if session.options.seen:
        with contextlib.suppress(OSError):  # this process may outlive `graphdbg dump`, which deletes the file
            summary.leave_trace(session.options.seen)
    begin(session)
    pid = os.getpid()

    def at_exit() -> None:
        end(session, programs=not session.options.wrapped)
        if prints and os.getpid() == pid:
            print_summary(session, in_block=False)
        else:
            for text in session.unreported:
                say(f"graphdbg: process {os.getpid()}: not recorded, {text}")

    atexit.register(at_exit)
    return session
