"""Nodes of a saved graph as a case of their own: by the means with which the minifier builds its candidates. Imports no
torch.

Nothing is judged and nothing is reduced. The case appears whole or not at all, and no path is ever overwritten.

>>> part = cut(load_graph("myrun/0_0/forward"), ["addmm", "mul"], Path("part"))
>>> part.inputs, part.nodes
([('primals_2', 'graph'), ('primals_3', 'graph'), ('permute', 'node')], 6)
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..dumps import temporary, trust
from ..dumps.atomic import check_folder, new_folder
from ..dumps.errors import EnvironmentLackError, NoGraphError
from ..dumps.opening import read_text
from ..dumps.store import SavedGraph, load_graph
from ..toolkit.isolation import Answer as Reply
from ..toolkit.isolation import ForkServer, ask, opened, raise_refusal
from ..toolkit.replaying.replay import DEFAULT_LIMIT_S
from ..toolkit.rungs import warmth
from .asking import RUNNING, TASKS

TASK = f"{TASKS}:cut"


class Cut(msgspec.Struct):
    """The case at `case`. `nodes`: all of its graph, `kept` those of them that were cut out, `came` what came with
    those that were named. `inputs`: each with "graph" (an input of the graph) or "node" (its value); `notes` are
    sentences."""

    case: Path
    of: str
    nodes: int
    kept: int
    inputs: list[tuple[str, str]]
    outputs: list[str]
    input_bytes: int
    came: list[str]
    notes: list[str]


def cut(
    saved: SavedGraph,
    names: Sequence[str],
    out: Path,
    *,
    seed: int = 0,
    imports: Sequence[str] = (),
    limit_s: float = DEFAULT_LIMIT_S,
    server: ForkServer | None = None,
) -> Cut:
    """Writes the named nodes as a case folder at `out`. Raises UsageError where it exists, and where they make no
    graph.

    Where this machine cannot run the graph eagerly, the case has the forms of its values alone, and `notes` says so.
    """
    check_folder(out)
    with opened(server, warmth("eager"), TASK) as used, temporary.folder("graphdbg-cut-") as work:
        written = work / "made" / "case"
        payload = {
            "case": str(saved.path.absolute()),
            "work": str(work),
            "out": str(written),
            "names": list(names),
            "seed": seed,
            "imports": list(imports),
            "made_up": False,
        }
        notes: list[str] = []
        reply = ask(TASK, payload, limit_s, server=used).answer()
        try:
            raise_refusal(reply)
        except EnvironmentLackError as lack:
            reply = ask(TASK, payload | {"made_up": True}, limit_s, server=used).answer()
            if reply.status != "done":
                raise
            notes.append(
                f"eager cannot run this graph here ({lack.why or lack.what}): of its values the forms alone are kept"
            )
        _must_be_done(reply, work)
        with new_folder(out) as fresh:
            shutil.copytree(written, fresh, dirs_exist_ok=True)
        if trust.trusted(saved.path):
            trust.bind(out)
    reported = reply.value
    notes += reported["notes"]
    if reported["random"]:
        notes.append(f"{', '.join(reported['random'])}: random numbers are drawn again here, from the seed")
    there = {node.name for node in saved.record.graph.nodes if node.op == "placeholder"}
    case = load_graph(out)
    table = case.table
    inputs = [(row.name, "graph" if row.name in there else "node") for row in table.rows() if row.op == "placeholder"]
    outputs = [table.name[place] for row in table.rows() if row.op == "output" for place in row.inputs]
    return Cut(
        out,
        saved.id,
        reported["nodes"],
        reported["kept"],
        inputs,
        outputs,
        reported["input_bytes"],
        reported["came"],
        notes,
    )


def _must_be_done(reply: Reply, work: Path) -> None:
    raise_refusal(reply)
    if reply.status == "done":
        return
    why = reply.error.message if reply.error else f"the process ended by {reply.signal or reply.status}"
    running = work / RUNNING
    at = f" at {read_text(running)}" if running.exists() else ""
    what = f"eager itself dies{at}" if reply.stage == "eager" else "the case could not be built"
    fix = "cut out what lies before it" if at else ""
    raise NoGraphError(f"cannot cut these nodes out: {what}", why.strip().splitlines()[0] if why.strip() else "", fix)
