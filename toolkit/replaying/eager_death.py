# pyright: basic
"""The node that ends the process where eager itself dies: one more eager run in a child reports each node before it
runs.

Only asked after a death in eager. An operator of the user's own is convicted; one of torch's only on recorded inputs,
since synthesised values (an index out of range, say) kill a process, too. Imports no torch.

For example: `dies_at(load_graph("myrun/0_0/forward"), How(), server, outcome).verdict.fault` gives `'custom_op'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..isolation import ForkServer, ask
from ..verdicts.ladder_records import REAL, inputs_given
from ..verdicts.mismatches import TORCHS
from ..verdicts.outcome import Outcome
from ..verdicts.verdict import WHOLE, Where, cannot_tell, fails

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph
    from .replay import How

TASK = f"{__name__}:task"


def dies_at(saved: SavedGraph, how: How, server: ForkServer, outcome: Outcome) -> Outcome:
    """The outcome of a death in eager with the node, the user's line and whose fault it is; unchanged where no node
    dies."""
    assert outcome.signature is not None
    answer = ask(TASK, how.payload(saved), how.limit_s, server=server).end()
    if answer.status != "signal" or not answer.told:
        return outcome
    node, line, operator = (answer.told[name] for name in ("node", "line", "operator"))
    where = Where(node, line=line)
    custom = "." in operator and operator.partition(".")[0] not in TORCHS
    place = f"{operator or node}{f', {line}' if line else ''}"
    text = f"eager itself dies of {answer.signal} at {place}"
    given = inputs_given(saved)
    if custom or given == REAL:
        verdict = fails("signal", "eager", text, where, WHOLE)
        outcome.verdict = msgspec.structs.replace(verdict, fault="custom_op" if custom else "model")
    else:
        outcome.verdict = msgspec.structs.replace(
            cannot_tell(f"{text}, on {given}: they may be what kills it"), where=where
        )
    return outcome


def task(payload: dict[str, Any]) -> None:
    """The body of the query: reports each node, then runs it."""
    import torch
    from torch import fx

    from ...dumps.walk import user_frame
    from .. import torch_private as t
    from ..isolation.child import report
    from ..live.case import Case
    from ..live.eager import each_node
    from ..live.spec import in_force, settings

    def announce(node: fx.Node) -> None:
        operator = str(node.target) if isinstance(node.target, (t.OpOverload, t.OpOverloadPacket)) else ""
        report({"node": node.name, "line": user_frame(node.meta.get("stack_trace") or "")[0], "operator": operator})

    case = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    with settings(case.spec.config), in_force(case.spec):
        torch.manual_seed(payload["seed"])
        announce(next(iter(case.gm.graph.nodes)))
        for node, _ in each_node(case.gm, case.inputs):
            if node.next.op != "root":
                announce(node.next)
