# pyright: basic
"""Finds where a NaN in eager's own run comes from: the first nodes that turn inputs without NaN into one, forward or in
the backward.

Runs a graph once, in this process; keeps values of one-element tensors only.

>>> gm = torch.fx.symbolic_trace(lambda x: torch.ops.aten.log.default(x) + 1)
>>> next(nan_origins(gm, [torch.tensor([-1.0])])).node.name
'log_default'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import fx

from ..live.eager import GraphRunError, each_node, run_graph
from ..live.execution import execute, tensors_in
from ..live.spec import ReplaySpec, in_force, settings
from ..numerics.statistics import described

MOST = 8


class Origin(NamedTuple):
    """A node that turns inputs without NaN into one. `inf`: an input of it that holds Inf, or "" (`inf - inf` and the
    like start earlier); `since`: the first node with that Inf; `given`: its one-element inputs, by name.
    """

    node: fx.Node
    inf: str
    given: dict[str, str]
    since: fx.Node | None = None


def nan_origins(gm: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[Origin]:
    """Yields the first nodes of eager's own run whose value has a NaN that none of their inputs has.

    At most MOST, in graph order. A mask of -inf alone is no finding. Runs the graph once, keeps values of one-element
    tensors only, may change `inputs`.
    """
    nan: set[fx.Node] = set()
    inf: dict[fx.Node, fx.Node] = {}
    small: dict[fx.Node, str] = {}
    count = 0
    try:
        for node, value in each_node(gm, inputs):
            seen = described(tensors_in(value))
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                small[node] = f"{value.item():.4g}"
            if seen.inf:
                computed = (arg for arg in node.all_input_nodes if arg.all_input_nodes or arg.op != "call_function")
                inf[node] = next((inf[arg] for arg in computed if arg in inf), node)
                if (written := _written(node)) is not None:
                    inf.setdefault(written, inf[node])
            if not seen.nan:
                continue
            nan.add(node)
            if node.op != "output" and count < MOST and not any(arg in nan for arg in node.all_input_nodes):
                count += 1
                given = {arg.name: small[arg] for arg in node.all_input_nodes if arg in small}
                infinite = next((arg for arg in node.all_input_nodes if arg in inf), None)
                yield Origin(node, infinite.name, given, inf[infinite]) if infinite else Origin(node, "", given)
    except GraphRunError:  # the judge of the graph reports this error
        return


def _written(node: fx.Node) -> fx.Node | None:
    """The argument that an in-place operator (by its name) writes to: the first one; None for others."""
    name = str(getattr(node.target, "__name__", node.target)).partition(".")[0]
    first = node.args[0] if node.args and name.endswith("_") and not name.endswith("__") else None
    return first if isinstance(first, fx.Node) else None


def nan_in_backward(
    gm: fx.GraphModule, inputs: list[Any], spec: ReplaySpec, seed: int
) -> tuple[fx.Node, fx.Node | None] | None:
    """The first node whose backward turns a gradient without NaN into one, and, where that gradient is infinite, the
    node whose backward made it so (else None). None where no node does. Runs the graph with its backward; may change
    `inputs`."""
    nan: dict[fx.Node, bool] = {}
    inf: dict[fx.Node, bool] = {}

    def watch(node: fx.Node, value: Any) -> Any:
        def look(grad: torch.Tensor) -> None:
            nan[node] = nan.get(node, False) or bool(grad.isnan().any())
            inf[node] = inf.get(node, False) or bool(grad.isinf().any())

        for tensor in tensors_in(value):
            if tensor.requires_grad:
                tensor.register_hook(look)
        return value

    parameters = [parameter for parameter in gm.parameters() if parameter.requires_grad]
    with settings(spec.config), in_force(spec):
        execute(partial(run_graph, gm, hook=watch), inputs, seed=seed, backward=True, parameters=parameters)

    def beyond(node: fx.Node) -> fx.Node | None:
        """The user whose backward gave the node's gradient; one with an infinite gradient first."""
        users = [user for user in node.users if user in nan]
        return next((user for user in users if inf[user]), users[0] if users else None)

    for node in reversed(gm.graph.nodes):
        if not nan.get(node) or any(nan.get(user) for user in node.users) or (origin := beyond(node)) is None:
            continue
        since: fx.Node | None = origin
        while since is not None and inf[since]:
            since = beyond(since)
        return origin, since if since is not origin else None
    return None
