"""The base of all kinds of arguments: a tag of the saved form, and one method for each walk over arguments.

Every kind defines `check`, `shown`, `encode` and `decode`; the other methods default to those of a leaf that no program
can contain. Methods call the walker that they are given for the arguments inside. Kinds must not import torch: the
encoder and the decoder do what needs it, and types are named as text.

For example, at the end of a module with a kind: `KINDS = (Mine("tag", EXAMPLE, "module.Type"),)`.
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
    from ..torchside.live_values import ArgumentReader
    from ..torchside.values import ArgumentWriter
    from ..validate import Checker

OTHER = object()
"""What `encode` returns for a value that another kind is to encode."""


class Inside(NamedTuple):
    """How to check arguments inside another: the error for a node's name, the graph's tensors, the depth."""

    reference: Callable[[str], str]
    attrs: Iterable[str]
    depth: int


@dataclass(eq=False)
class Kind(ABC):
    """One kind. `example`: an example of its content. `types`: the types that it encodes, as "module.Name",
    space-separated.

    `order`: where several kinds match a type, they are tried by increasing order. `exact`: values of a subclass are not
    of this kind. `holds`: its content is a list of arguments. `schema`: its type in an operator's schema.
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
        """The text for people, close to Python's own; `strings` are the record's."""

    @abstractmethod
    def encode(self, value: Any, encoder: ArgumentWriter) -> Any:
        """The content for a live value of one of its types; OTHER to leave the value to another kind."""

    @abstractmethod
    def decode(self, body: Any, decoder: ArgumentReader, where: str, depth: int) -> Any:
        """The live value; raises GraphdbgError, or what Python raises for damaged content."""

    def written(self, body: Any, writer: Writer) -> str | None:
        """The text in a program; None where the kind has none."""
        return None

    def drawn(self, body: Any, inner: Callable[[Arg], str]) -> str:
        """The text in a drawing; empty where it would add nothing."""
        return ""

    def plain(self, body: Any, inner: Callable[[Arg], Any]) -> Any:
        """A Python value of numbers, texts, lists and dicts; stays encoded where there is none."""
        return {self.tag: body}

    def compared(self, body: Any, facts: NodeColumns) -> Any:
        """A key that is equal in two graphs where the arguments mean the same."""
        return self.tag, repr(body)

    def number(self, body: Any, facts: NodeColumns) -> Any:
        """The number, expression or name that the argument stands for; None where it is unknown."""
        return None


class AsItIs(Kind):
    """A kind whose content is its text for people."""

    def shown(self, body: Any, inner: Callable[[Arg], str], strings: Sequence[str] = ()) -> str:
        return str(body)
