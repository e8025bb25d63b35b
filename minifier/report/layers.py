"""Which layer of torch.compile is the first to fail on a repro: the program itself, run once under each stock backend.

One fresh process for all backends but Inductor's (whose answer is the verification itself). Only for a repro that enters through
plain `torch.compile`; one that enters behind AOTAutograd has its layer by construction.

>>> sentence({"eager": 0, "aot_eager": 0, "aot_eager_decomp_partition": 0}, "inductor")
'inductor (eager, aot_eager and aot_eager_decomp_partition pass)'
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...toolkit.isolation import ForkServer
from .verify import BUG, GONE, run_command

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")

_PROBE = """
import functools, json, runpy, sys, torch
program, answer, real, codes = sys.argv[1], sys.argv[2], torch.compile, {}
for backend in sys.argv[3:]:
    def compile(function, **options):
        return real(function, **{**options, "backend": backend})
    torch.compile = compile
    torch._dynamo.reset()
    try:
        runpy.run_path(program, run_name="__main__")
        codes[backend] = 0
    except SystemExit as end:
        codes[backend] = 1 if isinstance(end.code, str) else end.code or 0
    except Exception:
        codes[backend] = 2
open(answer, "w").write(json.dumps(codes))
"""


def probe(program: Path, *, limit_s: float = 120.0, stop: threading.Event | None = None,
          path: Sequence[str] = (), bare: ForkServer | None = None) -> dict[str, int]:
    """The exit code that `program` would have under each backend of BACKENDS; empty when the probe itself dies."""
    found: dict[str, int] = {}

    def read(cwd: Path) -> None:
        answer = cwd / "answer"
        if answer.exists():
            found.update(json.loads(answer.read_text()))

    run_command(
        [sys.executable, "-c", _PROBE, str(program.resolve()), "answer", *BACKENDS], limit_s=limit_s, stop=stop, after=read,
        path=path, bare=bare,
    )
    return found


def sentence(codes: Mapping[str, int], rung: str) -> str:
    """The first failing layer in words."""
    failing = [backend for backend in BACKENDS if codes.get(backend) == BUG]
    if failing:
        return f"{failing[0]} (so Inductor's code generation is not needed for the failure)"
    passing = [backend for backend in BACKENDS if codes.get(backend) == GONE]
    if not passing:
        return rung
    listed = passing[0] if len(passing) == 1 else f"{', '.join(passing[:-1])} and {passing[-1]}"
    return f"{rung} ({listed} pass{'es' if len(passing) == 1 else ''})"
