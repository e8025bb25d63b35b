"""Which inputs of a saved graph are real, in words: a finding on made-up numbers is worth less than one on those of the run.

>>> inputs_given(load_graph("case"))
'recorded inputs'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dumps.errors import GraphdbgError
from ...dumps.schema import TensorValue
from ...dumps.wording import counted

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

REAL = "recorded inputs"


def inputs_given(saved: SavedGraph) -> str:
    """ "recorded inputs", or how many tensors were synthesised and the policy that left them out."""
    try:
        record = saved.inputs_record
        inputs = record.inputs if record is not None else saved.record.inputs
    except GraphdbgError:
        return "inputs that cannot be read"
    tensors = [one for one in inputs if isinstance(one.value, TensorValue)]
    made_up = [one for one in tensors if one.stored is None]
    if not made_up:
        return REAL
    policy = f"recorded with --inputs {record.policy}" if record is not None else "it was never seen to run"
    which = "all tensors" if len(made_up) == len(tensors) else f"{len(made_up)} of {counted(len(tensors), 'tensor')}"
    return f"synthesised inputs ({which}; {policy})"
