"""The contents of a tab as plain data: lines of styled text, or the lines of a file, and the line to look at first.

Commands print a sheet, the workbench draws it. Knows nothing of colours, keys or widgets; every text is free of control
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
    """A piece of a line. `node` is the target of a click on it; `graph`: the id of the graph that contains the node, if
    it is another."""

    text: str
    kind: str = PLAIN
    node: str = ""
    graph: str = ""


Line = tuple[Span, ...]


@dataclass
class Sheet:
    """`lines` are styled lines, or plain lines of a file in `language`, then numbered from `first`. `top`: the line to
    look at; `marked`: the ranges of lines that are its subject; `choice`: which of several sheets this is ("2/3");
    `path`: the file; `inside`: ranges of lines in another language.
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
        """Whether a line belongs to the subject."""
        return any(position in part for part in self.marked)


def span(words: str, kind: str = PLAIN, node: str = "", graph: str = "") -> Span:
    """A piece of a line, with control characters made visible."""
    return Span(plain(words), kind, node, graph)


def link(node: str, graph: str = "") -> Span:
    """A link to a node."""
    return Span(plain(node), LINK, node, graph)


def line(*pieces: Span | tuple[str, str] | str) -> Line:
    """A line from its pieces."""
    parts = ((piece,) if isinstance(piece, str) else piece for piece in pieces)
    return tuple(part if isinstance(part, Span) else span(*part) for part in parts)


def line_text(row: Line | str) -> str:
    """The text of a line, without styles."""
    return row if isinstance(row, str) else "".join(piece.text for piece in row)


def text(sheet: Sheet, *, around: int | None = None) -> str:
    """The sheet as a command prints it: lines of a file are numbered, its subject is marked.

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
    """A line of code with tabs as spaces and other control characters made visible."""
    return plain(words.expandtabs(4))
