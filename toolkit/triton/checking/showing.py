"""`graphdbg check --kernels`: asks for each graph, prints, and says with what to exit. Imports no torch.

>>> shown([saved], kernel=None, seed=0, limit_s=600.0, imports=(), as_json=False)
run/0_0/forward: kernels checked: 6 kernels, 9 launches, 3 library calls not checked: no finding
0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ....dumps.errors import EnvironmentLackError, GraphdbgError
from ....dumps.output import emit, say
from ...isolation import opened
from ..needs import require_interpreter
from .asking import check
from .findings import Checked
from .text import headline, text

if TYPE_CHECKING:
    from ....dumps.store import SavedGraph


def shown(
    graphs: Sequence[SavedGraph], *, kernel: str | None, seed: int, limit_s: float, imports: Sequence[str], as_json: bool
) -> int:  # fmt: skip
    """0: nothing was found, 1: something was, or a graph could not be run. Raises EnvironmentLackError without Triton."""
    require_interpreter()
    rows: list[tuple[str, SavedGraph, Checked]] = []
    with opened(None) as used:
        for saved in graphs:
            name = f"{saved.run.path}/{saved.id}" if saved.run else str(saved.path)
            found = _checked(saved, used, alone=len(graphs) == 1, kernel=kernel, seed=seed, limit_s=limit_s, imports=imports)
            rows.append((name, saved, found))
            if not as_json:
                emit(text(found, name), as_json=False)
                for note in found.unchecked:
                    say(f"not checked: {note}")
    if as_json:
        documents = [_json(*row) for row in rows]
        emit(documents[0] if len(graphs) == 1 else {"graphs": documents}, as_json=True)
    return max(found.record.exit_code for _, _, found in rows)


def _checked(saved: SavedGraph, used: Any, *, alone: bool, **options: Any) -> Checked:
    try:
        return check(saved, used, **options)
    except GraphdbgError as error:
        if alone or isinstance(error, EnvironmentLackError):
            raise
        return Checked(cannot=str(error).splitlines()[0])


def _json(name: str, saved: SavedGraph, found: Checked) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(found))
    rows = [msgspec.to_builtins(one) | {"what": one.what} for one in found.findings]
    notes = [msgspec.to_builtins(one) | {"what": one.what} for one in found.notes]
    empty: dict[str, Any] = {"cannot": "", "unchecked": [], "calls": 0, "kernels": 0, "launches": 0, "seconds_plain": None}
    return {
        "id": saved.id, "stage": saved.stage, "graph": name, "ok": found.ok, "headline": headline(found), "ratio": found.ratio,
        **empty, **plain, "findings": rows, "notes": notes, "record": found.record.plain(),
    }  # fmt: skip
