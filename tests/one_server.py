"""One warm fork server for each pytest worker: who starts one of the usual kind is given that one, and closing it
leaves it.

A server costs 5 to 8 s of CPU before its first query, and what one has compiled, the next compiles again. It is the
real server and the real protocol; only its process outlives the `ForkServer` that asks. Time, threads and memory are
limits of each query, so they stay those of the asking one. A server of its own is started, as always, by whoever wants
a bare one (`warm="nothing"`), a cache of its own, other variables or a folder of modules that the shared one does not
know, and by a test marked `own_server`. The server of whole programs (`programs`), another 7 s, is lent in the same
way.

>>> with ForkServer(preload=PRELOAD) as server:       # inside `lending()`: the worker's
...     ask(TASK, payload, server=server)
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphdbg.toolkit.isolation import client
from graphdbg.toolkit.isolation.child import PROGRAM, WARM
from graphdbg.toolkit.isolation.client import ForkServer, Pending, _ServerProcess, server_environment
from graphdbg.toolkit.isolation.wall import PARTS

TESTS = Path(__file__).resolve().parent
PLANTED = str(TESTS / "planted")
"""Where the faults are that commands are given by --import; in the shared server's path, whether or not it is in
ours."""
PRELOAD = (
    "graphdbg.toolkit.judging.judge",
    "graphdbg.toolkit.live.case:warm",
    "graphdbg.toolkit.replaying.fidelity",
    "graphdbg.dumps.store",
    "graphdbg.dumps.torchside.decode",
    "graphdbg.dumps.torchside.make_inputs",
    "graphdbg.dumps.torchside.encode",
    "graphdbg.toolkit.rungs.eager",
    "graphdbg.toolkit.rungs.nop",
    "graphdbg.toolkit.rungs.inductor",
    "graphdbg.toolkit.rungs.decomposed",
    "graphdbg.toolkit.rungs.inductor_nofuse",
    "graphdbg.toolkit.rungs.torchscript",
    "graphdbg.toolkit.live.spec",
    "graphdbg.toolkit.debug_nop.checking",
    "graphdbg.toolkit.blame.bisect_asking",
    "graphdbg.toolkit.blame.switching",
    "graphdbg.toolkit.blame.node_tasks",
    "graphdbg.toolkit.compile_fx.showing.child",
    "graphdbg.toolkit.replaying.node_stats",
    "graphdbg.toolkit.node_values.standing",
    "graphdbg.minifier.tasks",
    "graphdbg.minifier.tasks",
    "graphdbg.toolkit.recorder.session",
)
"""What the usual servers import once; what is missing here is imported by the child that needs it."""
HARMLESS = frozenset(
    {
        "PYTEST_CURRENT_TEST",
        "PWD",
        "OLDPWD",
        "COLUMNS",
        "LINES",
        "TERM",
        "EDITOR",
        "VISUAL",
        "TMUX",
        "NO_COLOR",
        "FORCE_COLOR",
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
    }
)
"""Variables that no child looks at."""
_BLOCK = 1 << 20


class Lender:
    """The servers of this worker, a usual one and one of programs: started by the first who asks, and again after a
    death."""

    own = False
    """Whether the running test is about servers, and gets its own."""

    def __init__(self, cache: Path) -> None:
        self.cache, self.place = cache, tempfile.gettempdir()
        self.variables = _variables()
        self.modules = Path(tempfile.mkdtemp(prefix="tests-modules-"))
        """Modules that tests write for children go here."""
        self.path = [*filter(None, sys.path), PLANTED, str(self.modules)]
        self.processes: dict[str, _ServerProcess] = {}
        self.lent: list[_ServerProcess] = []
        """All that were ever handed out."""

    def lends(self, asking: ForkServer) -> bool:
        """Whether the shared server can stand for the one that is asked for."""
        known = asking._cache_dir is None or asking._cache_dir == self.cache
        unknown = [item for item in sys.path if item and item not in self.path and not item.startswith(sys.prefix)]
        return (
            not (self.own or unknown or asking._settings["warm"] == "nothing")
            and known
            and self.variables == _variables()
        )

    def lend(self, warm: str) -> _ServerProcess:
        """The process, which is alive. `warm`: what was asked for, of which programs have a server of their own."""
        kind = WARM if warm == WARM else "inductor"
        known = self.processes.get(kind)
        if known is not None and known.owner == os.getpid() and not known.lost and known.process.poll() is None:
            return known
        if known is not None:
            known.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", self.path)
            patch.setattr(tempfile, "tempdir", self.place)
            patch.chdir(TESTS.parent)
            patch.setattr(client, "server_environment", lambda *places, **_: server_environment(*places))
            usual = {"warm": kind, "preload": list(PRELOAD), "wall": PARTS}
            result = (
                _ServerProcess({"warm": kind, "preload": []}, None)
                if kind == WARM
                else _ServerProcess(usual, self.cache)
            )
        self.processes[kind] = result
        self.lent.append(result)
        return result

    def close(self) -> None:
        """Ends them."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()


def _variables() -> dict[str, str]:
    """What a server started now would see, but for what changes nothing."""
    seen = server_environment(Path(), Path(), os.environ)
    return {name: value for name, value in seen.items() if name not in HARMLESS and not name.startswith("_TORCH")}


@contextlib.contextmanager
def lending(cache: Path) -> Iterator[Lender]:
    """While open, usual fork servers of this process are one, which compiles into `cache`."""
    lender, blocks = Lender(cache), itertools.count()
    begin, submit, started, stop = ForkServer.__init__, ForkServer.submit, ForkServer._started, ForkServer._stop

    def beginning(self: ForkServer, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self._last_id = next(blocks) * _BLOCK  # numbers of queries and scratch files are the process's

    def submitting(self: ForkServer, function: str, payload: dict[str, Any], *args: Any, **options: Any) -> Pending:
        shared = function != PROGRAM and (self._process in lender.lent or lender.lends(self))
        options.setdefault("ours", client.trusted(payload))
        if shared and function != "tests.in_folder:call" and (here := Path.cwd()) != TESTS.parent:
            function, payload = "tests.in_folder:call", {"folder": str(here), "function": function, "payload": payload}
        return submit(self, function, payload, *args, **options)

    def starting(self: ForkServer) -> _ServerProcess:
        if self._process in lender.lent or (self._process is None and lender.lends(self)):
            self._process = lender.lend(self._settings["warm"])
            return self._process
        return started(self)

    def stopping(self: ForkServer) -> None:
        process = self._process
        if process not in lender.lent:
            stop(self)
            return
        self._process = None
        if process.owner != os.getpid():
            return
        with process.lock:
            owed = [item for number, item in process.pending.items() if number // _BLOCK == self._last_id // _BLOCK]
        for pending in owed:  # as the end of its server would
            process.kill(pending.query)
            pending._resolve(process._lost(pending.query))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.ForkServer, "__init__", beginning)
        patch.setattr(client.ForkServer, "submit", submitting)
        patch.setattr(client.ForkServer, "_started", starting)
        patch.setattr(client.ForkServer, "_stop", stopping)
        try:
            yield lender
        finally:
            lender.close()
            shutil.rmtree(lender.modules)
