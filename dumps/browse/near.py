"""The neighbourhood of one node: which nodes belong to it, their rows, and a drawing with boxes and lines for a
terminal.

The nearest nodes within some hops, in both directions, in rows from inputs down to users; `boxes` draws them. Reads the
table only: the time does not depend on the size of the graph.

>>> print(text(sheet_of(view, view.position("mul_1"), hops=1)))
3 nodes within 1 hop of mul_1
┌────────────────+3┐
│ addmm            │
│ addmm f32[2, 16] │
└─────────┬──────+2┘
          │
 ╔════════▼═══════╗
 ║ mul_1          ║
 ║ mul f32[2, 16] ║
 ╚════════╤═══════╝
          │
 ┌────────▼───────┐
 │ erf            │
 │ erf f32[2, 16] │
 └──────────────+1┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..short import base_name, row_value, shorten
from ..wording import counted
from .sheet import DIM, HERE, LINK, Line, Sheet, Span, line
from .table import GraphView

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8

_CHARS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
"""Indexed by the sum of the directions that meet in a cell."""

ASCII = str.maketrans(
    {
        **dict.fromkeys("│║╵╷", "|"),
        **dict.fromkeys("─═╴╶", "-"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╔╗╚╝╤", "+"),
        "▼": "v",
        "…": "~",
    }
)
"""Translates the drawing characters to ASCII, for terminals that have nothing else: `text.translate(ASCII)`."""


class Canvas:
    """A drawing, as cells by line and column. Text covers lines."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], tuple[str, str, str]] = {}
        self._lines: dict[tuple[int, int], dict[int, int]] = {}

    def text(self, x: int, y: int, text: str, kind: str = "", node: str = "") -> None:
        """Writes a text from a cell to the right."""
        for number, char in enumerate(text):
            self._texts[y, x + number] = char, kind, node

    def mark(self, net: int, x: int, y: int, directions: int) -> None:
        """Adds to a cell the line of a net that leaves it in some directions."""
        cell = self._lines.setdefault((y, x), {})
        cell[net] = cell.get(net, 0) | directions

    def vertical(self, net: int, x: int, first: int, last: int) -> None:
        """Draws a line of a net down a column, from the first row to the last, both included."""
        for y in range(first, last + 1):
            self.mark(net, x, y, UP | DOWN)

    def horizontal(self, net: int, first: int, last: int, y: int) -> None:
        """Draws a line of a net along a row, from the first column to the last."""
        for x in range(first, last + 1):
            self.mark(net, x, y, (LEFT if x > first else 0) | (RIGHT if x < last else 0))

    def lines(self) -> list[Line]:
        """The drawing as lines, with neighbouring cells of one kind joined."""
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
    """The character of a cell: nets that only cross are drawn as crossing, others as joined."""
    marks = list(nets.values())
    if len(marks) == 2 and sorted(marks) == [UP | DOWN, LEFT | RIGHT]:
        return "│"
    joined = 0
    for directions in marks:
        joined |= directions
    return _CHARS[joined]


GAP = 2
_SWEEPS = 4


@dataclass
class NodeBox:
    """`inputs` are the ids of the boxes whose values it uses; `hidden` counts the inputs and users that are not drawn;
    `node`: the target of a click."""

    id: int
    node: str
    row: int
    words: list[str]
    inputs: list[int]
    hidden: tuple[int, int] = (0, 0)
    focus: bool = False

    @property
    def width(self) -> int:
        """The width in columns, with the frame."""
        marks = [len(f"+{count}") + 5 for count in self.hidden if count]
        ports = 2 * len(self.inputs) + 3 + (len(f"+{self.hidden[0]}") if self.hidden[0] else 0)
        return max(7, ports, *(len(word) + 4 for word in self.words), *marks)


@dataclass
class _Item:
    """A box, or the line of a net that passes through a row (`box` is None)."""

    net: int
    width: int
    box: NodeBox | None = None
    x: int = 0
    above: list[_Item] = field(default_factory=list["_Item"])
    below: list[_Item] = field(default_factory=list["_Item"])
    ports: dict[int, int] = field(default_factory=dict[int, int])
    """Net -> the column at which its line enters."""

    @property
    def bottom(self) -> int:
        """The column at which the item's own line leaves."""
        return self.x + self.width // 2

    def arrange(self, taken: dict[int, int]) -> None:
        """Chooses the columns of incoming lines: straight below their origins if possible, and none that another net
        comes down in (`taken`: column -> net). The box grows where there are too few columns."""
        wanted = sorted(self.above, key=lambda item: item.bottom)
        if self.box is None:
            self.ports = {wanted[0].net: self.x}
            return
        mark = len(f"+{self.box.hidden[0]}") if self.box.hidden[0] else 0
        while wanted:
            columns = self._columns(wanted, taken, self.x + self.width - 2 - mark)
            if columns is not None:
                self.ports = {item.net: column for item, column in zip(wanted, columns, strict=True)}
                return
            self.width += 2

    def _columns(self, wanted: list[_Item], taken: dict[int, int], last: int) -> list[int] | None:
        """A column for each item, in order, up to column `last`; None if there is no such choice."""
        count, low = len(wanted), self.x + 1

        def free(column: int, item: _Item) -> bool:
            return taken.get(column, item.net) == item.net

        even: list[tuple[int, int, list[int]]] = []
        for start in range(low, last - 2 * (count - 1) + 1):
            columns = [start + 2 * number for number in range(count)]
            if all(map(free, columns, wanted)):
                bent = sum(item.bottom != column for item, column in zip(wanted, columns, strict=True))
                even.append((bent, abs(start + count - 1 - self.bottom), columns))
        if even:
            return min(even)[2]
        chosen: list[int] = []
        for item in wanted:
            column = next(
                (column for column in range(chosen[-1] + 2 if chosen else low, last + 1) if free(column, item)), None
            )
            if column is None:
                return None
            chosen.append(column)
        return chosen


def drawn(boxes: list[NodeBox], width: int) -> tuple[list[Line], int]:
    """Draws the boxes; returns the lines, and the index of the first line of the box in focus."""
    rows = _rows(boxes, width)
    _order(rows)
    _place(rows, width)
    canvas = Canvas()
    y, focus = 0, 0
    for number, row in enumerate(rows):
        height = max((len(item.box.words) + 2 for item in row if item.box), default=1)
        for item in row:
            if item.box is None:
                canvas.vertical(item.net, item.x, y, y + height - 1)
            else:
                _draw_box(canvas, item, item.box, y, height)
                focus = y if item.box.focus else focus
        y += height
        if number + 1 < len(rows):
            y = _channel(canvas, row, y)
    return canvas.lines(), focus


def _rows(boxes: list[NodeBox], width: int) -> list[list[_Item]]:
    """The items by row, including lines that pass through; a row that does not fit is split."""
    by_row: dict[int, list[NodeBox]] = {}
    for box in boxes:
        by_row.setdefault(box.row, []).append(box)
    parts: list[list[NodeBox]] = []
    for number in sorted(by_row):
        parts.append([])
        used = 0
        for box in by_row[number]:
            if used and used + box.width > width:
                parts.append([])
                used = 0
            parts[-1].append(box)
            used += box.width + GAP
    rows = [[_Item(box.id, box.width, box) for box in part] for part in parts]
    place = {box.id: number for number, part in enumerate(parts) for box in part}
    last = dict(place)
    for box in boxes:
        for used in box.inputs:
            last[used] = max(last[used], place[box.id])
    items = {item.net: item for row in rows for item in row}
    for net, item in items.items():
        before = item
        for number in range(place[net] + 1, last[net]):
            passing = _Item(net, 1, None, above=[before])
            before.below.append(passing)
            rows[number].append(passing)
            before = passing
    chains = {(item.net, number): item for number, row in enumerate(rows) for item in row}
    for box in boxes:
        for used in box.inputs:
            above, below = chains[used, place[box.id] - 1], items[box.id]
            above.below.append(below)
            below.above.append(above)
    return rows


def _order(rows: list[list[_Item]]) -> None:
    """Orders each row by the mean position of the items above, then of those below, in turn."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            places = {id(item): number for other in rows for number, item in enumerate(other)}

            def wanted(item: _Item, places: dict[int, int] = places, down: bool = down) -> float:
                near = item.above if down else item.below
                return sum(places[id(other)] for other in near) / len(near) if near else places[id(item)]

            row.sort(key=wanted)


def _place(rows: list[list[_Item]], width: int) -> None:
    """Chooses the columns of items: a box as close below its inputs as order and width allow; a passing line straight
    down where no other net comes down."""
    taken: dict[int, int] = {}
    for row in rows:
        free = 0
        for item in row:
            centres = [other.bottom for other in item.above]
            item.x = max(free, round(sum(centres) / len(centres)) - item.width // 2 if centres else free, 0)
            free = item.x + item.width + (GAP if item.box else 1)
        limit = max(width, sum(item.width + 1 for item in row))
        for item in reversed(row):
            item.x = max(0, min(item.x, limit - item.width))
            limit = item.x - (GAP if item.box else 1)
        free = 0
        for item in row:
            item.x = max(item.x, free)
            while item.box is None and taken.get(item.x, item.net) != item.net:
                item.x += 1
            item.arrange(taken)
            free = item.x + item.width + 1
        taken = {item.bottom: item.net for item in row if item.below}


def _draw_box(canvas: Canvas, item: _Item, box: NodeBox, y: int, height: int) -> None:
    frame = "╔═╗║╚╝" if box.focus else "┌─┐│└┘"
    inner = item.width - 2
    out = ("╤" if box.focus else "┬") if item.below else frame[1]
    top = [frame[1]] * inner
    bottom = [frame[1]] * inner
    for edge, count in ((top, box.hidden[0]), (bottom, box.hidden[1])):
        if count:
            mark = f"+{count}"
            edge[inner - len(mark) :] = mark
    for column in item.ports.values():
        top[column - item.x - 1] = "▼"
    bottom[item.bottom - item.x - 1] = out
    kind = HERE if box.focus else ""
    canvas.text(item.x, y, frame[0] + "".join(top) + frame[2], kind)
    for number, word in enumerate(box.words, 1):
        canvas.text(item.x, y + number, frame[3], kind)
        canvas.text(item.x + 2, y + number, word, HERE if box.focus else LINK if number == 1 else "", box.node)
        canvas.text(item.x + item.width - 1, y + number, frame[3], kind)
    end = y + len(box.words) + 1
    canvas.text(item.x, end, frame[4] + "".join(bottom) + frame[5], kind)
    if item.below and end < y + height - 1:
        canvas.vertical(item.net, item.bottom, end + 1, y + height - 1)


def _channel(canvas: Canvas, row: list[_Item], y: int) -> int:
    """The lines from a row to the next, from line y on; returns the line after them."""
    nets = [(item, [other.ports[item.net] for other in item.below]) for item in row if item.below]
    bent = [(item, tops) for item, tops in nets if any(top != item.bottom for top in tops)]
    tracks: list[list[tuple[int, int]]] = []
    at: dict[int, int] = {}
    for item, tops in sorted(bent, key=lambda net: (min([net[0].bottom, *net[1]]), net[0].bottom)):
        low, high = min(item.bottom, *tops), max(item.bottom, *tops)
        track = next(
            (n for n, used in enumerate(tracks) if all(high < a - 1 or low > b + 1 for a, b in used)), len(tracks)
        )
        if track == len(tracks):
            tracks.append([])
        tracks[track].append((low, high))
        at[id(item)] = y + track
    end = y + max(1, len(tracks))
    for item, tops in nets:
        if id(item) not in at:
            canvas.vertical(item.net, item.bottom, y, end - 1)
            continue
        track = at[id(item)]
        canvas.vertical(item.net, item.bottom, y, track - 1)
        canvas.mark(item.net, item.bottom, track, UP)
        canvas.horizontal(item.net, min(item.bottom, *tops), max(item.bottom, *tops), track)
        for top in set(tops):
            canvas.mark(item.net, top, track, DOWN)
            canvas.vertical(item.net, top, track + 1, end - 1)
    return end


HOPS = 2
MOST_HOPS = 9
WIDTH = 80
MOST = 24
"""The most boxes that are readable in a terminal; of more nodes only the nearest are drawn."""
_WIDEST, _NARROWEST = 24, 12


def around(view: GraphView, index: int, hops: int) -> tuple[list[int], int]:
    """The nodes within a number of hops, in graph order (at most MOST, the nearest), and their number before that
    cut."""
    distance = distances(
        index, hops, lambda at: (*view.inputs(at), *view.users(at)), lambda at: view.op(at) == "output"
    )
    nearest = sorted(distance, key=lambda at: (distance[at], abs(at - index)))[:MOST]
    return sorted(nearest), len(distance)


def distances(
    start: int, hops: int, beside: Callable[[int], Iterable[int]], is_output: Callable[[int], bool]
) -> dict[int, int]:
    """Distance in hops of each node within `hops`. No path goes through the output, which would bring all nodes within
    two hops."""
    distance, border, step = {start: 0}, [start], 0
    while border and step < hops:
        step += 1
        through = [at for at in border if at == start or not is_output(at)]
        border = list(dict.fromkeys(other for at in through for other in beside(at) if other not in distance))
        distance.update(dict.fromkeys(border, step))
    return distance


def rows_of(view: GraphView, chosen: list[int]) -> dict[int, int]:
    """The row of each chosen node: below all of its inputs, and as close to its users as that allows."""
    inside = set(chosen)
    row: dict[int, int] = {}
    for at in chosen:
        row[at] = max((row[used] + 1 for used in view.inputs(at) if used in inside), default=0)
    for at in reversed(chosen):
        users = [row[user] for user in view.users(at) if user in inside]
        if users and not any(used in inside for used in view.inputs(at)):
            row[at] = min(users) - 1
    return row


def sheet_of(view: GraphView, index: int, hops: int = HOPS, width: int = WIDTH) -> Sheet:
    """The drawing as a sheet that begins at the node's own row."""
    hops = max(1, min(hops, MOST_HOPS))
    chosen, count = around(view, index, hops)
    row = rows_of(view, chosen)
    inside = set(chosen)
    most = _fitting(list(row.values()), width)
    boxes: list[NodeBox] = []
    for at in chosen:
        inputs = [used for used in view.inputs(at) if used in inside]
        hidden = len(view.inputs(at)) - len(inputs), sum(user not in inside for user in view.users(at))
        boxes.append(_box(view, at, row[at], inputs, hidden, most, focus=at == index))
    lines, top = drawn(boxes, width)
    name = view.table.name[index]
    head: list[Line] = [line((f"{counted(len(chosen), 'node')} within {counted(hops, 'hop')} of ", DIM), name)]
    if count > len(chosen):
        head.append(line((f"{count} are that near; these are the nearest", DIM)))
    return Sheet(f"around {name}", [*head, *lines], top + len(head), choice=counted(hops, "hop"))


def _fitting(rows: list[int], width: int) -> int:
    """The width of a box at which the fullest row fits, within limits."""
    fullest = max(rows.count(row) for row in set(rows))
    return max(_NARROWEST, min(_WIDEST, (width - 2) // fullest - 2))


def _box(
    view: GraphView, at: int, row: int, inputs: list[int], hidden: tuple[int, int], width: int, *, focus: bool
) -> NodeBox:
    name = view.table.name[at]
    op = view.op(at)
    what = base_name(view.target(at)) if op.startswith("call_") else "" if op in (name, "placeholder") else op
    value = row_value(view.table.row(at))
    together = f"{what} {value}".strip()
    words = [name, together] if len(together) <= width - 4 else [name, what, value]
    return NodeBox(at, name, row, [shorten(text, width - 4) for text in words if text], inputs, hidden, focus)
