"""Kinds of arguments that are Python values or refer to the graph: numbers that JSON lacks, symbolic numbers, long
texts; tuples, sizes, dicts, slices and ranges; nodes, tensors, metadata of values; and values without a saved form.

>>> KINDS[1].shown([1.0, 2.0], str)
'complex(1.0, 2.0)'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from .kind import OTHER, AsItIs, Inside, Kind

if TYPE_CHECKING:
    from ..diff.facts import NodeColumns
    from ..program.text import Writer
    from ..schema import Arg
    from ..torchside.live_values import ArgumentReader
    from ..torchside.values import ArgumentWriter
    from ..validate import Checker

_NOT_FINITE = ("nan", "inf", "-inf")
_OPAQUE_TEXT = 200


def listed(body: Any) -> list[Any]:
    """The content, if it is a list; TypeError otherwise."""
    if not isinstance(body, list):
        raise TypeError("a list is wanted")
    return body  # pyright: ignore[reportUnknownVariableType]


class Float(AsItIs):
    """{"float": "nan"}, "inf" or "-inf"; finite floats are JSON numbers."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if body not in _NOT_FINITE:
            checker.fail(place, f"{checker.short(body)} is not nan, inf or -inf")

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return str(value)

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        if body not in _NOT_FINITE:
            raise ValueError(f"{body!r} is not a float")
        return float(body)

    def written(self, body: Any, writer: Writer) -> str:
        return f"float({writer.literal(str(float(body)))})"

    def drawn(self, body: Any, inner: Callable[[Arg], str]) -> str:
        return str(body)

    def plain(self, body: Any, inner: Callable[[Arg], Any]) -> Any:
        return float(body)


class Complex(Kind):
    """{"complex": [real, imaginary]}, each part as a float."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        for part in checker.items(body, place, 2):
            if not _is_float(part):
                checker.fail(place, f"{checker.short(part)} is not a number")

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return f"complex({', '.join(inner(part) for part in body)})"

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return [encoder.encode(value.real), encoder.encode(value.imag)]

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        real, imaginary = (decoder.decode(part, where, depth) for part in listed(body))
        return complex(float(real), float(imaginary))

    def written(self, body: Any, writer: Writer) -> str:
        return f"complex({writer.argument(body[0])}, {writer.argument(body[1])})"


class Symbolic(Kind):
    """{"sym": ["int", "s0 + 1"]}: "int", "float" or "bool", and an expression over the graph's symbols."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        number, text = checker.items(body, place, 2)
        if number not in ("int", "float", "bool") or not isinstance(text, str):
            checker.fail(place, f"{checker.short(body)} is not a kind and an expression")
        checker.expression(text, place)

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body[1])

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        record = encoder.symbols.sym(value)
        return [record.kind, record.expr]

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        number, text = listed(body)
        return decoder.reader.symbols.sym(number, text)

    def written(self, body: Any, writer: Writer) -> str:
        return writer.expression(body[1])

    def compared(self, body: Any, facts: NodeColumns) -> Any:
        return self.tag, body[0], facts.dim(body[1])

    def number(self, body: Any, facts: NodeColumns) -> Any:
        return facts.dim(body[1])


class Dots(Kind):
    """{"ellipsis": true}."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if body is not True:
            checker.fail(place, f"{checker.short(body)} is not true")

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return "..."

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return True

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return Ellipsis

    def written(self, body: Any, writer: Writer) -> str:
        return "..."

    def drawn(self, body: Any, inner: Callable[[Arg], str]) -> str:
        return "..."


class Text(Kind):
    """{"string": index into GraphRecord.strings}: a long, repeated text; only the encoder of a graph writes it."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if not isinstance(body, int) or isinstance(body, bool) or body < 0:
            checker.fail(place, f"{checker.short(body)} is not an index into the strings")

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return repr(strings[body] if 0 <= body < len(strings) else "")

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return OTHER

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        place: int = body
        return decoder.texts(decoder.strings[place])

    def written(self, body: Any, writer: Writer) -> str:
        return writer.literal(writer.strings[int(body)])

    def compared(self, body: Any, facts: NodeColumns) -> Any:
        strings, place = facts.record.strings, int(body)
        return strings[place] if 0 <= place < len(strings) else ""


def _is_float(part: Any) -> bool:
    if isinstance(part, dict):
        tagged = cast("dict[str, Any]", part)
        return list(tagged) == ["float"] and tagged["float"] in _NOT_FINITE
    return isinstance(part, (int, float)) and not isinstance(part, bool)


class Items(Kind):
    """{"tuple": [...]}; {"size": [...]} is a torch.Size."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        checker.argument(checker.items(body, place), place, *inside)

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return f"({', '.join(inner(item) for item in body)})"

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return [encoder.encode(item) for item in value]

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        items = [decoder.decode(item, where, depth) for item in listed(body)]
        return decoder.size(items) if self.tag == "size" else tuple(items)

    def written(self, body: Any, writer: Writer) -> str:
        text = writer.items(body)
        return text if self.tag == "tuple" or writer.PLAIN else f"torch.Size({text})"

    def drawn(self, body: Any, inner: Callable[[Arg], str]) -> str:
        return inner(body)

    def plain(self, body: Any, inner: Callable[[Arg], Any]) -> Any:
        return [inner(item) for item in body]


class Steps(Kind):
    """{"slice": [start, stop, step]}, and a range."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        checker.argument(checker.items(body, place, 3), place, *inside)

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return f"{self.tag}({', '.join(inner(part) for part in body)})"

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return [encoder.encode(part) for part in (value.start, value.stop, value.step)]

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        parts = [decoder.decode(part, where, depth) for part in listed(body)]
        return slice(*parts) if self.tag == "slice" else range(*parts)

    def written(self, body: Any, writer: Writer) -> str:
        return self.shown(body, writer.argument)


class Pairs(Kind):
    """{"dict": [[key, value], ...]}."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        for index, pair in enumerate(checker.items(body, place)):
            at = f"{place}[{index}]"
            checker.argument(checker.items(pair, at, 2), at, *inside)

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return "{" + ", ".join(f"{inner(key)}: {inner(item)}" for key, item in body) + "}"

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return [[encoder.encode(key), encoder.encode(item)] for key, item in value.items()]

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return {decoder.option(key, where, depth): decoder.option(item, where, depth) for key, item in listed(body)}

    def written(self, body: Any, writer: Writer) -> str:
        return self.shown(body, writer.argument)

    def plain(self, body: Any, inner: Callable[[Arg], Any]) -> Any:
        return {inner(key): inner(item) for key, item in body}


class Node(AsItIs):
    """{"node": name}."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        why = inside.reference(body) if isinstance(body, str) else f"{checker.short(body)} is not the name of a node"
        if why:
            checker.fail(place, why)

    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        return value.name

    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        return decoder.node(body, where)

    def written(self, body: Any, writer: Writer) -> str:
        return writer.names[body]

    def number(self, body: Any, facts: NodeColumns) -> Any:
        return facts.number(body)


class Tensor(AsItIs):
    """{"tensor": name in GraphBody.attrs}: a tensor that stands directly among the arguments."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if not isinstance(body, str) or body not in inside.attrs:
            checker.fail(place, f"tensor {checker.short(body)} is not among the graph's attributes")

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


class Metadata(AsItIs):
    """{"value": a Value}: metadata of a value, for fake tensors in node metadata."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        checker.metadata(body, place)

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
    Float("float", "nan", "builtins.float", exact=True, schema="float"),
    Complex("complex", [{"float": "inf"}, 1.0], "builtins.complex", exact=True, holds=True),
    Symbolic("sym", ["int", "s0 + 1"], "torch.SymInt torch.SymFloat torch.SymBool"),
    Dots("ellipsis", True, "types.EllipsisType"),
    Text("string", 0, schema="str"),
    Items("tuple", [{"node": "a"}], "builtins.tuple", order=1, holds=True),
    Items("size", [{"node": "a"}], "torch.Size", holds=True, schema="SymInt[]"),
    Pairs("dict", [["key", {"node": "a"}]], "builtins.dict", holds=True),
    Steps("slice", [None, {"node": "a"}, 2], "builtins.slice", holds=True),
    Steps("range", [0, {"node": "a"}, 1], "builtins.range", holds=True),
    Node("node", "a", "torch.fx.Node"),
    Tensor("tensor", "weight", "torch.Tensor", schema="Tensor"),
    Metadata("value", {"value_kind": "opaque", "type": "x"}, "torch.Tensor", order=1),
    Opaque("opaque", ["node", "a"], "builtins.object", order=9),
)
