"""What a child of the fork server does under `--check 'cmd: ...'`: writes the candidate as a case folder and becomes
the command.

Eager, rungs and float64 have no part in it: the command alone decides. What is left of the server (its descriptors,
variables, signals) must not reach the command.

For example:

    ask("graphdbg.minifier.command_tasks:run", {"command": "test -d {case}", "case": ..., ...}, server=server)
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from ..dumps.store import load_graph
from ..toolkit.cutting.parts import Invalid
from ..toolkit.isolation.child import mark, report
from .tasks import emit

SHELL = "/bin/sh"


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Does not return where the command could be started: its exit code is the answer. `ready`: a case folder to be
    copied."""
    mark("build")
    case = Path(payload["folder"]) / "case"
    if payload["ready"] is None:
        try:
            emitted = emit({**payload, "out": str(case)})
        except Invalid as error:
            return {"invalid": str(error)}
        report({"nodes": emitted["nodes"], "input_bytes": emitted["input_bytes"]})
    else:
        shutil.copytree(payload["ready"], case)
        report({"nodes": len(load_graph(case).record.graph.nodes), "input_bytes": payload["input_bytes"]})
    command = payload["command"].replace("{case}", shlex.quote(str(case)))
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
        signal.signal(number, signal.SIG_DFL)
    os.chdir(payload["directory"])
    mark("command")
    os.closerange(3, 4096)
    return os.execve(SHELL, ["sh", "-c", command], payload["environment"])
