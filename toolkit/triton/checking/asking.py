"""Asks a child to interpret and check the kernels of a saved graph. The calling process imports neither torch nor Triton.

>>> with opened(None) as used:
...     check(saved, used).findings
[]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ....dumps.errors import UsageError
from ...isolation import ForkServer, ask
from ...signature import how_ended
from .findings import Checked

if TYPE_CHECKING:
    from ....dumps.store import SavedGraph

TASK = f"{__name__}:task"


def check(
    saved: SavedGraph, server: ForkServer, *, kernel: str | None = None, seed: int = 0, limit_s: float = 600.0,
    imports: Sequence[str] = (), plain: bool = True,
) -> Checked:  # fmt: skip
    """Checks one saved graph in a child; one that dies is told of too. Raises GraphdbgError where it cannot be loaded, where
    Triton is missing, and where there is no such kernel."""
    payload = {
        "path": str(saved.path.absolute()), "seed": seed, "imports": list(imports), "kernel": kernel, "plain": plain,
    }  # fmt: skip
    answer = ask(TASK, payload, limit_s, server=server).end()
    found = msgspec.convert(answer.value, Checked) if answer.status == "done" else Checked(cannot=how_ended(answer))
    found.peak_bytes = answer.peak_bytes
    return found


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """What the child does."""
    from ...case import Case
    from ...isolation.child import mark
    from ..needs import require_interpreter

    mark("load")
    require_interpreter()
    case = Case.at(payload["path"])
    live = case.live(rung="triton_interpret", seed=payload["seed"])
    mark("check")
    from .run import checked

    found = checked(live, kernel=payload["kernel"], plain=payload["plain"], seed=payload["seed"])
    found.unchecked += live.notes
    if payload["kernel"] and not found.kernels and not found.cannot:
        known = ", ".join(found.names)
        raise UsageError(f"there is no kernel {payload['kernel']}", f"the graph has {known}", "leave --kernel out to check all")
    return msgspec.to_builtins(found)
