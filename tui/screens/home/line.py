"""How one line of Home is painted: columns for compiles and graphs, one text for all else. Knows no widget and reads
nothing.

For example:

    columns = HomeColumns.of(lines, width=80)
    "".join(text for text, _ in columns.parts(line, folded=False, kernels=3))
    # '  0_0      113  ✗ failed        5.48  CppCompileError: ...'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from ....dumps.browse.listing import GRAPHS, ListingLine
from ....dumps.tables import cut, plain

MARKS = {
    **dict.fromkeys(("failed", "died", "killed"), "✗"),
    **dict.fromkeys(("running", "compiling", "starting"), "▶"),
    **dict.fromkeys(("ran", "compiled", "ok", "finished"), "✓"),
    "captured": "·",
}
"""A glyph beside the word of a status, so that neither needs a colour."""

_DROPPED = ((124, "stage"), (112, "kernels"), (60, "seconds"))
"""The columns of the terminal below which each of these columns is left out."""
_BOTH = 100
"""The width from which function and error have columns of their own; below it, an error stands in place of the
function."""


@dataclass(frozen=True)
class HomeColumns:
    """Which columns there are, and how wide: by the listed compiles and graphs and the width of the screen."""

    name: int
    stage: int
    status: int
    kernels: bool
    seconds: bool
    function: int = 0
    width: int = 80

    @classmethod
    def of(cls, lines: Sequence[ListingLine], width: int) -> HomeColumns:
        """The layout for some lines."""
        graphs = [line for line in lines if line.kind in GRAPHS]
        gone = {name for limit, name in _DROPPED if width < limit}
        name = max((2 * line.depth + len(_name(line)) + 3 for line in graphs), default=9)
        stage = 0 if "stage" in gone else max((len(line.stage) for line in graphs), default=5)
        status = max((len(line.status_text()) for line in graphs), default=0) + 2
        function = max((len(line.function) for line in graphs), default=0) if width >= _BOTH else 0
        name, stage, status = max(9, min(name, max(16, width // 3))), min(stage, 20), max(10, min(status, 20))
        return cls(name, stage, status, "kernels" not in gone, "seconds" not in gone, min(function, width // 3), width)

    def head(self) -> str:
        """The titles."""
        parts = [set_cell_size("  compile", self.name)]
        parts += [set_cell_size("stages", self.stage)] * bool(self.stage)
        parts += [f"{'nodes':>7}", set_cell_size("status", self.status)]
        parts += [f"{'seconds':>8}"] * self.seconds
        parts += [f"{'kernels':>7}"] * self.kernels
        parts += [set_cell_size("function", self.function)] * bool(self.function)
        return "  ".join([*parts, "error" if self.function else "function, error"])

    def parts(self, line: ListingLine, *, folded: bool, kernels: int | None = None) -> list[tuple[str, str]]:
        """One line as parts with styles."""
        if line.kind in GRAPHS:
            return self._graph(line, folded, kernels)
        sign = ("▸ " if folded else "▾ ") if line.folds else "  "
        if line.kind == "section":
            start = "  " * line.depth + (sign if line.folds else " ")
            return [(start, ""), (line.name, "bold"), (f"  {line.text}", "dim")]
        if line.kind == "note":
            start, style = ("! ", "yellow") if line.bad else ("  ", "dim")
            return [("  " * line.depth + start + plain(line.name), style)]
        mark = MARKS.get(line.status, "✗" if line.bad else "")
        status = f" {mark} {line.status_text()}".replace("  ", " ") if line.status or mark else ""
        style = "bold red" if line.bad else "green" if line.status == "running" else "cyan"
        name, text = plain(line.name), "  " + plain(line.text)
        if line.kind == "job":  # what became of it comes after a long command line, and must be seen
            name = cut(name, max(20, self.width - 2 * line.depth - cell_len(sign + status + text) - 1), "middle")
        return [("  " * line.depth + sign, ""), (name, "bold"), (status, style), (text, "dim")]

    def _graph(self, line: ListingLine, folded: bool, kernels: int | None) -> list[tuple[str, str]]:
        mark = "✗" if line.bad else MARKS.get(line.status.partition(",")[0], "·")
        sign = ("▸ " if folded else "▾ ") if line.folds else "  "
        name = "  " * line.depth + sign + cut(plain(_name(line)), max(4, self.name - 2 * line.depth - 3), "middle")
        nodes = "" if line.nodes is None else f"{line.nodes:,}"
        style = "bold red" if line.bad else "yellow" if line.since else "green" if line.status in ("ran", "ok") else ""
        parts = [set_cell_size(name, self.name)]
        parts += [set_cell_size(line.stage if line.kind == "compile" else "", self.stage)] * bool(self.stage)
        left = "  ".join([*parts, f"{nodes:>7}"]) + "  "
        right: list[str] = []
        if self.seconds:
            right.append(f"{'' if line.seconds is None else f'{line.seconds:.2f}':>8}")
        if self.kernels:
            right.append(f"{'' if kernels is None else kernels:>7}")
        function, error = plain(line.function), plain(line.error)
        if line.kind == "graph" and line.compiled is not None and line.name != line.compiled.main.id:
            error = error if line.status != line.compiled.main.status else ""  # shown once
        if self.function:
            right.append(set_cell_size(cut(function, self.function, "middle"), self.function))
        elif not (line.bad and error):
            error = function or error
        return [
            (left, "" if line.saved else "dim"),
            (set_cell_size(f"{mark} {line.status_text()}", self.status), style),
            ("  " + "  ".join(right) + "  ", ""),
            (error, "red" if line.bad else "dim" if self.function else ""),
        ]


def _name(line: ListingLine) -> str:
    """The name of a line: a graph below its compile is shown by its stage alone."""
    return line.name.partition("/")[2] or line.name if line.kind == "graph" else line.name
