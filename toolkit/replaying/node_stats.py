"""Statistics of every node of a saved graph, from one eager run in a child; what `replay --stats` prints and a screen
can show.

`node_rows` is a generator: rows come in graph order as they are asked for. The values themselves never leave the child,
and the calling process imports no torch. Does not judge anything.

For example: `next(node_rows(load_graph("myrun/0_0/forward"))).name` gives `'primals_1'`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps.tables import Column, render
from ..isolation import ForkServer, ask, opened
from ..live.how import USUAL, How
from ..rungs import warmth
from .replay import outcome_of

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph
    from ..numerics.statistics import NodeStatistics

TASK = f"{__name__}:task"
COLUMNS = ("node", "shape", "dtype", "min", "max", "mean", "std", "nan", "inf", "subnormal", "zeros")


def node_rows(saved: SavedGraph, how: How = USUAL, *, server: ForkServer | None = None) -> Iterator[dict[str, Any]]:
    """A row for each tensor of each node, as plain data with the fields of `numerics.NodeStatistics`.

    Raises EnvironmentLackError where the run ended in another way (a segfault, the time limit), and what loading a
    graph raises.
    """
    from ...dumps.errors import EnvironmentLackError

    with opened(server, warmth("eager")) as used:
        answer = ask(TASK, how.payload(saved), how.limit_s, server=used).end()
        if answer.status != "done":
            refused = outcome_of(answer, "eager")
            why = "statistics are computed in eager, which must run first"
            raise EnvironmentLackError(f"no statistics of {saved.id}", refused.text, why)
        if failed := answer.value["failed"]:
            raise EnvironmentLackError(f"no statistics of {saved.id}", failed, "see graphdbg replay --rung eager")
        yield from answer.value["rows"]


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: the rows of the live case, under its recorded settings."""
    import torch

    from ..isolation.child import mark
    from ..live.case import Case
    from ..live.eager import GraphRunError
    from ..live.spec import in_force, settings
    from ..numerics.statistics import node_statistics

    mark("load")
    case = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    mark("eager")
    rows: list[NodeStatistics] = []
    failed = ""
    try:
        with settings(case.spec.config), in_force(case.spec), torch.no_grad():
            torch.manual_seed(payload["seed"])
            rows.extend(node_statistics(case.gm, case.inputs))
    except GraphRunError as error:
        failed = str(error)
    return {"rows": msgspec.to_builtins(rows), "failed": failed}


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows as aligned lines under a heading."""
    columns = [Column(title, right=place > 2) for place, title in enumerate(COLUMNS)]
    return render(columns, [_cells(row) for row in rows]).splitlines()


def _cells(row: dict[str, Any]) -> list[str]:
    part = row.get("part")
    name = row["name"] if part is None else f"{row['name']}[{part}]"
    shape = "x".join(str(size) for size in row["shape"]) or "scalar"
    numbers = [row.get(key) for key in ("min", "max", "mean", "std")]
    counts = [row.get(key, 0) for key in ("nan", "inf", "subnormal", "zeros")]
    texts = ["-" if number is None else f"{number:.4g}" for number in numbers]
    return [name, shape, row["dtype"], *texts, *map(str, counts)]
