"""The contents of a tab as plain data: lines of marked texts, or the lines of a file, and the one to look at first.

A command prints it, the workbench draws it. Knows nothing of colours, keys or widgets; every text is free of control
characters.

>>> sheet = Sheet("sin_0", [line(("op", TITLE), (" sin", "")), line(link("x"))])
>>> text(sheet)
'op sin\\nx'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..tables import plain

PLAIN, TITLE, DIM, LINK, BAD, HERE = "", "title", "dim", "link", "bad", "here"
"""The kind of a text: plain, a heading, dimmed, a node to jump to, an error, the subject of the sheet."""


class Span(NamedTuple):
    """A piece of a line. `node` is where a click on it leads; `graph` the id of the other graph that the
    node lies in."""

    text: str
    kind: str = PLAIN
    node: str = ""
    graph: str = ""


Line = tuple[Span, ...]


@dataclass
class Sheet:
    """`lines` are marked lines, or the plain ones of a file in `language`, then numbered from `first`. `top` is the
    line to look at, `marked` the positions of the lines that are its subject. `choice` says which of several things
    this is: "2/3". `path` is the file. `inside` are lines in another language.
    """

    title: str
    lines: Sequence[Line | str]
    top: int = 0
    marked: list[range] = field(default_factory=list["range"])
    language: str = ""
    first: int = 1
    choice: str = ""
    notes: list[str] = field(default_factory=list[str])
    path: str = ""
    inside: list[tuple[range, str]] = field(default_factory=list["tuple[range, str]"])

    def is_marked(self, position: int) -> bool:
        """Whether a line is among the subject's."""
        return any(position in part for part in self.marked)


def span(words: str, kind: str = PLAIN, node: str = "", graph: str = "") -> Span:
    """A piece of a line, made fit for a terminal."""
    return Span(plain(words), kind, node, graph)


def link(node: str, graph: str = "") -> Span:
    """A node that can be jumped to."""
    return Span(plain(node), LINK, node, graph)


def line(*pieces: Span | tuple[str, str] | str) -> Line:
    """A line of pieces."""
    parts = ((piece,) if isinstance(piece, str) else piece for piece in pieces)
    return tuple(part if isinstance(part, Span) else span(*part) for part in parts)


def line_text(row: Line | str) -> str:
    """A line without its marks."""
    return row if isinstance(row, str) else "".join(piece.text for piece in row)


def text(sheet: Sheet, *, around: int | None = None) -> str:
    """The sheet as a command prints it: a file's lines numbered, its subject marked.

    `around` keeps that many lines before and after the marked ones.
    """
    numbers: Sequence[int] = range(len(sheet.lines))
    if around is not None and sheet.marked:
        near = {at for part in sheet.marked for at in range(part.start - around, part.stop + around)}
        numbers = sorted(at for at in near if 0 <= at < len(sheet.lines))
    if not sheet.language:
        return "\n".join(line_text(sheet.lines[number]).rstrip() for number in numbers)
    width = len(str(sheet.first + len(sheet.lines)))
    printed: list[str] = []
    for before, number in zip([None, *numbers], numbers, strict=False):
        if before is not None and number > before + 1:
            printed.append("  ...")
        mark = ">" if sheet.is_marked(number) else " "
        printed.append(f"{mark} {sheet.first + number:{width}} {plain_code(line_text(sheet.lines[number]))}".rstrip())
    return "\n".join(printed)


def plain_code(words: str) -> str:
    """A line of code whose tabs are spaces and whose other control characters are shown."""
    return plain(words.expandtabs(4))
