# pyright: basic
"""Where a NaN comes from in eager's own run: the first nodes whose value has a NaN that none of their inputs has.

An Inf among the inputs is named too, for `inf - inf` and the like begin earlier. A mask of -inf is no finding by itself.
Keeps no value. Runs the graph once.

>>> list(nan_origins(gm, inputs))
[{'node': 'log_3', 'inf': 'exp_2'}]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ..eager import GraphRunError, each_node

MOST = 8


def nan_origins(gm: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[dict[str, str]]:
    """At most MOST origins in graph order; "inf" names an input that holds Inf, or is empty. May change `inputs`."""
    nan: set[fx.Node] = set()
    inf: set[fx.Node] = set()
    found = 0
    try:
        for node, value in each_node(gm, inputs):
            has_nan, has_inf = _holds(value)
            if has_inf:
                inf.add(node)
            if not has_nan:
                continue
            nan.add(node)
            if node.op != "output" and found < MOST and not any(arg in nan for arg in node.all_input_nodes):
                found += 1
                yield {"node": node.name, "inf": next((arg.name for arg in node.all_input_nodes if arg in inf), "")}
    except GraphRunError:  # told by whoever judges the graph
        return


def _holds(value: Any) -> tuple[bool, bool]:
    if isinstance(value, (list, tuple)):
        parts = [_holds(part) for part in value]
        return any(part[0] for part in parts), any(part[1] for part in parts)
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized
    if not plain or not (value.dtype.is_floating_point or value.dtype.is_complex):
        return False, False
    seen = value.detach()
    if seen.element_size() == 1:
        seen = seen.to(torch.float32)  # a float of 8 bits has no arithmetic
    return bool(torch.isnan(seen).any()), bool(torch.isinf(seen).any())
