"""The theme of the terminal's own colours: of those that it has, the ones that can be read on its background.

A meaning takes its colour or the bright one of that name, whichever stands out; where neither does, or the terminal did
not report its colours, text is bold in the terminal's own; what had a background of its own is reversed. Marks carry
the rest.

For example:

    readable = OwnColours({"11": (1, 1, 1), "10": (0, 0, 0), "4;1": (0.8, 0, 0), "4;3": (0.8, 0.8, 0)})
    readable.style(Style(color="red")), readable.style(Style(color="yellow")), readable.style(Style(bgcolor="blue"))
    # (Style.parse('red'), Style.parse('bold default'), Style.parse('reverse default on default'))
"""

from __future__ import annotations

from functools import cache

from rich.color import Color as RichColor
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from ._terminal import Colours

LEAST = 4.5
"""The contrast that WCAG 2 asks of text, of 21."""
DIMMED = 0.5
"""The least part of a dim text that is its colour, in known terminals."""


class OwnColours(LineFilter):
    """The styles of text for a terminal of these colours."""

    def __init__(self, known: Colours) -> None:
        super().__init__()
        self.known = {
            name: Color(round(255 * red), round(255 * green), round(255 * blue))
            for name, (red, green, blue) in known.items()
        }
        self.style = cache(self._style)

    def stands_out(self, name: str, part: float = 1.0) -> bool:
        """Whether a colour of the terminal can be read on its background."""
        front, back = self.known.get(name), self.known.get("11")
        return front is not None and back is not None and contrast(back.blend(front, part), back) >= LEAST

    def _style(self, style: Style) -> Style:
        color, back = style.color, style.bgcolor
        plain = Style(color="default", bgcolor="default" if back is not None else None)
        if style.dim and not self.stands_out("10", DIMMED):
            style += Style(dim=False)
        if back is not None and not back.is_default:
            return style + plain + Style(reverse=True)
        if color is None or color.is_default:
            return style
        number = (color.number or 0) % 8 if color.type is ColorType.STANDARD else 0
        for colour in (number, number + 8) if 0 < number < 7 and not style.dim else ():
            if self.stands_out(f"4;{colour}"):
                return style + Style(color=RichColor.from_ansi(colour))
        return style + plain + Style(bold=True)

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The text in styles that can be read."""
        return [
            Segment(text, self.style(style), control) if style else Segment(text, style, control)
            for text, style, control in segments
        ]


def contrast(first: Color, other: Color) -> float:
    """The contrast of two colours as WCAG 2 defines it, 1 to 21."""

    def light(color: Color) -> float:
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    low, high = sorted((light(first), light(other)))
    return (high + 0.05) / (low + 0.05)
