"""Paragraphs of a fixed width, and places in files as a person names them. Every text is made harmless for a terminal.

>>> page = Page(80); page.add(9, "first compile", first="0_0"); page.lines
['    0_0  first compile']
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path, PurePath

from ..tables import plain
from .model import Function, Place
from .phrases import shown_file


class Page:
    """Lines of text, written from top to bottom."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = []
        self.here = PurePath(os.fspath(Path.cwd()))

    def add(self, indent: int, text: str, *, first: str = "", limit: int = 6) -> None:
        """A paragraph, wrapped; `first` stands before it, in the columns of the indent."""
        start = " " * (indent - len(first) - 2) + first + "  " if first else " " * indent
        wrapped = textwrap.wrap(
            plain(text), self.width, initial_indent=start, subsequent_indent=" " * (indent + 2 * (not first)),
            break_on_hyphens=False, max_lines=limit, placeholder=" …",
        )  # fmt: skip
        self.lines += wrapped or [start.rstrip()]

    def title(self, text: str) -> None:
        """The heading of a block."""
        self.lines.append("")
        self.add(0, text)

    def place(self, place: Place | None, function: Function | None = None) -> str:
        """`line 12` inside the function's own file, else `file:12`."""
        if place is None:
            return "an unknown line"
        if function is not None and place.file == function.file:
            return f"line {place.line}"
        return f"{shown_file(place.file, self.here)}:{place.line}"
