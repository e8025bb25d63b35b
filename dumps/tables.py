"""Renders tables as text: aligned columns when piped, a rich table on a terminal. Returns strings, prints nothing.

No name from a dump can move the cursor or recolour the terminal: control characters are shown as escapes.

>>> print(render([Column("id"), Column("nodes", right=True)], [("0_0/forward", "12")]))
id           nodes
0_0/forward     12
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import msgspec

RICH_ROWS = 200
"""A rich table lays out every cell twice; above this many rows the aligned text is used on a terminal too."""

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOUR = r"[0-47]|2[2-7]|3[0-9]|4[0-9]|9[0-7]|10[0-7]|[34]8;5;\d+|[34]8;2;\d+;\d+;\d+"
"""Colours and weights, without codes that hide text or make it blink."""
_SEEN = re.compile(rf"\x1b\[(?:(?:{_COLOUR});?)*m|{CONTROL.pattern}")


class Column(msgspec.Struct):
    """A heading, and how its cells are set. On a terminal: `style` is a rich style, `fold` wraps instead of cutting,
    and columns with the highest `expendable` are left out first where the terminal is too narrow."""

    title: str
    right: bool = False
    style: str = ""
    fold: bool = False
    expendable: int = 0


def plain(text: str) -> str:
    """The text with line breaks as spaces and every other control character written as an escape."""
    return CONTROL.sub(_escape, text) if CONTROL.search(text) else text


def visible(text: str, *, colours: bool = False) -> str:
    """A text of several lines, safe for a terminal: line breaks and tabs stay, with `colours` also codes for colours
    and weights; every other control character becomes an escape."""
    return (_SEEN if colours else CONTROL).sub(_seen, text) if CONTROL.search(text) else text


def _seen(match: re.Match[str]) -> str:
    return match[0] if match[0] in "\n\t" or len(match[0]) > 1 else f"\\x{ord(match[0]):02x}"


def _escape(match: re.Match[str]) -> str:
    return " " if match[0] in "\n\t\r" else f"\\x{ord(match[0]):02x}"


def one_line(text: str, limit: int = 100) -> str:
    """The first line of a text, shortened to `limit` characters."""
    line = plain(text.strip().partition("\n")[0])
    return line if len(line) <= limit else line[: limit - 3] + "..."


def on_terminal() -> bool:
    """Whether stdout is a terminal that can show a table."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def render(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, terminal: bool = False, styles: Sequence[str] = ()
) -> str:
    """Renders the table as text, one line per row; for a terminal in colours (`styles`: one per row) and wrapped to its
    width."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if terminal and len(cells) <= RICH_ROWS:
        return _rich(columns, cells, styles)
    return _aligned(columns, cells)


def _aligned(columns: Sequence[Column], cells: list[list[str]]) -> str:
    titled = [[column.title for column in columns], *cells]
    widths = [max(map(len, column)) for column in zip(*titled, strict=True)]
    form = "  ".join(f"{{:{'>' if c.right else '<'}{w}}}" for c, w in zip(columns, widths, strict=True))
    return "\n".join(form.format(*row).rstrip() for row in titled)


def _fitting(columns: Sequence[Column], cells: list[list[str]], width: int) -> list[int]:
    """The positions of the columns that fit into `width` characters."""
    needed = [max(len(column.title), *(len(row[i]) for row in cells), 0) + 3 for i, column in enumerate(columns)]
    kept = list(range(len(columns)))
    for i in sorted((i for i in kept if columns[i].expendable), key=lambda i: -columns[i].expendable):
        if sum(needed[k] for k in kept) - 3 > width:
            kept.remove(i)
    return kept


def _rich(columns: Sequence[Column], cells: list[list[str]], styles: Sequence[str]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    width = shutil.get_terminal_size().columns
    kept = _fitting(columns, cells, width)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in (columns[i] for i in kept):
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=column.style or None,
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
        )
    for row, style in zip_longest(cells, styles[: len(cells)]):
        table.add_row(*(Text(row[i]) for i in kept), style=style or None)
    return painted(table, width=width, soft_wrap=False)


def painted(shown: Any, *, width: int | None = None, soft_wrap: bool = True) -> str:
    """The text that rich prints for a table or a text on a terminal, with colours unless NO_COLOR is set."""
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    Console(file=stream, force_terminal=True, width=width).print(shown, soft_wrap=soft_wrap, end="")
    return stream.getvalue()


def cut(text: str, width: int, where: str) -> str:
    """The text in at most `width` cells, with … for what is left out at the "start", the "middle" or the "end".

    >>> cut("layers.12.attention.query", 12, "start")
    '…ntion.query'
    """
    if (len(text) if text.isascii() else cells(text)) <= width:
        return text
    for room in range(min(width, len(text)) - 1, 0, -1):
        head = {"start": 0, "middle": room - room // 2, "end": room}[where]
        shown = f"{text[:head]}…{text[len(text) - room + head :]}"
        if text.isascii() or cells(shown) <= width:
            return shown
    return text[:width] if where == "end" else "…"[:width]


def cells(text: str) -> int:
    """How many cells of a terminal the text takes."""
    from rich.cells import cell_len  # late: most texts are ASCII

    return cell_len(text)
