"""Describes how two ranks of a run differ: a graph that only one has, a node that differs, a collective that one calls
alone. Imports no torch.

For example, `apart(run, view, first, other).reason` gives "rank 1 compiled 0_1 of step, train.py:7, and rank 0 did not;
0:0_0/dynamo calls all_reduce (train.py:10), and 1:0_1/dynamo does not".
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from ...dumps.diff.pair import GraphGroup
from ...dumps.diff.view import GraphPairView
from ...dumps.index import ListedGraph
from ...dumps.store import Run
from ...dumps.why.times import function_of
from ..live.process_groups import called_alone
from ..verdicts.ladder_words import run_address
from ..verdicts.verdict import Where


class Apart(NamedTuple):
    """How two ranks differ: a sentence, its place, the command that shows it, and whether one calls a collective that
    the other does not."""

    reason: str
    where: Where
    command: str
    collective: bool


def apart(run: Run, view: GraphPairView, first: GraphGroup, other: GraphGroup) -> Apart:
    """Describes the difference of a graph between two ranks. Where only one rank has the graph, it is compared with the
    other rank's last graph of that stage and function.
    """
    address = run_address(run)
    command = shlex.join(["graphdbg", "diff", address])
    if view.verdict == "differs":
        sides = [(name or "").removeprefix(f"{run.path}/") for name in (view.a, view.b)]
        alone = called_alone([run.graph(name) for name in sides])
        node = view.first and (view.first.b or view.first.a)
        where = Where(node.name if node else "", f"{address}/{view.id}", node.line if node else "")
        return Apart(_departure(view, first, other) + (f"; {alone}" if alone else ""), where, command, bool(alone))
    has, lacks = (first, other) if view.verdict == "only_a" else (other, first)
    compiled = view.id.rpartition("/")[0].rpartition(":")[2]
    function = function_of(run, view.id)
    reason = f"{_rank(has)} compiled {compiled}{f' of {function}' if function else ''}, and {_rank(lacks)} did not"
    name, _, line = function.rpartition(", ")
    where, alone = Where("", f"{address}/{view.id}", line, name), ""
    if alike := _alike(lacks, view):
        ids = [alike.id, view.id] if has is other else [view.id, alike.id]
        command = shlex.join(["graphdbg", "diff", *(f"{address}/{graph_id}" for graph_id in ids)])
        alone = called_alone([run.graph(name) for name in ids])
    return Apart(reason + (f"; {alone}" if alone else ""), where, command, bool(alone))


def _departure(view: GraphPairView, first: GraphGroup, other: GraphGroup) -> str:
    if view.first is None:
        return f"ranks differ in {view.id}"
    has = [(node.call, _rank(group)) for node, group in ((view.first.a, first), (view.first.b, other)) if node]
    if len(has) == 2 and has[0][0] == has[1][0] and view.first.changes:
        text = f"{has[0][0]}: {view.first.changes[0].text()}"
    else:
        text = ", ".join(f"{call} in {rank}" for call, rank in has) + (" alone" if len(has) == 1 else "")
    return f"ranks differ first in {view.id}: {text}"


def _rank(group: GraphGroup) -> str:
    row = group.rows[0]
    return f"process {row.process}" if row.rank is None else f"rank {row.rank}"


def _alike(group: GraphGroup, view: GraphPairView) -> ListedGraph | None:
    """A rank's last graph of the same stage and function."""
    compiled, _, stage = view.id.rpartition(":")[2].partition("/")
    rows = [row for row in group.rows if row.saved and row.local.partition("/")[2] == stage]
    return next((row for row in reversed(rows) if row.local.partition("_")[0] == compiled.partition("_")[0]), None)
