"""Texts of files as lines for `Lines`: Python with colours, Markdown lightly: headings, code, comments and lists are
set apart.

Only what is asked for is made; control characters become escapes. Knows no room.

>>> [line.plain for line in markdown("### Title\\n\\ntext")]
['Title', '', 'text']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from ...dumps.tables import plain
from .virtual_list import VirtualList

ACROSS = 80
"""The step in which the scroll width grows, since everything is painted again when it does."""


class Made(Sequence[Text]):
    """Lines that are built when they are seen; `width` is the most that the widest may have."""

    def __init__(self, count: int, make: Callable[[int], Text], width: int) -> None:
        self._count, self._make, self.width = count, make, width

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._make(index)


def _over(base: Style, tone: Style) -> Style:
    """A style over the existing background, where it names none of its own."""
    style = base + tone
    return style + Style(bgcolor=base.bgcolor) if tone.bgcolor is not None and tone.bgcolor.is_default else style


def wrapped(texts: Sequence[Text], width: int) -> list[Text]:
    """The lines, those that are too long broken at words; continuations are indented by two."""
    lines: list[Text] = []
    for text in texts:
        if width < 20 or text.cell_len <= width:
            lines.append(text)
            continue
        at = 0
        while text.cell_len - at > width - (2 if at else 0):
            room = width - (2 if at else 0)
            cut = text.plain.rfind(" ", at + 1, at + room + 1)
            cut = cut if cut > at + room // 3 else at + room
            piece = text[at:cut]
            lines.append(Text("  ").append_text(piece) if at else piece)
            at = cut + (text.plain[cut : cut + 1] == " ")
        lines.append(Text("  ").append_text(text[at:]))
    return lines


class Lines(VirtualList):
    """Lines of text; `cursor` is the position of the chosen one, -1 where none can be chosen. Keys go to the screen
    around it."""

    can_focus = False
    DEFAULT_CSS = """
    Lines { height: 1fr; width: 1fr; background: $surface; color: $foreground; }
    Lines { scrollbar-size-vertical: 1; overflow-x: hidden; }
    Lines { scrollbar-gutter: stable; }
    Lines > .lines--cursor { background: $block-cursor-blurred-background; text-style: $block-cursor-text-style; }
    """
    COMPONENT_CLASSES = {"lines--cursor"}

    texts: Sequence[Text] = ()
    cursor = -1
    chooses = False

    def show(self, texts: Sequence[Text], *, cursor: bool = False, first: int = 0, keep: bool = True) -> None:
        """Shows these lines, with a `cursor` where one can be chosen. `keep`: scroll position and cursor stay where
        they can; else at the top."""
        at_end = self.is_vertical_scroll_end and self.max_scroll_y > 0 and not self.chooses
        self.texts, self.chooses, self.first = texts, cursor, first
        last = len(texts) - 1
        self.cursor = min(max(self.cursor if keep else first, first), last) if self.chooses and last >= first else -1
        width = texts.width if isinstance(texts, Made) else max((text.cell_len for text in texts), default=0)
        self.resize_to(len(texts), max(-(-width // ACROSS) * ACROSS, self._widest) if keep else width)
        if not keep:
            self.scroll_to(0, 0, animate=False)
        elif at_end:
            self.scroll_end(animate=False)
        self.repaint_changed()

    def line(self, index: int) -> Strip:
        """One line as it is seen."""
        across, width = self.scroll_offset.x, self.size.width
        over = self.get_component_rich_style("lines--cursor") if index == self.cursor else Style.null()
        style = self.rich_style + over
        line = self.texts[index]
        own = self.app.console.get_style(line.style, default="") if not line.spans else Style.null()
        parts = line.render(self.app.console, "")
        segments = [Segment(text, _over(style, own + tone if tone else own)) for text, tone, _ in parts]
        return Strip(segments).crop_extend(across, across + width, style)

    def opens(self, index: int, chain: int) -> bool:
        """Whether a click opens the line: it was chosen already."""
        return index == self.cursor


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
