# pyright: basic
"""An operator of the user's own that does otherwise than its fake function or its schema says: each call of one in a
run is checked as a graph of one node.

For example: `watching = Watching()`, then `with watching: step(x)`; `watching.found` is a NodeMismatch, or None.
"""

from __future__ import annotations

import traceback
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from ...dumps.allowlist import is_custom
from ...dumps.walk import user_frame
from ...dumps.wording import flat
from .. import torch_private as t
from ..debug_nop.checking import checked
from ..verdicts.mismatches import Mismatch, NodeMismatch
from .aside import EagerMode


class Watching(EagerMode):
    """Checks operators that are not torch's until one is wrong. `found`: what that is; `unasked`: one whose fake
    function raises or is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: NodeMismatch | None = None
        self.unasked: NodeMismatch | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.found is not None or not is_custom(str(func)):
            return func(*args, **(kwargs or {}))
        stack = "".join(traceback.format_list(traceback.extract_stack()[:-1]))
        try:
            gm, given = _alone(func, args, kwargs or {}, stack)
        except Exception as error:  # noqa: BLE001 - a fake function is the user's code and may raise anything
            line, code = user_frame(stack)
            no_answer = Mismatch("run", "an answer of its fake function", flat(error, 80), "unknown")
            self.unasked = NodeMismatch(func._opname, func._schema.name, [no_answer], line=line, code=code)
            return func(*args, **(kwargs or {}))
        run = checked(gm)
        result = run(given)
        self.found = next((finding for finding in run.findings if finding.of_custom_op), None)
        return result


def _alone(func: Any, args: Any, kwargs: Any, stack: str) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph of this call alone, with what the fake function says, and its inputs."""
    mode = t.FakeTensorMode(shape_env=t.ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)
    graph, given, made = fx.Graph(), [], {}
    names = {id(value): argument.name for argument, value in zip(func._schema.arguments, args, strict=False)}

    def known(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in made:
            made[id(value)] = graph.placeholder(names.get(id(value), "arg"))
            made[id(value)].meta["val"] = mode.from_tensor(value, static_shapes=True)
            given.append(value)
        return made[id(value)]

    args, kwargs = t.tree_map(known, (args, kwargs))
    node = graph.create_node("call_function", func, args, kwargs, name=func._opname)
    with torch.no_grad(), mode:
        node.meta["val"] = func(*map_arg(args, _fake), **map_arg(kwargs, _fake))
    node.meta["stack_trace"] = stack
    graph.output(node)
    return fx.GraphModule(torch.nn.Module(), graph), given


def _fake(node: fx.Node) -> Any:
    return node.meta["val"]
