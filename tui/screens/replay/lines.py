"""How a rung of the ladder and a node's value are painted as lines. Knows no widget and decides nothing.

For example: `rung_parts(ladder.cells("inductor"), ticked=True, width=100)[0]` gives `('[x] ', 'bold')`.
"""

from __future__ import annotations

from rich.cells import set_cell_size

from ....dumps.tables import plain
from ....toolkit.node_values.seen import ValuesSeen
from ....toolkit.triage.seen import RungCells
from ..home.line import middle

STYLES = {"": "", "ok": "green", "bad": "bold red", "doubt": "yellow", "running": "bold cyan", "dim": "dim"}
MARKS = {"": " ", "ok": "✓", "bad": "✗", "doubt": "?", "running": "▶", "dim": "-"}

Parts = list[tuple[str, str]]


_RUNG_NUMBERS = (("error", 8, 0), ("eager's", 8, 100), ("seconds", 8, 76), ("peak", 10, 110))
"""Title, width, and the width of the screen from which on a column is shown."""


def rung_head(width: int) -> str:
    """The titles over the rungs."""
    titles = [f"{title:>{wide}}" for title, wide, least in _RUNG_NUMBERS if width >= least]
    return "  ".join([f"     {'rung':<19}  {'verdict':<22}", *titles, "why"])


def rung_parts(cells: RungCells, *, ticked: bool, width: int) -> Parts:
    """The parts of a rung's line."""
    style = STYLES[cells.tone]
    numbers = (cells.error, cells.eager, cells.seconds, cells.peak)
    shown = [
        f"  {cell:>{wide}}" for cell, (_, wide, least) in zip(numbers, _RUNG_NUMBERS, strict=True) if width >= least
    ]
    return [
        ("[x] " if ticked else "[ ] ", "bold" if ticked else "dim"),
        (f" {cells.rung:<19}  ", "bold" if ticked else ""),
        (f"{MARKS[cells.tone]} {cells.verdict:<20}", style),
        ("".join(shown) + "  ", ""),
        (plain(cells.said), "dim" if cells.tone in ("dim", "ok") else style),
    ]


_NUMBERS = (("min", 9, 0), ("max", 9, 0), ("NaN", 5, 0), ("Inf", 5, 90), ("error", 7, 0), ("eager's", 7, 76))
_LINE = 110
"""The width from which on the user's line is shown."""
SIGNS = {"FIRST BAD": "✗1", "bad": "✗ ", "NaN": "! "}


def _name_width(width: int) -> int:
    taken = 4 + (7 if width >= 76 else 0) + sum(wide + 2 for _, wide, least in _NUMBERS if width >= least)
    return max(10, min(40, width - taken - (36 if width >= _LINE else 0)))


def value_head(width: int) -> str:
    """The titles over the values."""
    titles = [f"{title:>{wide}}" for title, wide, least in _NUMBERS if width >= least]
    number = f"{'#':>6} " if width >= 76 else ""
    line = f"  {'line':<22}" if width >= _LINE else ""
    return f"   {number}" + "  ".join([set_cell_size("node", _name_width(width)), *titles]) + line


def value_parts(seen: ValuesSeen, place: int, width: int) -> Parts:
    """The parts of a node's line."""
    row, mark = seen.rows[place], seen.mark(place)
    *numbers, reason = seen.cells(place)
    style = "bold red" if mark in ("FIRST BAD", "bad") else "bold yellow" if mark else "" if seen.marked else "dim"
    name = set_cell_size(middle(plain(row.name), _name_width(width)), _name_width(width))
    number = f"{row.index:>6} " if width >= 76 else ""
    parts: Parts = [(f"{SIGNS.get(mark, ''):<3}{number}{name}", style)]
    if reason:
        return [*parts, (f"  ({plain(reason)})", "dim")]
    for cell, (title, wide, least) in zip(numbers, _NUMBERS, strict=True):
        if width >= least:
            parts.append((f"  {cell:>{wide}}", "bold yellow" if title in ("NaN", "Inf") and cell else style))
    if width >= _LINE:
        parts.append((f"  {plain(row.line)[-22:]:<22}", "dim"))
    parts.append((f"  ◀ {mark}" if mark else "", style))
    return parts
