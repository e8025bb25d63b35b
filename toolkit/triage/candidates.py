"""Which graphs of a run are judged: one compile at a time, the widest graph first, equal ones once.

Reads records; must not import torch.

>>> [candidate.graph.id for candidate in candidates(open_run("myrun"), first=set())]
['0_0/dynamo', '1_0/dynamo']
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...dumps.errors import GraphdbgError
from .. import fidelity

if TYPE_CHECKING:
    from ...dumps.store import Run, SavedGraph

LEVELS = (("dynamo",), ("pre_grad",), ("joint",), ("joint_passed",), ("forward", "inference", "backward"),
          ("post_grad_forward", "post_grad_inference", "post_grad_backward"))  # fmt: skip
"""Stages from wide to narrow; those of one level together make up the compile."""

INNER = ("forward", "inference", "backward")


class Candidate(NamedTuple):
    """One compile: its graphs level by level, widest first. `same_as`: the id of an equal graph that is judged already."""

    levels: list[list[SavedGraph]]
    same_as: str = ""

    @property
    def graph(self) -> SavedGraph:
        """The first graph to judge."""
        return self.levels[0][0]


def candidates(run: Run, first: Collection[str]) -> list[Candidate]:
    """One for each compile with saved graphs, those with a graph named in `first` at the front."""
    groups: dict[tuple[str | None, str], list[SavedGraph]] = {}
    for graph in run.graphs():
        if graph.status != "skipped":
            groups.setdefault((graph.process, graph.local_id.partition("/")[0]), []).append(graph)
    found: list[Candidate] = []
    known: dict[str, str] = {}
    for group in sorted(groups.values(), key=lambda group: not any(graph.id in first for graph in group)):
        levels = [made for stages in LEVELS if (made := [graph for graph in group if graph.stage in stages])]
        if not levels:
            continue
        key = _fingerprint(levels[0])
        same_as = known.get(key, "")
        found.append(Candidate(levels, same_as))
        if key and not same_as:
            known[key] = levels[0][0].id
    return found


def inner_graphs(run: Run, graph: SavedGraph) -> list[SavedGraph]:
    """The graphs inside a wide one that the inner compiler was given; none for a graph that is one of them."""
    if graph.stage in INNER or graph.stage.startswith("post_grad"):
        return []
    mine = (graph.process, graph.local_id.partition("/")[0])
    return [one for one in run.graphs() if (one.process, one.local_id.partition("/")[0]) == mine and one.stage in INNER]


def _fingerprint(graphs: list[SavedGraph]) -> str:
    """A hash of what is compiled, names apart; empty for a graph that cannot be read."""
    seen = hashlib.blake2b(digest_size=16)
    try:
        for graph in graphs:
            record = graph.record
            seen.update("\n".join([record.stage, *fidelity.graph_lines(record)]).encode())
            kwargs = {name: value for name, value in record.compile_kwargs.items() if name != "graph_id"}
            seen.update(msgspec.json.encode([kwargs, record.config, record.ambient], order="deterministic"))
    except GraphdbgError:
        return ""
    return seen.hexdigest()
