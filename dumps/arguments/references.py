"""Kinds that refer to something of the graph: nodes, tensors, metadata of values; and what has no saved form.

>>> KINDS[0].shown("add_1", str)
'add_1'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .kind import OTHER, Inside, Kind

if TYPE_CHECKING:
    from ..diff.facts import NodeColumns
    from ..program.text import Writer
    from ..schema import Arg
    from ..torchside.arguments import ArgumentReader, ArgumentWriter
    from ..validate import Checker

_OPAQUE_TEXT = 200


class Node(Kind):
    """{"node": name}."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        why = inside.reference(body) if isinstance(body, str) else f"{checker.short(body)} is not the name of a node"
        if why:
            checker.fail(place, why)

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body)

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return value.name

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return decoder.node(body, where)

    def written(self, body: Any, writer: Writer) -> str:
        return writer.names[body]

    def number(self, body: Any, facts: NodeColumns) -> Any:
        return facts.number(body)


class Tensor(Kind):
    """{"tensor": name in GraphBody.attrs}: a tensor written straight into the arguments."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if not isinstance(body, str) or body not in inside.attrs:
            checker.fail(place, f"tensor {checker.short(body)} is not among the graph's attributes")

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body)

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return OTHER if encoder.keep_tensor is None else encoder.keep_tensor(value)

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return decoder.tensors[body]

    def written(self, body: Any, writer: Writer) -> str:
        return writer.tensors[body]

    def compared(self, body: Any, facts: NodeColumns) -> Any:
        if body not in facts.body.attrs:
            return super().compared(body, facts)
        stored = facts.body.attrs[body]
        return facts.value(stored.value), "" if stored.parameter else stored.storage


class Metadata(Kind):
    """{"value": a Value}: metadata of a value, where node metadata holds fake tensors."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        checker.metadata(body, place)

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body)

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return encoder.metadata(value)

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return decoder.metadata(body, where)


class Opaque(Kind):
    """{"opaque": [type name, text]}: shown, and refused when a live graph is asked for."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if not all(isinstance(part, str) for part in checker.items(body, place, 2)):
            checker.fail(place, f"{checker.short(body)} is not a type name and its text")

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body[-1])

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        encoder.opaque += 1
        try:
            text = repr(value)
        except Exception as error:  # noqa: BLE001 (a user's repr may raise anything; what is shown is all that is lost)
            text = f"<repr failed: {type(error).__name__}>"
        return [f"{type(value).__module__}.{type(value).__qualname__}", text[:_OPAQUE_TEXT]]

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        decoder.refuse(where, f"an argument of type {body[0]} cannot be saved")


KINDS = (
    Node("node", "a", "torch.fx.Node"),
    Tensor("tensor", "weight", "torch.Tensor", schema="Tensor"),
    Metadata("value", {"value_kind": "opaque", "type": "x"}, "torch.Tensor", order=1),
    Opaque("opaque", ["node", "a"], "builtins.object", order=9),
)
