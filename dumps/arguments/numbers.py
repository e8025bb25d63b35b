"""Numbers that JSON lacks, symbolic numbers, an ellipsis, and long texts that repeat.

>>> KINDS[1].shown([1.0, 2.0], str)
'complex(1.0, 2.0)'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from .kind import OTHER, Inside, Kind, listed

if TYPE_CHECKING:
    from ..diff.facts import NodeColumns
    from ..program.text import Writer
    from ..schema import Arg
    from ..torchside.arguments import ArgumentReader, ArgumentWriter
    from ..validate import Checker

_NOT_FINITE = ("nan", "inf", "-inf")


class Float(Kind):
    """{"float": "nan"}, "inf" or "-inf"; a finite one is a number of JSON."""

    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        if body not in _NOT_FINITE:
            checker.fail(place, f"{checker.short(body)} is not nan, inf or -inf")

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body)

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
    """{"string": index into GraphRecord.strings}: a long text that repeats; the encoder of a graph makes them."""

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


KINDS = (
    Float("float", "nan", "builtins.float", exact=True, schema="float"),
    Complex("complex", [{"float": "inf"}, 1.0], "builtins.complex", exact=True, holds=True),
    Symbolic("sym", ["int", "s0 + 1"], "torch.SymInt torch.SymFloat torch.SymBool"),
    Dots("ellipsis", True, "types.EllipsisType"),
    Text("string", 0, schema="str"),
)
