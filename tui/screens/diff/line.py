"""How one line of two graphs side by side is painted: a sign and a word for the kind of difference, then both nodes.

For example:

    Layout.of(120).parts(made, 3)
    # [('~ changed  ', 'bold yellow'), ('   3 mul_1   aten.mul.Tensor  f32[8, 64]', ''), ...]
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import set_cell_size

from ....dumps.diff.beside import SIGNS
from ....dumps.diff.sideways import OWN, SideColumns, Sideways
from ....dumps.short import shorten
from ....dumps.tables import plain

STYLES = {
    "changed": "bold yellow",
    "only A": "red",
    "only B": "green",
    "replaced": "bold magenta",
    "follows": "dim",
    "moved": "cyan",
    "seq_nr": "cyan",
    "saved": "dim",
}
"""A colour beside the sign and the word, which say the same."""


@dataclass(frozen=True)
class DiffWidths:
    """The widths of the parts of a line, by the width of the screen; 0 leaves a part out."""

    mark: int
    number: int
    name: int
    target: int
    value: int

    @classmethod
    def of(cls, width: int, nodes: int = 1) -> DiffWidths:
        """The layout for a screen of that width and graphs of so many nodes."""
        mark = 11 if width >= 90 else 2
        number = max(3, len(str(nodes)))
        each = (width - mark - 3) // 2 - number - 1
        if each < 24:
            return cls(mark, number, max(8, each), 0, 0)
        if each < 34:
            return cls(mark, number, each - each // 2 - 1, each // 2, 0)
        value = 18 if each < 60 else 24
        target = (each - value) // 2 - 1
        return cls(mark, number, each - value - target - 2, target, value)

    @property
    def side(self) -> int:
        """The width of one graph."""
        return (
            self.number
            + 1
            + self.name
            + (self.target + 1 if self.target else 0)
            + (self.value + 1 if self.value else 0)
        )

    def head(self, sideways: Sideways) -> str:
        """The titles: which graph stands where."""
        a, b = (shorten(plain(side.graph), self.side - 3) for side in sideways.sides)
        return " " * self.mark + set_cell_size(f"A {a}", self.side) + " │ " + f"B {b}"

    def parts(self, sideways: Sideways, index: int, left_out: int = 0) -> list[tuple[str, str]]:
        """One line as parts with styles; `left_out` lines before it are not listed."""
        row = sideways.row(index)
        style = STYLES.get(row.mark, "")
        sign = SIGNS[row.mark] if self.mark < 5 else f"{SIGNS[row.mark]} {row.mark}"
        if left_out and not row.mark:
            sign = "⋮" if self.mark < 5 else f"⋮ {left_out:,} alike"
            style = "dim"
        a, b = self._node(sideways, sideways.sides[0], row.a), self._node(sideways, sideways.sides[1], row.b)
        quiet = style if row.mark in OWN or row.mark == "follows" else ""
        return [(set_cell_size(sign, self.mark), style), (a, quiet), (" │ ", "dim"), (b, quiet)]

    def _node(self, sideways: Sideways, side: SideColumns, at: int) -> str:
        if at < 0:
            return " " * self.side
        parts = [f"{at:>{self.number}}", set_cell_size(shorten(plain(side.names[at]), self.name), self.name)]
        if self.target:
            parts.append(set_cell_size(shorten(plain(sideways.strings[side.targets[at]]), self.target), self.target))
        if self.value:
            parts.append(set_cell_size(shorten(sideways.strings[side.values[at]], self.value), self.value))
        return " ".join(parts)
