"""Findings that nothing in the graph reads: what is off there cannot change what the graph computes, so they are notes.

Three kinds, all of ops of torch's own. A part of a tuple that nobody takes. The memory of an argument that is dead when
its result is made: sharing or changing it is invisible. Strides that a pass left behind when it replaced a node:
kernels go by the values that they are given, so only who reads the record goes wrong by it: the caller of the graph,
`as_strided`, custom ops and regions. An origin is a note where that holds for all that follows from it, too. Runs
nothing.

For example: `read_by_someone(run.findings, plan, session)` gives `[]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import fx

from .. import torch_private as t
from ..verdicts.mismatches import Mismatch, NodeMismatch
from .plan import Leaf, NodeStep, Plan, is_getitem

if TYPE_CHECKING:
    from .checking import CheckedCallable

UNREAD = "nothing reads it"
_BY_RECORD = ("aten.as_strided", "aten.set_", "inductor.", "prims.as_strided")


def read_by_someone(findings: Sequence[NodeMismatch], plan: Plan, session: CheckedCallable) -> list[NodeMismatch]:
    """The findings of one run without those that nothing reads; these are counted in the session."""
    if not findings:
        return []
    steps = {step.name: step for step in plan.steps}
    loud: set[str] = set()
    for finding in findings:
        if not _quiet(finding, steps.get(finding.node), plan, session.rewritten):
            loud |= {finding.name, *finding.under}
    kept = [finding for finding in findings if finding.name in loud or not loud.isdisjoint(finding.under)]
    for finding in findings:
        if finding not in kept:
            session.left_out(
                UNREAD, f"{' and '.join(dict.fromkeys(each.property for each in finding.mismatches))} of {finding.name}"
            )
    return kept


def _quiet(finding: NodeMismatch, step: NodeStep | None, plan: Plan, rewritten: bool) -> bool:
    if step is None or not step.torchs or step.node.op in ("placeholder", "get_attr"):
        return False
    if finding.output >= 0 and _not_taken(step.node, finding.output):
        return True
    if not step.node.users and not finding.own:
        return True
    for mismatch in finding.mismatches:
        if mismatch.property in ("stride", "offset") and mismatch.cause in ("stale", "inherited"):
            if not rewritten or any(_goes_by_record(user, plan) for user in step.node.users):
                return False
        elif not _in_dead_memory(mismatch) or not _last_use(step, plan):
            return False
    return True


def _in_dead_memory(mismatch: Mismatch) -> bool:
    """Whether it is about the memory of an argument alone: that a result lies in it, or that it is written to."""
    return mismatch.property == "mutation" or (
        mismatch.property == "alias" and mismatch.cause == "fake" and mismatch.expected == "memory of its own"
    )


def _not_taken(node: fx.Node, part: int) -> bool:
    return all(is_getitem(user) and (user.args[1] != part or not user.users) for user in node.users)


def _goes_by_record(user: fx.Node, plan: Plan) -> bool:
    step = plan.by_node[user]
    return user.op == "output" or not step.torchs or step.region or str(user.target).startswith(_BY_RECORD)


def _last_use(step: NodeStep, plan: Plan) -> bool:
    """Whether the memory of the arguments is the graph's own, and no other node reads it from here on."""
    if not isinstance(step.node.target, (t.OpOverload, t.OpOverloadPacket)):
        return False
    roots = {leaf.root for node in step.tensors for leaf in plan.leaves(node) if isinstance(leaf, Leaf)}
    for other in plan.steps:
        if other is step or not any(isinstance(leaf, Leaf) and leaf.root in roots for leaf in plan.leaves(other.node)):
            continue
        if other.node.op in ("placeholder", "get_attr"):
            return False
        if any(user is not step.node and plan.by_node[user].index > step.index for user in other.node.users):
            return False
    return True
