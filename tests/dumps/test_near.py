"""What lies around a node, drawn: every line is followed back from the arrow to the box that it comes from."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from graphdbg.dumps.browse.near import ASCII, MOST, NodeBox, around, drawn, sheet_of
from graphdbg.dumps.browse.sheet import DIM, HERE, Line, line_text
from graphdbg.dumps.browse.table import GraphView
from graphdbg.dumps.sidecar import build

from .graphs import chain
from .layered import layered

UP, DOWN, LEFT, RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)
ENDS = {
    "│": (UP, DOWN),
    "─": (LEFT, RIGHT),
    "┘": (UP, LEFT),
    "└": (UP, RIGHT),
    "┐": (DOWN, LEFT),
    "┌": (DOWN, RIGHT),
    "┤": (UP, DOWN, LEFT),
    "├": (UP, DOWN, RIGHT),
    "┴": (LEFT, RIGHT, UP),
    "┬": (LEFT, RIGHT, DOWN),
    "┼": (UP, DOWN, LEFT, RIGHT),
}


class Paper:
    """The drawing by cells: characters, which of them are lines, and the rectangles of boxes."""

    def __init__(self, lines: list[Line]) -> None:
        self.char: dict[tuple[int, int], str] = {}
        self.wire: set[tuple[int, int]] = set()
        node: dict[tuple[int, int], str] = {}
        for y, line in enumerate(lines):
            x = 0
            for span in line:
                for char in span.text:
                    self.char[x, y] = char
                    if span.kind == DIM and char != " ":
                        self.wire.add((x, y))
                    if span.node:
                        node[x, y] = span.node
                    x += 1
        self.bottoms: dict[tuple[int, int], str] = {}
        self.tops: dict[tuple[int, int], str] = {}
        for (x, y), name in node.items():
            if (x - 1, y) in node:
                continue
            left = x - 2
            for rows, step in ((self.tops, -1), (self.bottoms, 1)):
                row = y
                while self.char[left, row] in "│║":
                    row += step
                at = left
                while self.char.get((at, row), " ") not in "┐┘╗╝":
                    rows[at, row] = name
                    at += 1

    def source(self, x: int, y: int) -> str:
        """The box whose line comes in at an arrow."""
        names: set[str] = set()
        waiting, seen = [((x, y - 1), UP)], set()
        while waiting:
            (x, y), way = waiting.pop()
            if (x, y) in self.bottoms and (x, y) not in self.wire:
                names.add(self.bottoms[x, y])
                continue
            if ((x, y), way) in seen:
                continue
            seen.add(((x, y), way))
            char = self.char.get((x, y), " ")
            assert (x, y) in self.wire, f"the line breaks at {x},{y}: {char!r}"
            back = (-way[0], -way[1])
            if char == "│" and way in (LEFT, RIGHT):  # a bridge
                waiting.append(((x + way[0], y), way))
                continue
            assert back in ENDS[char], f"{char} at {x},{y} does not go on"
            waiting += [((x + dx, y + dy), (dx, dy)) for dx, dy in ENDS[char] if (dx, dy) != back and (dx, dy) != DOWN]
        assert len(names) == 1, names
        return names.pop()

    def edges(self) -> list[tuple[str, str]]:
        """Every arrow: where it comes from, where it goes."""
        return sorted((self.source(x, y), self.tops[x, y]) for (x, y), char in self.char.items() if char == "▼")


@st.composite
def graphs(draw: st.DrawFn) -> list[NodeBox]:
    """Boxes in rows, each using some of those above."""
    count = draw(st.integers(1, 12))
    boxes: list[NodeBox] = []
    for number in range(count):
        inputs = sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))) if number else []
        row = max((boxes[at].row + 1 for at in inputs), default=draw(st.integers(0, 2)))
        hidden = draw(st.tuples(st.integers(0, 12), st.integers(0, 200)))
        name = f"node_{number}" + "x" * draw(st.integers(0, 9))
        boxes.append(
            NodeBox(number, name, row, [name, "f32[4]"][: draw(st.integers(1, 2))], inputs, hidden, number == 0)
        )
    return boxes


@given(graphs(), st.sampled_from([40, 80, 200]))
@settings(max_examples=60)
def test_every_line_leads_from_the_box_that_makes_a_value_to_one_that_uses_it(boxes: list[NodeBox], width: int) -> None:
    lines, top = drawn(boxes, width)
    wanted = sorted((boxes[used].node, box.node) for box in boxes for used in box.inputs)
    assert Paper(lines).edges() == wanted
    assert any(span.kind == HERE and boxes[0].words[0] in span.text for span in lines[top + 1])


def view_of(nodes: int) -> GraphView:
    view = GraphView(build(layered(nodes)))
    _ = view.user_lists
    return view


def test_the_neighbourhood_of_a_node_in_80_columns() -> None:
    view = view_of(200)
    for hops in (1, 2, 3):
        for index in range(0, len(view), 7):
            sheet = sheet_of(view, index, hops)
            chosen, _ = around(view, index, hops)
            names = view.table.name
            edges = sorted((names[used], names[at]) for at in chosen for used in view.inputs(at) if used in chosen)
            drawing = [line for line in sheet.lines if not isinstance(line, str) and line_text(line)[:1] in " ┌╔│║└╚"]
            assert Paper(drawing).edges() == edges
            assert max(len(line_text(line)) for line in sheet.lines) <= 80 or len(chosen) > 12
            assert "╔" in line_text(sheet.lines[sheet.top])


def test_only_the_nearest_are_drawn_and_that_is_said() -> None:
    view = view_of(1000)
    busy = max(range(len(view)), key=lambda index: len(view.users(index)) + len(view.inputs(index)))
    sheet = sheet_of(view, busy, 9)
    assert line_text(sheet.lines[0]).startswith(f"{MOST} nodes within 9 hops")
    assert "these are the nearest" in line_text(sheet.lines[1])


def test_a_chain_is_drawn_straight_and_in_ascii_where_there_is_nothing_else() -> None:
    view = GraphView(build(chain()))
    lines = [line_text(line) for line in sheet_of(view, 2, 1).lines]
    assert lines[1:] == [
        "┌──────────────+1┐",
        "│ sin_0          │",
        "│ sin f32[2, s0] │",
        "└────────┬───────┘",
        "         │",
        "╔════════▼═══════╗",
        "║ sin_1          ║",
        "║ sin f32[2, s0] ║",
        "╚════════╤═══════╝",
        "         │",
        "┌────────▼───────┐",
        "│ sin_2          │",
        "│ sin f32[2, s0] │",
        "└──────────────+1┘",
    ]
    plain = "\n".join(lines).translate(ASCII)
    assert plain.isascii() and "| sin_1" in plain and "v" in plain


def test_a_drawing_takes_no_longer_in_a_large_graph(tmp_path: Path) -> None:
    import time

    view = view_of(20_000)
    start = time.perf_counter()
    sheet_of(view, 15_000, 2)
    assert time.perf_counter() - start < 0.5  # 5 ms here; a look at every node takes a second
