"""Minifying a saved graph with isolated queries: sanity, search, other axes, verification, the case on disk.

>>> result = minify_saved(load_graph("myrun/0_0/forward"), out=Path("small"))
>>> result.verified, result.path
((3, 3), PosixPath('small/case'))
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dumps.compressed import stored
from ..dumps.errors import GraphdbgError, UsageError
from ..dumps.reading import read_bytes
from ..toolkit.isolation import Servers, default_memory_bytes, fork_server
from ..toolkit.recorder.summary import shown_path
from ..toolkit.signature import VERSION as SIGNATURE_VERSION
from .command import TASK, CommandOracle
from .events import Ended, Follow, Happening, Started
from .executors import executor_for
from .executors.elsewhere import Elsewhere
from .executors.worker import Settings
from .found import Event, Interrupted
from .journal import Journal
from .life import Life
from .minified import Minified
from .options import Options
from .oracle import PRELOAD, PREPARED, Oracle, first_limit_s
from .results import WORK
from .session import SANITY, Session
from .steering import Steering

if TYPE_CHECKING:
    from ..dumps.store import SavedGraph

JOURNAL_FILE = "journal.jsonl"
COMMAND_TASKS = TASK.partition(":")[0]
OUTPUT = "output"
"""In OUT: what a command of the user's printed, a file per query."""
VALUES = "values"
"""In the work folder: what candidates are built from."""


def minify_saved(
    saved: SavedGraph,
    *,
    out: Path,
    options: Options | None = None,
    resume: bool = False,
    named: str = "",
    directory: str = "",
    on_event: Callable[[Event], None] | None = None,
    narrate: Callable[[str], None] = lambda text: None,
    tell: Follow = lambda event: None,
    life: Life | None = None,
    executor: Executor | None = None,
) -> Minified:
    """Reduces a saved graph; `out` receives case/, journal.jsonl and events.jsonl. Raises as `minify` does.

    `named`: the graph as the user names it. `directory`: where a command of the user's runs; default: here. `life`: held by a
    caller who has something to do in OUT afterwards. `executor`: its workers judge, each by a fork server of its own (see
    `executors`), `options.jobs` at a time; else `options.executor` names one. What candidates are built from lies in OUT/.work
    until all is done, so that an interrupted minification needs to record it only once.
    """
    if life is None:
        with Life(out, resume=resume, complain=narrate) as own:
            return minify_saved(
                saved, out=out, options=options, resume=resume, named=named, directory=directory, on_event=on_event,
                narrate=narrate, tell=tell, life=own, executor=executor,
            )  # fmt: skip
    from ..toolkit.rungs import NAMES
    from ..toolkit.rungs import rung as known

    options = (options or Options()).checked()
    if options.rung not in NAMES:  # else its module would bring torch into this process
        known(options.rung)
    if options.slower_than is not None and options.jobs > 1:
        options = replace(options, jobs=1)
        narrate("-j is 1: what is timed runs alone (--slower-than)")
    if executor is not None and options.command is not None:
        why = "your command is on this machine"
        raise UsageError("executor and check 'cmd: ...' do not go together", why, "leave executor out")
    work = out / WORK
    directory = directory or str(Path.cwd())
    path = saved.path.absolute()
    useless = False

    def told(event: Happening) -> None:
        life.tell(event)
        tell(event)

    def said(text: str) -> None:
        life.say(text)
        narrate(text)

    try:
        with ExitStack() as stack:
            about = {"graph": str(path), "options": options.to_json(), "directory": directory}
            journal = Journal(out / JOURNAL_FILE, _header(saved, options), about=about, resume=resume)
            stack.callback(journal.close)
            told(Started(named or shown_path(path), str(out), options.to_json(), journal.known))
            # The pool is left after the server is closed, which resolves whatever its threads still wait for.
            pool = stack.enter_context(ThreadPoolExecutor(max(options.jobs, SANITY + 1)))
            memory = options.memory_limit or default_memory_bytes(options.jobs)
            server = stack.enter_context(fork_server(threads=1, memory_bytes=memory, **_warmth(options)))
            if not (work / VALUES / PREPARED).exists():
                shutil.rmtree(work / VALUES, ignore_errors=True)
            (work / VALUES).mkdir(parents=True, exist_ok=True)
            servers: Servers = server
            if (pool_of_workers := executor or stack.enter_context(executor_for(options, saved, said))) is not None:
                settings = Settings(options.jobs, options.memory_limit, path=tuple(sys.path), **_warmth(options))
                servers = stack.enter_context(Elsewhere(server, pool_of_workers, settings))
            place = (path, work / VALUES, servers, options, first_limit_s(options))
            if options.command is None:
                oracle = Oracle(*place, named=named or shown_path(path))
            else:
                oracle = CommandOracle(*place, named=named or shown_path(path), output=out / OUTPUT, directory=directory)
            steering = stack.enter_context(Steering(out, journal, told, without=options.without, abort=oracle.abort))
            session = Session(oracle, journal, out, options, narrate=said, tell=told, on_event=on_event, steering=steering)
            try:
                result = session.run(pool)
                result.notes += oracle.asking.deaths()
            except Interrupted as interrupted:
                interrupted.minified.notes += oracle.asking.deaths()
                life.end(_ended("interrupted", interrupted.minified))
                raise
            except GraphdbgError as error:  # it does not fail, or cannot be asked: nothing to go on with
                useless = not resume and (isinstance(error, UsageError) or not session.originals)
                raise
    finally:
        if useless:  # only now, that the pool is left: its threads write into OUT
            shutil.rmtree(out)
    shutil.rmtree(work, ignore_errors=True)
    life.end(_ended("reduced", result))
    return result


def _ended(verdict: str, result: Minified) -> Ended:
    return Ended(
        verdict, result.stopped or "", str(result.path), result.nodes, result.input_bytes, result.queries
    )


def _warmth(options: Options) -> dict[str, Any]:
    """What the server imports: a command compiles by itself, if at all."""
    if options.command is None:
        return {"preload": PRELOAD}
    return {"warm": "torch", "preload": (COMMAND_TASKS,)}


def _header(saved: SavedGraph, options: Options) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=16)
    for name in ("graph.json", "inputs.json"):
        if stored(saved.path / name) is not None:
            digest.update(read_bytes(saved.path / name))
    return {
        "case": digest.hexdigest(), **options.asked(), "torch": version("torch"), "signature": SIGNATURE_VERSION,
    }  # fmt: skip
