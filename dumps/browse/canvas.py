"""A sheet of squared paper for text and lines, where lines that meet get the character that joins them. Knows nothing of graphs.

>>> canvas = Canvas(); canvas.horizontal(0, 0, 4, 0); canvas.mark(0, 2, 0, DOWN)
>>> line_text(canvas.lines()[0])
'──┬──'
"""

from __future__ import annotations

from .sheet import DIM, Line, Span

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8

_CHARS = {
    0: " ", UP: "╵", DOWN: "╷", LEFT: "╴", RIGHT: "╶", UP | DOWN: "│", LEFT | RIGHT: "─", UP | LEFT: "┘", UP | RIGHT: "└",
    DOWN | LEFT: "┐", DOWN | RIGHT: "┌", UP | DOWN | LEFT: "┤", UP | DOWN | RIGHT: "├", LEFT | RIGHT | UP: "┴",
    LEFT | RIGHT | DOWN: "┬", UP | DOWN | LEFT | RIGHT: "┼",
}  # fmt: skip

ASCII = str.maketrans({
    **dict.fromkeys("│║╵╷", "|"), **dict.fromkeys("─═╴╶", "-"), **dict.fromkeys("┌┐└┘├┤┬┴┼╔╗╚╝╤", "+"), "▼": "v", "…": "~",
})  # fmt: skip
"""For terminals that have nothing else: `text.translate(ASCII)`."""


class Canvas:
    """Cells by line and column. Text covers lines."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], tuple[str, str, str]] = {}
        self._lines: dict[tuple[int, int], dict[int, int]] = {}

    def text(self, x: int, y: int, text: str, kind: str = "", node: str = "") -> None:
        """Writes from a place on to the right."""
        for number, char in enumerate(text):
            self._texts[y, x + number] = char, kind, node

    def mark(self, net: int, x: int, y: int, directions: int) -> None:
        """A line of a net that leaves a cell in some directions."""
        cell = self._lines.setdefault((y, x), {})
        cell[net] = cell.get(net, 0) | directions

    def vertical(self, net: int, x: int, first: int, last: int) -> None:
        """A line from one line of the paper to another, through both."""
        for y in range(first, last + 1):
            self.mark(net, x, y, UP | DOWN)

    def horizontal(self, net: int, first: int, last: int, y: int) -> None:
        """A line from one column to another."""
        for x in range(first, last + 1):
            self.mark(net, x, y, (LEFT if x > first else 0) | (RIGHT if x < last else 0))

    def lines(self) -> list[Line]:
        """All that was drawn, with neighbouring cells of one kind in one piece."""
        cells = self._texts.keys() | self._lines.keys()
        height = max((y for y, _ in cells), default=-1) + 1
        widths = [0] * height
        for y, x in cells:
            widths[y] = max(widths[y], x + 1)
        return [self._line(y, widths[y]) for y in range(height)]

    def _line(self, y: int, width: int) -> Line:
        pieces: list[Span] = []
        for x in range(width):
            char, kind, node = self._texts.get((y, x)) or (_joined(self._lines.get((y, x), {})), DIM, "")
            if pieces and (kind, node) == (pieces[-1].kind, pieces[-1].node):
                pieces[-1] = Span(pieces[-1].text + char, kind, node)
            else:
                pieces.append(Span(char, kind, node))
        return tuple(pieces)


def _joined(nets: dict[int, int]) -> str:
    """The character of a cell: nets that only cross are bridged, those that meet are joined."""
    marks = list(nets.values())
    if len(marks) == 2 and sorted(marks) == [UP | DOWN, LEFT | RIGHT]:
        return "│"
    joined = 0
    for directions in marks:
        joined |= directions
    return _CHARS[joined]
