"""Texts of files as lines for `Lines`: Python with colours, Markdown lightly: headings, code, comments and lists are
set apart.

Only what is asked for is made; control characters become escapes. Knows no room.

>>> [line.plain for line in markdown("### Title\\n\\ntext")]
['Title', '', 'text']
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.text import Text

from ...dumps.tables import plain

_INLINE = re.compile(r"\*\*(?P<bold>[^*]+)\*\*|`(?P<code>[^`]+)`")
_MOST_COLOURED = 200_000
"""Characters above which a program is shown without colours."""


def python(text: str, *, dark: bool = True) -> list[Text]:
    """A program, one text for each line."""
    lines = [plain(line) for line in text.split("\n")]
    if len(text) > _MOST_COLOURED:
        return [Text(line) for line in lines]
    return highlighted(lines, "python", dark=dark)


def highlighted(lines: Sequence[str], language: str, *, dark: bool) -> list[Text]:
    """Lines of code with colours; unchanged where there is no lexer of that name. rich's lexers are imported with the
    first."""
    from rich.syntax import Syntax

    syntax = Syntax("", language, theme="ansi_dark" if dark else "ansi_light", background_color="default")
    return list(syntax.highlight("\n".join(lines)).split("\n", allow_blank=True))[: len(lines)]


def markdown(text: str, *, dark: bool = True) -> list[Text]:
    """An issue text: its marks are removed where the style says the same; code blocks in Python are coloured."""
    lines: list[Text] = []
    block: list[str] | None = None
    fence = language = ""
    for line in text.split("\n"):
        if block is not None:
            if line.rstrip() == fence:
                coloured = language == "python"
                code = (
                    python("\n".join(block), dark=dark)
                    if coloured
                    else [Text(plain(text_line), "dim") for text_line in block or [""]]
                )
                lines += [Text("  ").append_text(text_line) for text_line in code]
                block = None
            else:
                block.append(line)
        elif line.startswith("```"):
            fence = "`" * (len(line) - len(line.lstrip("`")))
            language, block = line[len(fence) :].strip(), []
        elif line.startswith("#"):
            lines.append(Text(plain(line.lstrip("#").strip()), "bold underline"))
        elif line.startswith("<!--"):
            lines.append(Text(plain(line.removeprefix("<!--").removesuffix("-->").strip()), "yellow"))
        else:
            lines.append(_inline(line))
    return lines + [Text(plain(line)) for line in block or ()]


def _inline(line: str) -> Text:
    """One line with **bold** and `code`; "- " becomes a bullet."""
    line = plain(line)
    text = Text("• " if line.startswith("- ") else "")
    at = 2 if line.startswith("- ") else 0
    for match in _INLINE.finditer(line, at):
        text.append(line[at : match.start()])
        text.append(match["bold"] or match["code"], "bold" if match["bold"] else "cyan")
        at = match.end()
    return text.append(line[at:])
