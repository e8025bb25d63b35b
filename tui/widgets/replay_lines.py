"""How a rung of the ladder and a node's value are painted as lines. Knows no widget and decides nothing.

>>> rung_parts(ladder.cells("inductor"), ticked=True, width=100)[1]
('inductor', 'bold')
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import set_cell_size

from ...dumps.tables import plain
from ...toolkit.node_values.seen import ValuesSeen
from ...toolkit.triage.seen import RungCells
from .home_line import middle

STYLES = {"": "", "ok": "green", "bad": "bold red", "doubt": "yellow", "running": "bold cyan", "dim": "dim"}
MARKS = {"": " ", "ok": "✓", "bad": "✗", "doubt": "?", "running": "▶", "dim": "-"}

Parts = list[tuple[str, str]]


def rung_head(width: int) -> str:
    """The titles over the rungs."""
    peak = f"{'peak':>9}  " if width >= 100 else ""
    return f"     {'rung':<19}  {'verdict':<18}{'error':>8}  {'eager' + chr(39) + 's':>8}  {'seconds':>8}  {peak}why"


def rung_parts(cells: RungCells, *, ticked: bool, width: int) -> Parts:
    """One rung."""
    style = STYLES[cells.tone]
    peak = f"{cells.peak:>9}  " if width >= 100 else ""
    numbers = f"{cells.error:>8}  {cells.eager:>8}  {cells.seconds:>8}  {peak}"
    if width < 80:
        numbers = f"{cells.error:>8} "
    return [
        ("[x] " if ticked else "[ ] ", "bold" if ticked else "dim"), (f" {cells.rung:<19}  ", "bold" if ticked else ""),
        (f"{MARKS[cells.tone]} {cells.verdict:<16}", style), (numbers, ""),
        (plain(cells.said), "dim" if cells.tone in ("dim", "ok") else style),
    ]  # fmt: skip


_NUMBERS = (("min", 10, 0), ("max", 10, 0), ("NaN", 7, 0), ("Inf", 7, 90), ("error", 8, 0), ("eager's", 8, 76))
"""Title, width, and from which width of the screen on a column is shown."""


def _name_width(width: int) -> int:
    return max(12, min(40, width - 58)) if width >= 76 else 14


def value_head(width: int) -> str:
    """The titles over the values."""
    titles = [f"{title:>{wide}}" for title, wide, least in _NUMBERS if width >= least]
    line = f"  {'line':<22}" if width >= 110 else ""
    return "  ".join([f"{'#':>6}", set_cell_size("node", _name_width(width)), *titles]) + line


def value_parts(seen: ValuesSeen, place: int, width: int) -> Parts:
    """One node."""
    row, mark = seen.rows[place], seen.mark(place)
    *numbers, reason = seen.cells(place)
    style = "bold red" if mark in ("FIRST BAD", "bad") else "bold yellow" if mark else "" if seen.marked else "dim"
    name = set_cell_size(middle(plain(str(row["name"])), _name_width(width)), _name_width(width))
    head = (f"{row.get('index', place):>6}  {name}", style)
    if reason:
        return [head, (f"  ({plain(reason)})", "dim")]
    cells = [(cell.rjust(wide), title) for cell, (title, wide, least) in zip(numbers, _NUMBERS, strict=True) if width >= least]
    parts: Parts = [head]
    for cell, title in cells:
        alarm = title in ("NaN", "Inf") and cell.strip()
        parts.append(("  " + cell, "bold yellow" if alarm else style))
    line = plain(str(row.get("line") or ""))
    if width >= 110:
        parts.append((f"  {line[-22:]:<22}", "dim"))
    parts.append((f"  ◀ {mark}" if mark else "", style))
    return parts


def tabs(names: Sequence[tuple[str, str]], at: int) -> Parts:
    """The views, the one seen in reverse; each with a word on how it is."""
    parts: Parts = []
    for place, (name, state) in enumerate(names):
        parts.append((f" {name}{' ' + state if state else ''} ", "bold reverse" if place == at else "dim"))
    return parts
