"""Kinds that hold other arguments: tuples, sizes, dicts, slices and ranges.

>>> KINDS[0].shown([1, 2], str)
'(1, 2)'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .kind import Inside, Kind, listed

if TYPE_CHECKING:
    from ..program.text import Writer
    from ..schema import Arg
    from ..torchside.arguments import ArgumentReader, ArgumentWriter
    from ..validate import Checker


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


KINDS = (
    Items("tuple", [{"node": "a"}], "builtins.tuple", order=1, holds=True),
    Items("size", [{"node": "a"}], "torch.Size", holds=True, schema="SymInt[]"),
    Pairs("dict", [["key", {"node": "a"}]], "builtins.dict", holds=True),
    Steps("slice", [None, {"node": "a"}, 2], "builtins.slice", holds=True),
    Steps("range", [0, {"node": "a"}, 1], "builtins.range", holds=True),
)
