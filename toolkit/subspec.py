# pyright: basic
"""How a part of a graph enters the compiler: the original's ReplaySpec with everything positional counted anew.

>>> candidate_spec(ReplaySpec("forward", {"static_input_idxs": [0, 5]}), names, module).compile_kwargs
{'static_input_idxs': [0]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from torch import fx

from .atoms import output_nodes
from .spec import ReplaySpec
from .subgraph import depends_on_tangents

INPUT_INDICES = ("static_input_idxs", "bw_donated_idxs", "static_lifetime_input_indices", "mutated_input_indices")
OUTPUT_COUNTS = ("num_fwd_outputs", "num_orig_model_outputs", "num_mutated_inp_runtime_indices")


def candidate_spec(spec: ReplaySpec, before: Sequence[str], module: fx.GraphModule) -> ReplaySpec:
    """The spec of `module`, part of a graph whose spec is given and whose placeholders were named `before`."""
    now = {node.name: position for position, node in enumerate(_placeholders(module))}
    kwargs: dict[str, Any] = dict(spec.compile_kwargs)
    for name in INPUT_INDICES:
        if isinstance(kwargs.get(name), list):
            indices: list[int] = kwargs[name]
            named = [before[index] for index in indices if index < len(before)]
            kwargs[name] = [now[it] for it in named if it in now]
    if not spec.training_joint:
        return msgspec.structs.replace(spec, compile_kwargs=kwargs)
    behind = depends_on_tangents(module.graph)
    returned = [node.name for node in output_nodes(module.graph)]
    backward = sum(name in behind for name in returned)
    for name in OUTPUT_COUNTS:
        kwargs.pop(name, None)
    if not backward:
        # Nothing is left of the backward: the partitioner would have nothing to do.
        return msgspec.structs.replace(spec, stage="inference" if spec.stage == "joint" else spec.stage, compile_kwargs=kwargs)
    kwargs["num_fwd_outputs"] = kwargs["num_orig_model_outputs"] = len(returned) - backward
    return msgspec.structs.replace(spec, compile_kwargs=kwargs)


def _placeholders(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]
