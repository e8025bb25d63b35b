"""The diff screen: two graphs side by side, computed by a `graphdbg diff` process, so that large ones never hold up a
key.

The screen keeps cursor and other graph; which nodes belong together, and what differs, `dumps/diff` says.

"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.cells import set_cell_size
from textual import getters
from textual.app import ComposeResult
from textual.widgets import Static

from ....dumps.diff.beside import OWN, SIGNS, SideColumns, Sideways
from ....dumps.diff.others import ComparableGraph, by_seq_nr, others
from ....dumps.errors import JobFailedError, NotReadyError
from ....dumps.short import shorten
from ....dumps.store import resolve_graph
from ....dumps.tables import plain
from ...here import Here
from ...jobs import Job, ending
from ...room import ListRoom
from ...settings import mark
from ...verdicts import beside
from ...widgets.rows import Parts, Rows
from ...widgets.virtual_list import VirtualList

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
        return sum(width + 1 for width in (self.number, self.name, self.target, self.value) if width) - 1

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


DIFFERENCE_EXIT = 1
LOOK_S = 1.0
"""How often a graph that is being judged is looked at."""


class DiffRoom(ListRoom):
    """One graph beside another."""

    ROOM = "diff"
    summary = getters.query_one("#summary", Static)
    hint = getters.query_one("#hint", Static)

    DEFAULT_CSS = """
    DiffRoom #summary { height: 1; background: $boost; color: $text; padding: 0 1; }
    DiffRoom #heads { height: 1; text-style: bold; }
    DiffRoom #hint { height: 2; background: $boost; color: $text; padding: 0 1; }
    """

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.sideways: Sideways | None = None
        self.shown: list[int] = []
        """The listed lines of `sideways`."""
        self.starts: list[int] = []
        self.only = False
        self.joined: bool | None = None
        """Whether lines are joined by seq_nr; None: by the stages of both graphs."""
        self.job: Job | None = None
        self.judged = ""
        """The verdicts on A and B."""
        self._layout = DiffWidths.of(80)

    def content(self) -> ComposeResult:
        """How they differ in a sentence, both names, the lines, the difference under the cursor."""
        yield Static(id="summary", markup=False)
        yield Static(id="heads", markup=False)
        yield Rows(self._paint, id="rows")
        yield Static(id="hint", markup=False)

    def on_mount(self) -> None:
        """Compares, where the other graph is known; else asks for it."""
        super().on_mount()
        self.rows.focus()
        self.set_interval(LOOK_S, lambda: self._look() if self.is_current and mark("runs") in self.judged else None)
        if self.here.other:
            self._compare()
        else:
            self._say("choose the other graph: c")
            self.do_diff_choose()

    def on_unmount(self) -> None:
        """Ends the jobs that only this screen wanted."""
        if self.job is not None:
            self.job.stop()

    def crumbs(self) -> list[str]:
        """The names of both graphs."""
        return [part for part in (self.here.graph, self.here.other) if part]

    def looked_at(self) -> Here:
        """The graph and node that are looked at: B, the newer one of a graph and its variant, else A."""
        node = None
        if self.sideways is not None and self.shown:
            row = self.sideways.row(self.shown[self.rows.cursor])
            node = self.sideways.sides[1].names[row.b] if row.b >= 0 else None
        return self.here.at(graph=self.here.other or self.here.graph, other=None, node=node)

    def equivalent(self) -> list[str]:
        """The words that `@` shows."""
        words = ["diff", self.here.graph or "A", self.here.other or "B"]
        if self.joined:
            return [*words, "--by-seq-nr"]
        return [*words, "--side-by-side", *([] if self.only else ["--all"])]

    def on_screen_resume(self) -> None:
        """Looks for new verdicts when the screen comes back."""
        super().on_screen_resume()
        self._look()

    def _look(self) -> None:
        a, b = self.here.graph, self.here.other
        if a and b:
            self.work(lambda: beside(a, b), self._take_verdicts, group="verdicts", doing="reading the verdicts")

    def _take_verdicts(self, judged: str) -> None:
        if judged != self.judged:
            self.judged = judged
            self._say_place()

    # -- comparing

    def _compare(self) -> None:
        """Starts the comparison; an earlier one that still runs is dropped."""
        if self.job is not None:
            self.job.stop()
        self.sideways, self.shown, self.starts, self.judged = None, [], [], ""
        self._look()
        self.rows.show(0)
        self._say("comparing ...")
        self.tell_where()
        a, b, joined = self.here.graph or "", self.here.other or "", self.joined
        if joined is None:
            of_stages = lambda: by_seq_nr(resolve_graph(a).stage, resolve_graph(b).stage)  # noqa: E731
            self.work(of_stages, self._start, group="sides", doing="diff")
        else:
            self._start(joined)

    def _start(self, joined: bool) -> None:
        self.joined = joined
        a, b = self.here.graph or "", self.here.other or ""
        words = ["diff", a, b, "--by-seq-nr" if joined else "--side-by-side", "--json"]

        def take(batch: list[dict[str, Any]]) -> None:
            """Takes the comparison, in a thread of the job."""
            sideways = msgspec.convert(batch[-1].get("side_by_side"), Sideways)
            self.call_later(self._show_sideways, job, sideways)

        job = self.job = self.run_job(words, self._ended, doing="diff", passing=True, on_batch=take)

    def _show_sideways(self, job: Job, sideways: Sideways) -> None:
        if job is not self.job:
            return
        self.sideways, self.starts = sideways, sideways.starts()
        self._lay_out()
        self._list()
        if self.starts:
            self._to(self.starts[0])
        self._say_place()

    def _ended(self, job: Job, code: int) -> None:
        if job is not self.job or self.sideways is not None or code in (0, DIFFERENCE_EXIT):
            return
        self._say("not compared; c chooses another graph")
        error = JobFailedError(f"cannot compare {self.here.graph} and {self.here.other}", job.last_said(ending(code)))
        self.trouble(error, doing="diff", said=job.said, retry=self._compare)

    # -- showing

    def _list(self) -> None:
        sideways = self.sideways
        if sideways is None:
            return
        self.shown = sideways.near() if self.only else list(range(len(sideways)))
        self.rows.show(len(self.shown))

    def _lay_out(self) -> None:
        if self.sideways is not None:
            nodes = max(len(side.names) for side in self.sideways.sides)
            self._layout = DiffWidths.of(self.size.width - 1, nodes)
            self.query_one("#heads", Static).update(self._layout.head(self.sideways))

    def on_resize(self) -> None:
        """Lays the columns out for the new size."""
        self._lay_out()

    def _paint(self, index: int, width: int) -> Parts:
        assert self.sideways is not None
        left_out = self.shown[index] - self.shown[index - 1] - 1 if index else self.shown[0]
        return self._layout.parts(self.sideways, self.shown[index], left_out)

    def on_virtual_list_moved(self, message: VirtualList.Moved) -> None:
        """Shows the difference of the line under the cursor in words."""
        self._say_place()

    def _say(self, text: str) -> None:
        self.summary.update(plain(text))
        self.hint.update("")

    def _say_place(self) -> None:
        sideways = self.sideways
        if sideways is None:
            return
        at = self.shown[self.rows.cursor] if self.shown else -1
        place = ""
        if self.starts:
            number = bisect_right(self.starts, at)
            place = f"{number or '-'}/{len(self.starts)}  "
        self.summary.update(place + plain(f"{self.judged}   {sideways.summary}" if self.judged else sideways.summary))
        if at < 0:
            self.hint.update("no line to show: a shows all")
            return
        row = sideways.row(at)
        a, b = sideways.sides
        sides = (("A", a, row.a), ("B", b, row.b))
        users = [
            f"{letter} {sideways.strings[side.lines[at]] or side.names[at]}" for letter, side, at in sides if at >= 0
        ]
        alone = "no partner on the other side" if self.joined and min(row.a, row.b) < 0 else ""
        what = row.text or row.mark or alone or "no difference"
        self.hint.update(f"{plain(what)}\n{plain('   '.join(users))}")

    def _to(self, line: int) -> None:
        """Moves the cursor to a line of `sideways`, or the nearest that is listed."""
        self.rows.move_to(bisect_left(self.shown, line), margin=4)

    # -- actions

    def do_diff_step(self, step: int) -> None:
        """Moves to the next difference, or the one before."""
        if self.sideways is None or not self.starts:
            if self.sideways is not None:
                text = "joined by seq_nr, which does not compare nodes" if self.joined else "no node differs"
                self.hint.update(f"{text}\n= joins the other way")
            return
        at = self.shown[self.rows.cursor] if self.shown else 0
        place = bisect_right(self.starts, at) if step > 0 else bisect_left(self.starts, at) - 1
        self._to(self.starts[place % len(self.starts)])

    def do_diff_only(self) -> None:
        """Shows only differences, or all lines; the cursor stays on its line."""
        at = self.shown[self.rows.cursor] if self.shown else 0
        self.only = not self.only
        self._list()
        self._to(at)
        self._say_place()

    def do_diff_join(self) -> None:
        """Joins the lines by seq_nr, or aligns them."""
        self._needs_other()
        self.joined = not self.joined
        self._compare()

    def do_diff_swap(self) -> None:
        """Exchanges A and B."""
        self._needs_other()
        self._beside(self.here.at(graph=self.here.other, other=self.here.graph))

    def _beside(self, here: Here) -> None:
        before = self.here
        if before.other:
            self.undoable("the other graph", lambda: self._show_pair(before))
        self._show_pair(here)

    def _show_pair(self, here: Here) -> None:
        self.here, self.joined = here, None
        self._compare()

    def _needs_other(self) -> None:
        if not self.here.other:
            raise NotReadyError("no second graph is chosen", "a comparison needs two graphs", "press c to choose it")

    def do_diff_choose(self) -> None:
        """Asks for the other graph."""
        graph, run = self.here.graph or "", self.here.run
        self.work(lambda: candidates(graph, run), self._ask, group="others", doing="choose other")

    def _ask(self, others: list[ComparableGraph]) -> None:
        from ..picking import PickOther

        if self.is_current:
            self.workbench.push_screen(PickOther(self.here.graph or "", others), self._chosen)

    def _chosen(self, graph: str | None) -> None:
        if graph is not None:
            self._beside(self.here.at(other=graph))

    def do_diff_open(self, side: int) -> None:
        """Opens the node of A (0) or B in its graph; where it has no partner there, the other node."""
        if self.sideways is None or not self.shown:
            raise NotReadyError("no line is shown", "nothing is compared yet", "press c to choose the other graph")
        row = self.sideways.row(self.shown[self.rows.cursor])
        places = (row.a, row.b)
        side = side if places[side] >= 0 else 1 - side
        graph = self.here.graph if side == 0 else self.here.other
        node = self.sideways.sides[side].names[places[side]]
        self.workbench.go("graph", Here(run=self.here.run, graph=graph, node=node))


def candidates(graph: str, run: str | None) -> list[ComparableGraph]:
    """The graphs that a graph can be compared with."""
    saved = resolve_graph(graph)
    name = run or (str(saved.run.path) if saved.run is not None else "")
    return others(saved, name)
