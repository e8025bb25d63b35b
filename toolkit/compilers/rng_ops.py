"""Random state inside a scripted graph: `torch.utils.checkpoint` replays dropout by saving and restoring the generator's state,
which AOTAutograd writes as higher-order operators that TorchScript does not know.

Each is translated into the operator itself and calls of ours, which read and set the state of the CPU's generator or of the
current accelerator's. They must not change places with other random operators, nor be dropped when their result is not used:
TorchScript keeps operators as they stand whose aliasing it takes for unknown (CONSERVATIVE).

>>> translate(graph, node)      # run_and_save_rng_state(op, x) -> (state, op(x))
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx

from .. import torch_private as t


@functools.cache
def operators() -> tuple[Any, Any]:
    """(`graphdbg::rng_state`, `graphdbg::swap_rng_state`), registered once. `near` is a random tensor without elements: with
    constants alone as arguments TorchScript would run them once, while it freezes."""
    library = torch.library.Library("graphdbg", "FRAGMENT")
    library.define("rng_state(Tensor near, str device) -> Tensor", "CONSERVATIVE")
    library.define("swap_rng_state(Tensor near, str device, Tensor state) -> Tensor", "CONSERVATIVE")
    library.impl("rng_state", read, "CompositeExplicitAutograd")
    library.impl("swap_rng_state", swap, "CompositeExplicitAutograd")
    operators.library = library  # type: ignore[attr-defined]  # it is undone when it is collected
    return torch.ops.graphdbg.rng_state, torch.ops.graphdbg.swap_rng_state


def read(near: torch.Tensor, device: str) -> torch.Tensor:
    """The state of the default generator of a device."""
    if device == "cpu":
        return torch.get_rng_state()
    return torch.get_device_module(device).get_rng_state()


def swap(near: torch.Tensor, device: str, state: torch.Tensor) -> torch.Tensor:
    """Sets the state; returns the one before."""
    before = read(near, device)
    if device == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state)
    return before


def translate(graph: fx.Graph, node: fx.Node) -> None:
    """Replaces `run_and_save_rng_state(op, *args)` or `run_with_rng_state(state, op, *args)` in a graph that is ours."""
    state_of, swapped = operators()
    with graph.inserting_before(node):
        near = graph.call_function(torch.ops.aten.rand, ([0],))
        if node.target is t.optional("run_and_save_rng_state"):
            op, *args = node.args
            state = graph.call_function(state_of, (near, _device(node, args)))
            result = graph.call_function(_packet(op), tuple(args), dict(node.kwargs))
            new: Any = [state, result]
        else:
            state, op, *args = node.args
            device = _device(node, args)
            before = graph.call_function(swapped, (near, device, state))
            new = graph.call_function(_packet(op), tuple(args), dict(node.kwargs))
            graph.call_function(swapped, (near, device, before))
    if isinstance(new, list):
        for user in list(node.users):  # always taken apart at once
            user.replace_all_uses_with(new[int(user.args[1])])  # type: ignore[arg-type]
            graph.erase_node(user)
    else:
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
    graph.erase_node(node)


def _packet(op: Any) -> Any:
    return getattr(op, "overloadpacket", op)


def _device(node: fx.Node, args: list[Any]) -> str:
    """The kind of device that the operator works on: of its `device` argument, else of its first tensor."""
    given = node.kwargs.get("device")
    if given is not None:
        return torch.device(given).type  # type: ignore[arg-type]
    values = [arg.meta.get("val") for arg in args if isinstance(arg, fx.Node)]
    return next((value.device.type for value in values if isinstance(value, torch.Tensor)), "cpu")
