# pyright: basic
"""The NaN that is the model's own: eager gives it, too. A verdict where it was asked for or the run was recorded with `--when
nan`, and on recorded inputs; elsewhere a note.

Runs in a child, after a judgement; asks `nan_origins` for the first node that makes one of numbers that were none.

>>> with_own_nan(judge(live, "inductor"), live, saved, asked=True).verdict.where.node
'log'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..dumps.names import of_module
from ..dumps.walk import user_frame
from .blame.node_tasks import nan_origins
from .case import Live
from .eager import clone_inputs, copy_graph
from .outcome import Outcome
from .signature import Signature
from .spec import in_force, settings
from .suspects import saw_nan
from .triage.records import REAL, inputs_given
from .verdict import NO_REFERENCE, Where, cannot_tell, fails

if TYPE_CHECKING:
    from ..dumps.store import SavedGraph


def with_own_nan(outcome: Outcome, case: Live, saved: SavedGraph, *, asked: bool, seed: int = 0) -> Outcome:
    """The outcome, a failure of the model's where eager gives NaN and nothing else is wrong. On inputs that were made up it is
    `cannot_tell` where it was `asked` for, else nothing.
    """
    right = outcome.verdict.verdict in ("ok", "rounding") or outcome.verdict.detail == NO_REFERENCE
    if not outcome.eager_nan or not right or not (asked or saw_nan(saved)):
        return outcome
    real = inputs_given(saved) == REAL
    if not real and not asked:
        return outcome
    signature, where = _origin(outcome, case, seed)
    if real:
        outcome.verdict, outcome.signature = fails("nan", "eager", signature.raw, where), signature
    else:
        outcome.verdict = cannot_tell(f"{signature.raw}, but on {inputs_given(saved)}: it may not be there on the run's own")
    return outcome


def _origin(outcome: Outcome, case: Live, seed: int) -> tuple[Signature, Where]:
    """The first node that makes a NaN of numbers; where it comes in with an input, or only gradients have one, which."""
    gm, called = copy_graph(case.gm), of_module(case.gm)
    with settings(case.spec.config), in_force(case.spec.forward_only), torch.no_grad():
        torch.manual_seed(seed)
        first = next(nan_origins(gm, clone_inputs(case.inputs)), None)
    if first is None:
        name = outcome.eager_nan[0]
        return _signature("gradient", f"NaN first in {name}"), Where(name=name)
    node = first.node
    if node.op in ("placeholder", "get_attr"):
        name = called.inputs.get(node.name, node.name)
        return _signature("input", f"NaN comes in with {name}"), Where(node.name, name=name)
    line = user_frame(node.meta.get("stack_trace") or "")[0]
    given = [f"{called.inputs.get(name, name)} = {value}" for name, value in first.given.items()]
    text = f"NaN first at {node.name}" + (f" of {', '.join(given)}" if given else "") + (f", {line}" if line else "")
    text += f", whose input {called.inputs.get(first.inf, first.inf)} is infinite" if first.inf else ""
    return _signature(_operation(node), text), Where(node.name, line=line)


def _operation(node: torch.fx.Node) -> str:
    """What it computes, the same before and after AOTAutograd where that is one operation: "log"."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return node.target if isinstance(node.target, str) else str(getattr(packet, "__name__", packet))


def _signature(error: str, raw: str) -> Signature:
    return Signature("nan", "eager", error, detail="nan", raw=raw)
