"""Colours for the lines of code that are seen, some hundred at a time. rich's lexers are imported when the first is
asked for.

A piece is coloured by itself, so a text that goes over many lines may be coloured wrongly below the start of a piece; a
whole file of generated code would take seconds. Knows no widget.

For example: `[len(texts) for texts in (coloured(lines[:200], "python", dark=True),)]` gives `[200]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from .....dumps.browse.sheet import Sheet, line_text, plain_code
from ....widgets.texts import highlighted

PIECE = 100
"""Lines that are coloured at once."""
LONGEST = 400
"""Characters of a line that are coloured; generated calls can be much longer."""


def pieces(sheet: Sheet, first: int, last: int) -> list[tuple[range, str]]:
    """The pieces of a sheet that are in sight, each in one language."""
    pieces_in_sight: list[tuple[range, str]] = []
    for start in range(first // PIECE * PIECE, last, PIECE):
        end = min(start + PIECE, len(sheet.lines))
        cuts = sorted(
            {start, end, *(at for part, _ in sheet.inside for at in (part.start, part.stop) if start < at < end)}
        )
        for low, high in pairwise(cuts):
            language = next((name for part, name in sheet.inside if low in part), sheet.language)
            pieces_in_sight.append((range(low, high), language))
    return pieces_in_sight


def coloured(lines: Sequence[object], language: str, *, dark: bool) -> list[Text]:
    """The lines with colours; unchanged where there is no lexer of that name."""
    texts = [plain_code(line_text(line)) for line in lines]  # type: ignore[arg-type]
    shown = highlighted([text[:LONGEST] for text in texts], language, dark=dark)
    for text, line in zip(shown, texts, strict=False):
        text.append(line[LONGEST:])
    return shown
