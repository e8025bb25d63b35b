# pyright: basic
"""Stand-ins for inputs that have no saved form, such as a device mesh, in graphs that hand them through and ask nothing of them.

AOTAutograd takes DTensors apart and leaves their mesh as an input and an output. A graph that calls something with such an input
cannot be replayed, and is refused by the name of the type.

>>> StandIn("torch.distributed.device_mesh.DeviceMesh")
<stand-in for torch.distributed.device_mesh.DeviceMesh>
"""

from __future__ import annotations

from typing import Any

from ..schema import GraphBody, InputRecord, NodeRecord, OpaqueValue
from ..walk import references
from . import torch_private as t

TRACED = "torch._library.fake_class_registry.FakeScriptObject"
"""What such an input is while a graph is traced."""


class StandIn:
    """An object of which only the type's name is known."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<stand-in for {self.type_name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandIn) and other.type_name == self.type_name

    def __hash__(self) -> int:
        return hash(self.type_name)

    def __obj_flatten__(self) -> tuple[()]:
        """Torch counts the bytes of an opaque input by this."""
        return ()


def is_handed_through(body: GraphBody, node: NodeRecord) -> bool:
    """Whether a placeholder is such an input, and nothing but the output mentions it."""
    if node.op != "placeholder" or not isinstance(node.value, OpaqueValue) or node.value.type != TRACED:
        return False
    return not any(
        name == node.name
        for user in body.nodes
        if user.op != "output"
        for argument in (*user.args, *user.kwargs.values())
        for name in references(argument)
    )


def traced() -> Any:
    """What stands for such an input while a graph is compiled."""
    return t.FakeScriptObject(object(), StandIn.__name__, StandIn(TRACED))


def real(item: InputRecord | None) -> StandIn:
    """What stands for it when the graph runs."""
    seen = item.value if item is not None else None
    return StandIn(seen.type if isinstance(seen, OpaqueValue) else TRACED)
