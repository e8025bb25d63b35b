# pyright: basic
"""The NaN that is the model's own: eager has it, too. It becomes a verdict on recorded inputs, if asked for or recorded
with `--when nan`; otherwise a note.

Runs in a child, after a judgement; asks `nan_origins` for the first node that makes one of numbers that were none.

For example: `with_own_nan(judge(live, "inductor"), live, saved, asked=True).verdict.where.node` gives `'log'`.
"""

from __future__ import annotations

import torch

from ...dumps.names import of_module
from ...dumps.store import SavedGraph
from ...dumps.walk import user_frame
from ..judging.nan_origins import nan_in_backward, nan_origins
from ..live.case import Live
from ..live.eager import clone_inputs, copy_graph
from ..live.spec import FULL_STAGES, in_force, settings
from ..verdicts.ladder_records import REAL, inputs_given
from ..verdicts.outcome import Outcome
from ..verdicts.signature import Signature
from ..verdicts.verdict import NO_REFERENCE, Where, cannot_tell, fails
from ..verdicts.verdict_words import NAN_GIVEN
from .after_failure import saw_nan


def with_own_nan(outcome: Outcome, case: Live, saved: SavedGraph, *, asked: bool, seed: int = 0) -> Outcome:
    """The outcome; a failure of the model where eager gives NaN and nothing else is wrong. On synthesised inputs
    `cannot_tell` where `asked`, else unchanged."""
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
        why = f"but on {inputs_given(saved)}: with the run's own inputs there may be no NaN"
        outcome.verdict = cannot_tell(f"{signature.raw}, {why}")
    return outcome


def _origin(outcome: Outcome, case: Live, seed: int) -> tuple[Signature, Where]:
    """The origin of eager's NaN: the first node that makes it from numbers, the input that brings it, or (for a NaN
    only in gradients) where the backward makes it."""
    gm, called = copy_graph(case.gm), of_module(case.gm)
    with settings(case.spec.config), in_force(case.spec.forward_only), torch.no_grad():
        torch.manual_seed(seed)
        first = next(nan_origins(gm, clone_inputs(case.inputs)), None)
    if first is None:
        return _in_backward(outcome, case, seed)
    node = first.node
    if node.op in ("placeholder", "get_attr"):
        name = called.inputs.get(node.name, node.name)
        return _signature("input", f"{NAN_GIVEN} {name}"), Where(node.name, name=name)
    line = _line(node)
    given = [f"{called.inputs.get(name, name)} = {value}" for name, value in first.given.items()]
    text = f"NaN first at {node.name}" + (f" of {', '.join(given)}" if given else "") + (f", {line}" if line else "")
    text += f", whose input {called.inputs.get(first.inf, first.inf)} is infinite" if first.inf else ""
    if (since := first.since) is not None and since.op in ("placeholder", "get_attr") and since.name != first.inf:
        text += f" since {called.inputs.get(since.name, since.name)} is"
    elif since is not None and since.op not in ("placeholder", "get_attr"):
        text += f" since {since.name}" if since.name != first.inf else ""
        text += f" ({_line(since)})" if _line(since) else ""
    return _signature(_operation(node), text), Where(node.name, line=line)


def _in_backward(outcome: Outcome, case: Live, seed: int) -> tuple[Signature, Where]:
    """The node whose backward turns gradients without NaN into NaN; where there is none, the gradient's name."""
    name = outcome.eager_nan[0]
    origin = None
    if case.spec.stage in FULL_STAGES:
        origin = nan_in_backward(case.gm, clone_inputs(case.inputs), case.spec, seed)
    if origin is None:
        return _signature("gradient", f"NaN first in {name}"), Where(name=name)
    node, since = origin
    text = f"NaN first in the backward of {node.name}" + (f", {_line(node)}" if _line(node) else "")
    text += f", whose gradient is infinite since the backward of {since.name}" if since is not None else ""
    text += f" ({_line(since)})" if since is not None and _line(since) else ""
    return _signature(_operation(node), text), Where(node.name, line=_line(node))


def _line(node: torch.fx.Node) -> str:
    return user_frame(node.meta.get("stack_trace") or "")[0]


def _operation(node: torch.fx.Node) -> str:
    """The name of a node's operation, equal before and after AOTAutograd where it stays one operation: "log"."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return node.target if isinstance(node.target, str) else str(getattr(packet, "__name__", packet))


def _signature(error: str, raw: str) -> Signature:
    return Signature("nan", "eager", error, detail="nan", raw=raw)
