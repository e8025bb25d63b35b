"""Starts the recording of this process as GRAPHDBG and GRAPHDBG_OPTIONS ask; called while torch is still being imported.

Under `graphdbg dump` the run is there already. Without it the process picks the run's name (`naming`), hands it to its children
and tells the summary when it ends. Must import next to nothing: the hooks wait for the modules they wrap.

>>> start_from_environment("myrun")
"""

from __future__ import annotations

import atexit
import contextlib
import os
from pathlib import Path

from ...dumps.output import say
from . import naming, summary
from .options import from_environment
from .origin import rank_and_restart
from .session import Session, begin, end, tell


def start_from_environment(run: str) -> Session:
    """Records this process until it ends. Raises GraphdbgError when GRAPHDBG_OPTIONS make no sense."""
    options = from_environment(run)
    if options.wrapped:
        return _started(Session(options, join=True), tells=False)
    rank, restart = rank_and_restart()
    job, owner = naming.job(rank), naming.OWNER not in os.environ
    wanted = options.run
    if owner:
        options.run = str(Path(_free_or_ours(wanted, job, rank, restart)))
        os.environ[naming.OWNER], os.environ[naming.JOB] = options.run, job
    else:
        options.run = os.environ[naming.OWNER]
    return _started(Session(options, join=not owner, job=job, wanted=wanted), tells=owner and not rank)


def _started(session: Session, *, tells: bool) -> Session:
    if session.options.seen:
        with contextlib.suppress(OSError):  # the file went with `graphdbg dump`, which this process outlives
            summary.leave_trace(session.options.seen)
    begin(session)
    pid = os.getpid()

    def at_exit() -> None:
        end(session, programs=not session.options.wrapped)
        if tells and os.getpid() == pid:
            tell(session, in_block=False)
        else:
            for text in session.untold():
                say(f"graphdbg: process {os.getpid()}: not recorded, {text}")

    atexit.register(at_exit)
    return session


def _free_or_ours(run: str, job: str, rank: int | None, restart: int) -> str:
    chosen = str(naming.choose(run, job=job, rank=rank, restart=restart))
    if chosen != run and not rank:
        say(f"graphdbg: {run} exists and runs are never overwritten; recording into {chosen}")
    return chosen
