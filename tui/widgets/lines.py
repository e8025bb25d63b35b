"""A list of text lines of any length, of which only those that are seen are drawn; with a cursor where one can be
chosen.

Knows textual and no file. Lines are rich Text made once by whoever shows them, or on demand by a function.

For example:

    lines = Lines()
    lines.show([Text("one"), Text("two")], cursor=True)
    lines.move(1); lines.cursor  # -> 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

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
