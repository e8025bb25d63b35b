"""Asks a child to interpret and check the kernels of a saved graph. The calling process imports neither torch nor Triton.

>>> with server() as used:
...     check(saved, used).findings
[]
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ....dumps.errors import UsageError
from ...isolation import ForkServer, default_memory_bytes
from ...replay import PRELOAD, outcome_of
from .findings import Checked

if TYPE_CHECKING:
    from ....dumps.store import SavedGraph

TASK = f"{__name__}:task"


def server() -> ForkServer:
    """A fork server with what checks of kernels need imported once; Triton is imported by the child."""
    return ForkServer(threads=os.cpu_count() or 1, memory_bytes=default_memory_bytes(), warm="inductor", preload=PRELOAD)


def check(
    saved: SavedGraph, server: ForkServer, *, kernel: str | None = None, seed: int = 0, limit_s: float = 600.0,
    imports: Sequence[str] = (), plain: bool = True,
) -> Checked:  # fmt: skip
    """Checks one saved graph in a child; one that dies is told of too. Raises GraphdbgError where it cannot be loaded, where
    Triton is missing, and where there is no such kernel."""
    payload = {
        "path": str(saved.path.absolute()), "seed": seed, "imports": list(imports), "kernel": kernel, "plain": plain,
    }  # fmt: skip
    answer = server.call(TASK, payload, limit_s)
    if answer.status == "done":
        found = msgspec.convert(answer.value, Checked)
    else:
        found = Checked(cannot=outcome_of(answer, "triton_interpret").verdict.removeprefix("cannot judge: ").splitlines()[0])
    found.peak_bytes = answer.peak_bytes
    return found


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """What the child does."""
    from ....dumps.store import load_graph
    from ...imports import import_modules
    from ...isolation.child import mark
    from ...live_case import device_for, live_case
    from ..needs import require_interpreter

    mark("load")
    require_interpreter()
    import_modules(payload["imports"])
    saved = load_graph(payload["path"])
    case = live_case(saved, seed=payload["seed"], device=device_for("triton_interpret", None, saved))
    mark("check")
    from .run import checked

    found = checked(
        case.gm, case.inputs, case.spec, kernel=payload["kernel"], plain=payload["plain"], seed=payload["seed"]
    )
    found.unchecked += case.notes
    if payload["kernel"] and not found.kernels and not found.cannot:
        known = ", ".join(found.names)
        raise UsageError(f"there is no kernel {payload['kernel']}", f"the graph has {known}", "leave --kernel out to check all")
    return msgspec.to_builtins(found)
