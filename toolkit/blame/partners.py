"""Relatives of a graph in its run: the graphs made of it, and the forward node whose gradient a backward node computes.

AOTAutograd numbers the operations of the forward (`seq_nr`) and gives each node of the backward the number of the
operation that it belongs to. Read from records; imports no torch.

>>> forward_partner(load_graph("myrun/0_0/backward"), "mul_7").name
'mul_2'
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...dumps.browse.partner import behind_tangents, numbered
from ...dumps.sidecar import Table
from ...dumps.store import SavedGraph
from ...dumps.wording import counted, listed
from ..live.spec import FULL_STAGES
from ..verdicts.verdict import OK, Verdict
from ..verdicts.verdict_words import headline

SHOWN = 6
"""How many nodes of a group a sentence names."""

Status = Literal["found", "nothing", "eager", "unresolved", "metadata", "skipped"]


class NodeFound(msgspec.Struct, omit_defaults=True):
    """One node of the graph: its name, operator and the user's line ("model.py:120", or "")."""

    name: str
    target: str = ""
    line: str = ""

    def text(self) -> str:
        """The node as text: `mul_31` (model.py:120)."""
        return f"`{self.name}`" + (f" ({self.line})" if self.line else "")


class ByNode(msgspec.Struct):
    """The result for one graph.

    `status`: found; nothing (the graph does not fail); eager (eager itself is to blame); metadata (numbers are right,
    something else differs); unresolved; skipped (the rung cannot run here). `node` is the first wrong node. `alone`:
    whether it fails when compiled by itself, None where that was not asked. `group`: the nodes that must be compiled
    with it. `others`: more nodes that were wrong on right inputs. `forward`: the forward node whose gradient a backward
    node computes. `work_around`: verified. `text`: of the whole graph's results, in words; `verdict`: on the graph,
    with what was found.
    """

    id: str
    rung: str
    status: Status = "unresolved"
    text: str = ""
    sort: str = ""
    node: NodeFound | None = None
    error: float | None = None
    detail: str = ""
    alone: bool | None = None
    group: list[NodeFound] = []
    others: list[str] = []
    forward: NodeFound | None = None
    nan_origins: list[dict[str, str]] = []
    work_around: str = ""
    between: str = ""
    nodes: int = 0
    compiles: int = 0
    budget: int = 0
    seconds: float = 0.0
    notes: list[str] = []
    verdict: Verdict = OK

    @property
    def fails(self) -> bool:
        """Whether the graph fails in any way."""
        return self.status in ("found", "metadata", "unresolved")

    @property
    def convicted(self) -> bool:
        """Whether a run of the whole graph was right with only this operator left to eager's kernel."""
        return self.status == "found" and bool(self.work_around)

    @property
    def sentence(self) -> str:
        """Everything in a few sentences, the finding first."""
        parts = [_finding(self), _meaning(self)]
        if self.forward is not None:
            parts.append(f"Backward of forward node {self.forward.text()}.")
        if self.work_around:
            parts.append(f"Work around (verified): {self.work_around}.")
        if self.compiles:
            parts.append(f"{counted(self.compiles, 'compile')} (at most {self.budget}), {self.seconds:.0f} s.")
        return " ".join(part for part in parts if part)


UNSEEN = "Whether what it reads is right is not known"


def _finding(findings: ByNode) -> str:
    if findings.status == "nothing":
        return f"{findings.id} does not fail under {findings.rung} ({findings.text}): nothing to bisect."
    if findings.status == "skipped":
        return f"{findings.id}: {findings.text}."
    if findings.status == "eager":
        return _eager(findings)
    if findings.status == "metadata":
        return f"The numbers are right, so no node is to blame for them: {findings.text}."
    if findings.node is None:
        return f"No node could be named: {findings.detail or findings.text}."
    if findings.sort in ("accuracy", "nan"):
        size = f"error {findings.error:.2g}" if findings.error is not None else findings.detail
        right = "" if findings.between.startswith(UNSEEN) else " on right inputs"
        text = f"First wrong node: {findings.node.text()}, {size}{right}"
    else:
        text = f"The failure is at {findings.node.text()} ({headline(findings.verdict)})"
    return f"{text}{_alone(findings)}."


def _alone(findings: ByNode) -> str:
    if findings.alone is None:
        return ""
    if findings.alone:
        return "; fails alone: yes"
    near = [f"`{node.name}`" for node in findings.group if findings.node is None or node.name != findings.node.name]
    where = f"fused with {listed(near, SHOWN)}" if near else "inside the whole graph"
    return f"; fails alone: no, only {where}"


def _meaning(findings: ByNode) -> str:
    if findings.between or findings.status != "found" or findings.node is None:
        return findings.between
    if findings.sort not in ("accuracy", "nan"):
        return f"Compiling {findings.node.target} fails even alone." if findings.alone else ""
    if findings.alone:
        return f"The lowering of {findings.node.target}, or the code made for it, is wrong for these shapes and dtypes."
    if findings.alone is None:
        return ""
    return "A pass that rewrites these nodes together, or the code of their fused kernel, is wrong."


def _eager(findings: ByNode) -> str:
    if not findings.nan_origins:
        return f"Eager itself cannot be relied on here: {findings.text}."
    origin = findings.nan_origins[0]
    where = f"`{origin['node']}`" + (f" ({origin['line']})" if origin.get("line") else "")
    because = f", whose input `{origin['inf']}` holds Inf" if origin.get("inf") else ""
    return f"Eager itself gives NaN, first at {where}{because}: the compiler is not at fault."


_INNER = ("inference", "forward", "backward")
_FORWARD = ("forward", "joint", "joint_passed")


def compile_of(saved: SavedGraph) -> tuple[str | None, str]:
    """The compile that a graph belongs to: its process, and its number there."""
    return saved.process, saved.local_id.partition("/")[0]


def inner_graphs(saved: SavedGraph) -> list[SavedGraph]:
    """The graphs of the same compile that the inner compiler got; none for one of these, or for a graph after them."""
    if saved.stage in _INNER or saved.stage.startswith("post_grad"):
        return []
    return [graph for graph in stages_of(saved) if graph.stage in _INNER]


def siblings(saved: SavedGraph) -> list[SavedGraph]:
    """The graphs of the same compile that Inductor was given, in order, for a graph from before AOTAutograd; none for
    others."""
    inner = inner_graphs(saved) if saved.stage in FULL_STAGES else []
    return sorted(inner, key=lambda graph: _INNER.index(graph.stage))


def forward_partner(saved: SavedGraph, name: str) -> NodeFound | None:
    """The forward node whose gradient this node of a backward or joint graph computes; None where there is none or no
    record."""
    table = saved.table
    if name not in table.name or table.seq_nr[index := table.name.index(name)] < 0:
        return None
    graphs: list[SavedGraph] = []
    if saved.stage.startswith("joint"):
        graphs = [saved] if index in behind_tangents(table) else []
    elif saved.stage.endswith("backward"):
        number = saved.local_id.rpartition("/")[2].partition(".")[2]
        there = [graph for graph in stages_of(saved) if graph.local_id.rpartition("/")[2].partition(".")[2] == number]
        graphs = [graph for stage in _FORWARD for graph in there if graph.stage == stage]
    return next((partner for graph in graphs if (partner := _with_number(graph.table, table.seq_nr[index]))), None)


def stages_of(saved: SavedGraph) -> list[SavedGraph]:
    """The graphs of the same compile in the order in which they were recorded."""
    graphs = [] if saved.run is None else saved.run.graphs()
    return [graph for graph in graphs if compile_of(graph) == compile_of(saved)]


def _with_number(table: Table, number: int) -> NodeFound | None:
    """The last forward node of that number: the one that gives the operation's value."""
    behind = set(behind_tangents(table))
    rows = [table.row(at) for at in numbered(table, number) if at not in behind]
    wanted = [row for row in rows if not row.target.endswith("getitem")] or rows
    return NodeFound(wanted[-1].name, wanted[-1].target, wanted[-1].where) if wanted else None
