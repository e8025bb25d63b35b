"""Runs programs in fresh processes, each with its own Inductor cache and without a recorder.

They get an environment by allow-list, an empty working folder and no graphdbg. A private cache starts as a copy of the
toolchain probes (vector instruction sets of this CPU, 12 to 30 s otherwise), never with a compiled graph or kernel.
With a `bare` fork server a run is a child of a Python that has imported torch but not graphdbg: such runs share that
import and the seed of Python's hashes, but no cache, folder or compiled code.

>>> run_command([sys.executable, "-c", "print(1)"], limit_s=60).output
'1\\n'
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...dumps.errors import EnvironmentLackError
from .cache import furnish
from .child import COMMAND, PROGRAM
from .client import FORKING, ForkServer, fork_server, program_environment
from .processes import owned
from .protocol import ask

LIMIT_S = 800.0
"""More than twice the longest wait of a repro of a hang (`suite.MOST_S`), plus its start."""
_NO_LIMIT_S = 1e9
"""The limit given to the server: this module watches the time itself, so that a run can also be stopped."""
_LOG_CHARACTERS = 4_000_000

BUG, GONE, UNSURE = 1, 0, 2
"""Exit codes of a repro."""


@dataclass(frozen=True)
class FreshRun:
    """One run: the exit code (negative: the signal; None: over the time limit), what it printed, and its time."""

    code: int | None
    output: str
    seconds: float


def run_once(
    program: Path, *flags: str, limit_s: float = LIMIT_S, python: str = sys.executable, **how: Any
) -> FreshRun:
    """Runs one fresh process of a program. `how`: arguments of `run_command`."""
    trial = run_command([python, str(program.resolve()), *flags], limit_s=limit_s, **how)
    return replace(trial, output=trial.output.replace(f"{program.resolve().parent}{os.sep}", ""))


def run_command(
    command: Sequence[str],
    *,
    limit_s: float,
    seed: Path | None = None,
    stop: threading.Event | None = None,
    after: Callable[[Path], None] | None = None,
    path: Sequence[str] = (),
    bare: ForkServer | None = None,
    wall: Collection[str] | None = None,
    user: Mapping[str, str] | None = None,
) -> FreshRun:
    """Runs any command in such a process; `after` may read the working folder before it is deleted.

    `seed`: a folder of toolchain probes to copy into the private cache; None: the cache starts empty. `path`: folders
    with its modules besides torch. `stop`: set from another thread, ends the run at once. `bare`: a server in which the
    run starts, with torch imported. `wall`: the mechanisms to shut it in (see `isolation.wall`), as in `bare`. `user`:
    variables in place of the allow-list's.
    """
    with owned("graphdbg-verify-") as scratch:
        cache, tmp, cwd, home = (scratch / name for name in ("cache", "tmp", "cwd", "home"))
        for folder in (cache, tmp, cwd, home):
            folder.mkdir()
        furnish(scratch, seed, safely=wall is not None)
        environment, ran = program_environment(cache, tmp, path, user), None
        if wall is not None:
            environment |= {"HOME": str(home), "PYTHONUSERBASE": site.getuserbase()}
        started = time.monotonic()
        if bare is not None and command[0] == sys.executable and (command[1] == "-c" or not command[1].startswith("-")):
            with contextlib.suppress(EnvironmentLackError):
                ran = _ran(bare, PROGRAM, command[1:], environment | FORKING, cwd, limit_s, stop)
        if ran is None:
            with fork_server("nothing", (), wall=wall) as server:
                server.wait_ready()
                ran = _ran(server, COMMAND, command, environment, cwd, limit_s, stop)
        code, output = ran
        if after is not None:
            after(cwd)
        return FreshRun(code, output.replace(f"{scratch}{os.sep}", ""), time.monotonic() - started)


def run_many(program: Path, times: int, *flags: str, **how: Any) -> list[FreshRun]:
    """Runs several fresh processes, as many at once as there are cores; an interrupt ends them all. `how`: arguments of
    `run_once`."""
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, min(times, (os.cpu_count() or 1)))) as pool, ending(stop):
        runs = [pool.submit(run_once, program, *flags, stop=stop, **how) for _ in range(times)]
        return [run.result() for run in runs]


@contextlib.contextmanager
def ending(stop: threading.Event) -> Generator[None]:
    """Sets `stop` when an exception, such as an interrupt, leaves the block, so that no process runs on unattended."""
    try:
        yield
    except BaseException:
        stop.set()
        raise


def _ran(
    server: ForkServer,
    task: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    limit_s: float,
    stop: threading.Event | None,
) -> tuple[int | None, str]:
    """Exit code (None: over the limit, or stopped) and output of a program; it and all that it starts die with this
    process, too.

    Raises EnvironmentLackError where the server has died.
    """
    log, deadline = cwd.parent / "log", time.monotonic() + limit_s
    log.touch()
    about = {"argv": list(argv), "environment": dict(environment), "cwd": str(cwd), "log": str(log)}
    asked, code = ask(task, about, _NO_LIMIT_S, server=server), None
    while time.monotonic() < deadline and not (stop is not None and stop.is_set()):
        with contextlib.suppress(TimeoutError):
            asked.answer(0.2)
            code = asked.end().exit_code
            break
    else:
        asked.kill()
        with contextlib.suppress(TimeoutError):
            asked.answer(5)
    return code, log.read_text(errors="replace")[-_LOG_CHARACTERS:]
