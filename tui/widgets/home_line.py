"""How one line of Home is painted: columns for graphs, one text for all else. Knows no widget and reads nothing.

>>> layout = Layout.of(lines, width=80)
>>> "".join(text for text, _ in layout.parts(line, folded=False, kernels=3))
'  0_0/forward      forward    113  failed        5.48   3  CppCompileError: ...'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from ...dumps.browse.listing import Line
from ...dumps.tables import plain

MARKS = {
    "failed": "✗", "died": "✗", "killed": "✗", "running": "▶", "compiling": "▶", "ran": "✓", "compiled": "✓", "captured": "·",
    "ok": "✓",
}  # fmt: skip
"""A glyph beside the word of a status, so that neither needs a colour."""

_DROPPED = ((124, "stage"), (104, "kernels"), (70, "seconds"))
"""Below so many columns of the terminal these are left out."""


@dataclass(frozen=True)
class Layout:
    """Which columns there are, and how wide: by the graphs there are and the width of the screen."""

    name: int
    stage: int
    status: int
    kernels: bool
    seconds: bool
    width: int = 80

    @classmethod
    def of(cls, lines: Sequence[Line], width: int) -> Layout:
        """The layout for these lines."""
        graphs = [line for line in lines if line.kind == "graph"]
        gone = {name for limit, name in _DROPPED if width < limit}
        name = max((2 * line.depth + len(line.name) + 1 for line in graphs), default=12)
        stage = 0 if "stage" in gone else max((len(line.stage) for line in graphs), default=5)
        status = max((len(line.status_text()) for line in graphs), default=0) + 2
        return cls(
            min(name, max(16, width // 3)), stage, max(12, min(status, 20)), "kernels" not in gone, "seconds" not in gone, width
        )

    def head(self) -> str:
        """The titles."""
        parts = [set_cell_size("  graph", self.name + 2)]
        parts += [set_cell_size("stage", self.stage)] * bool(self.stage)
        parts += [f"{'nodes':>7}", set_cell_size("status", self.status)]
        parts += [f"{'seconds':>8}"] * self.seconds
        parts += [f"{'kernels':>7}"] * self.kernels
        return "  ".join([*parts, "error"])

    def parts(self, line: Line, *, folded: bool, kernels: int | None = None) -> list[tuple[str, str]]:
        """One line as parts with styles."""
        if line.kind == "graph":
            return self._graph(line, kernels)
        if line.kind == "section":
            return [(f" {line.name}", "bold")]
        if line.kind == "note":
            return [("  " * line.depth + ("! " if line.bad else "  ") + plain(line.name), "yellow" if line.bad else "dim")]
        sign = ("▸ " if folded else "▾ ") if line.folds else "  "
        mark = MARKS.get(line.status, "✗" if line.bad else "")
        status = f" {mark} {line.status_text()}".replace("  ", " ") if line.status or mark else ""
        style = "bold red" if line.bad else "green" if line.status == "running" else "cyan"
        name, text = plain(line.name), "  " + plain(line.text)
        if line.kind == "job":  # what became of it comes after a long command line, and must be seen
            name = middle(name, max(20, self.width - 2 * line.depth - cell_len(sign + status + text) - 1))
        return [("  " * line.depth + sign, ""), (name, "bold"), (status, style), (text, "dim")]

    def _graph(self, line: Line, kernels: int | None) -> list[tuple[str, str]]:
        mark = "✗" if line.bad else MARKS.get(line.status.partition(",")[0], "·")
        name = "  " * line.depth + middle(plain(line.name), max(4, self.name - 2 * line.depth))
        nodes = "" if line.nodes is None else f"{line.nodes:,}"
        style = "bold red" if line.bad else "yellow" if line.since else "green" if line.status in ("ran", "ok") else ""
        parts = [set_cell_size(name, self.name + 2)]
        parts += [set_cell_size(line.stage, self.stage)] * bool(self.stage)
        left = "  ".join([*parts, f"{nodes:>7}"]) + "  "
        right: list[str] = []
        if self.seconds:
            right.append(f"{'' if line.seconds is None else f'{line.seconds:.2f}':>8}")
        if self.kernels:
            right.append(f"{'' if kernels is None else kernels:>7}")
        return [
            (left, "" if line.saved else "dim"), (set_cell_size(f"{mark} {line.status_text()}", self.status), style),
            ("  " + "  ".join(right) + "  ", ""), (plain(line.error), "red" if line.bad else "dim"),
        ]  # fmt: skip


def middle(text: str, width: int) -> str:
    """A name shortened in its middle: both ends tell names apart."""
    if cell_len(text) <= width:
        return text
    keep = max(1, width - 1)
    return text[: keep // 2] + "…" + text[len(text) - (keep - keep // 2) :]
