"""How wide a text is, without asking a font: by the widths of DejaVu Sans, which Arial, Helvetica and Verdana do not exceed.

Boxes are made this wide at least, so that a label fits its box on a machine with other fonts than the one that drew it, or none.

>>> round(width_pt("mul", 10), 1)
18.9
"""

from __future__ import annotations

_WIDTHS = (
    (0.32, "'IJijl ,./:;\\f|"), (0.4, "-!()[]t"), (0.45, "r"), (0.5, '"*_`'), (0.55, "?csz"), (0.6, "FPkvxyL"),
    (0.65, "$0123456789ESTYabdeghnopqu{}"), (0.7, "ABCRVXZK"), (0.75, "HNU"), (0.8, "&DGOQ"), (0.85, "#+<=>^~w×"),
    (0.9, "M"), (0.98, "%m…"), (1.0, "@W"),
)  # fmt: skip
_WIDTH = {character: width for width, characters in _WIDTHS for character in characters}
_BOLD = 1.11
LINE = 1.35
"""Height of a line in sizes of its font."""


def width_pt(text: str, size: float, *, bold: bool = False) -> float:
    """The width of one line in points; characters beyond ASCII count as wide ones."""
    return sum(_WIDTH.get(character, 1.05) for character in text) * size * (_BOLD if bold else 1.0)


def block_pt(lines: list[tuple[str, float, bool]]) -> tuple[float, float]:
    """Width and height of lines one under the other, each as (text, font size, bold)."""
    return (
        max((width_pt(text, size, bold=bold) for text, size, bold in lines), default=0.0),
        sum(size * LINE for _, size, _ in lines),
    )
