"""What a kind of argument is: a tag of the saved form, and what each walk over arguments does with it.

`check`, `shown`, `encode` and `decode` are every kind's own; the others have an answer for a leaf that no program can
write. Handlers call the walker that they are given for the arguments inside. They must not import torch: what needs it
is asked of the encoder and the decoder, and types are named as text.

>>> listed([1, 2])
[1, 2]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..diff.facts import NodeColumns
    from ..program.text import Writer
    from ..schema import Arg
    from ..torchside.arguments import ArgumentReader, ArgumentWriter
    from ..validate import Checker

OTHER = object()
"""What `encode` returns for a value that another kind is to encode."""


class Inside(NamedTuple):
    """How arguments inside another are checked: what is wrong with the name of a node, tensors of the graph, depth."""

    reference: Callable[[str], str]
    attrs: Iterable[str]
    depth: int


@dataclass(eq=False)
class Kind(ABC):
    """One kind. `example`: content of it. `types`: those that it encodes, as "module.Name", several apart by spaces.

    `order`: kinds of a larger one are asked later, where a type is of several. `exact`: values of a subclass are not of
    this kind. `holds`: its content is a list of arguments. `schema`: its type in the schema of an operator.
    """

    tag: str
    example: Any
    types: str = ""
    _: KW_ONLY
    order: int = 0
    exact: bool = False
    holds: bool = False
    schema: str = ""

    @abstractmethod
    def check(self, body: Any, place: str, checker: Checker, inside: Inside) -> None:
        """Raises, by `checker.fail` or `refuse`, for content that is none of this kind."""

    @abstractmethod
    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        """Its text for people, more or less as Python would write it; `strings` are the record's."""

    @abstractmethod
    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        """The content for a live value of one of its types, or OTHER."""

    @abstractmethod
    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        """The live value; raises GraphdbgError, or what Python raises for damaged content."""

    def written(self, body: Any, writer: Writer) -> str | None:
        """Its text in a program; None where it has none."""
        return None

    def drawn(self, body: Any, inner: Callable[[Arg], str]) -> str:
        """Its text in a drawing; empty where that would say nothing."""
        return ""

    def plain(self, body: Any, inner: Callable[[Arg], Any]) -> Any:
        """A Python value, of numbers, texts, lists and dicts; it stays encoded where it has none."""
        return {self.tag: body}

    def compared(self, body: Any, facts: NodeColumns) -> Any:
        """What equals another graph's where the two mean the same."""
        return self.tag, repr(body)

    def number(self, body: Any, facts: NodeColumns) -> Any:
        """The number, expression or name that it stands for, where one is known."""
        return None


class AsItIs(Kind):
    """One whose content is its text for people."""

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body)


def listed(body: Any) -> list[Any]:
    """The content where a list is wanted; TypeError otherwise."""
    if not isinstance(body, list):
        raise TypeError("a list is wanted")
    return body  # pyright: ignore[reportUnknownVariableType]
