"""`graphdbg ls RUN --why`; and `RUN/ID --why` for the compile of one graph.

>>> show("myrun", open_run("myrun"), as_json=False)
1 function compiled 2 times: 1 recompile
...
    0_1  recompile of 0_0: x.size()[0] was 2, is now 3 ...
...
"""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import deaths, trust, why
from ..errors import WrongKindError
from ..index import ListedGraph
from ..journal import IN_FLIGHT
from ..output import emit, say
from ..store import Run, SavedGraph, resolve
from ..tables import cut, on_terminal, one_line
from . import frequent
from .events import base, of_run
from .model import Compile, Function, Why
from .text import WIDTH, render

if TYPE_CHECKING:
    from ..browse.listing import Following

_RESULTS = ("forward", "backward", "inference", "compiled_autograd")
"""The stages in which a compile ends: the graphs that the inner compiler takes."""
_WORST = ("failed", *IN_FLIGHT, "captured", "skipped", "ran", "compiled")
"""Statuses, the worst first: a graph of an early stage is compiled and never runs by itself."""


class Compiled(msgspec.Struct):
    """One compile: its `id` as commands take it ("0_0", "1:0_0"), its graphs, the function's name and line, empty if
    unknown. `seconds`: from Dynamo's graph to the compiled one, plus those of a backward that was compiled later.
    `by_dynamo`: Dynamo's function and last attempt for this compile."""

    id: str
    rows: list[ListedGraph]
    name: str = ""
    place: str = ""
    by_dynamo: tuple[Function, Compile] | None = None

    @property
    def worst(self) -> ListedGraph:
        """The graph with the worst status, without graphs that the program itself observes, which stay captured."""
        rows = [row for row in self.rows if not row.word] or self.rows
        return min(rows, key=lambda row: (not row.lost, _WORST.index(row.status) if row.status in _WORST else 0))

    @property
    def main(self) -> ListedGraph:
        """The graph that stands for the compile: one that failed or hangs, else the first of its final graphs."""
        bad = [row for row in self.rows if row.status == "failed" or row.lost]
        flying = [row for row in self.rows if row.status in IN_FLIGHT]
        return nearest_error(bad or flying[-1:] or self.rows)

    @property
    def bad(self) -> bool:
        """Whether a graph failed, or was in flight when its process ended."""
        return any(row.status == "failed" or row.lost for row in self.rows)

    @property
    def stages(self) -> str:
        """The stages in short: those that the inner compiler got, else the last stage reached."""
        counts = Counter(row.stage for row in self.rows)
        folded = [stage for stage in _RESULTS if counts[stage]] or [self.rows[-1].stage]
        return "+".join(stage + (f" x{counts[stage]}" if counts[stage] > 1 else "") for stage in folded)

    @property
    def nodes(self) -> int | None:
        """The number of nodes of the first graph."""
        return next((row.nodes for row in self.rows if row.nodes is not None), None)

    @property
    def seconds(self) -> float | None:
        """The compile time in seconds."""
        whole = [row.seconds for row in self.rows if "backward" not in row.stage and row.seconds is not None]
        later = [row.seconds for row in self.rows if row.stage == "backward" and row.seconds is not None]
        return max(whole, default=0.0) + sum(later) if whole or later else None

    def function(self, width: int) -> str:
        """The function with its line in at most `width` letters; the longer of the two is cut at its beginning."""
        both = [part for part in (self.name, self.place) if part]
        over = len(", ".join(both)) - width
        if over > 0:
            longer = max(both, key=len)
            both[both.index(longer)] = f"…{longer[over + 1 :]}"
        return cut(", ".join(both), width, "start")

    def words(self) -> str:
        """The text that a filter searches."""
        graphs = " ".join(f"{row.stage} {row.error or ''}" for row in self.rows)
        return f"{self.id} {self.name} {self.place} {graphs}"

    def trouble(self) -> list[str]:
        """Sentences on the graphs that failed, died or hang, with their ids; one sentence for several that failed
        together."""
        bad = [row for row in self.rows if row.status == "failed" or row.lost]
        if not bad:
            return [f"{row.id}: in {row.at}" for row in self.rows if row.at and row.status in IN_FLIGHT][-1:]
        row = nearest_error(bad)
        unsaved = "" if row.saved else " (it was not saved)"
        return [f"{row.id}: {one_line(row.error or row.status, 300)}{unsaved}"]


def nearest_error(bad: Sequence[ListedGraph]) -> ListedGraph:
    """The graph to look at of several that failed together: the nearest to the error."""
    return next((row for row in bad if row.stage in _RESULTS and row.saved), bad[0])


def next_of(text: str, run: Run) -> list[str]:
    """The next command for a run: a replay of the graph that failed, else a look at the first graph."""
    bad = [row for row in run.rows if row.saved and (row.status == "failed" or row.lost)]
    if bad:
        graph = run.graph(nearest_error(bad).id)
        own = ["--trust"] * (graph.sourced and trust.trusted(run.path))
        return [shlex.join(["graphdbg", "replay", f"{text}/{graph.id}", *own])]
    return [shlex.join(["graphdbg", "show", f"{text}/{row.id}"]) for row in run.rows if row.saved][:1]


def of_rows(run: Run | Following) -> list[Compiled]:
    """The compiles of a run, in the order of their graphs."""
    by_name: dict[str, Compiled] = {}
    for row in run.rows:
        name = row.id.partition("/")[0]
        by_name.setdefault(name, Compiled(name, [])).rows.append(row)
    for process in why.from_journals(run):
        for function in process.functions:
            for item in function.compiles:
                for known in (by_name.get(graph.id.partition("/")[0]) for graph in item.graphs):
                    if known is not None:
                        known.name, known.place = function.name, function.place
                        known.by_dynamo = function, item
    return list(by_name.values())


_WIDEST = 120


def show(text: str, named: Run | SavedGraph, as_json: bool) -> None:
    """Prints why the graphs of a run, or of one compile, exist. Raises UsageError for a case, which has no journal."""
    run, reasons = _found(text, named)
    for sentence in run.damage:
        say(f"note: {sentence}")
    if as_json:
        rows = [row.fixed() for row in run.rows if isinstance(named, Run) or row.id == named.id]
        ends = [ending.fixed() for ending in deaths.endings(run.processes)]
        name = text if named is run else run.name
        emit(
            {"run": name, "graphs": rows, "processes": ends, "why": document(reasons), **run.inputs_json},
            as_json=True,
            next=next_of(name, run),
        )
        return
    if not reasons.processes:
        say(f"{text}: nothing was compiled")
        return
    width = min(shutil.get_terminal_size().columns, _WIDEST) if on_terminal() else WIDTH
    emit(render(reasons, width, whole=isinstance(named, Run)), as_json=False)


def text_of(text: str, width: int) -> str:
    """The text that `show` prints, without notes on damage. Raises GraphdbgError for a name that is not found or has no
    journal."""
    named = resolve(text)
    _, reasons = _found(text, named)
    shown = render(reasons, min(width, _WIDEST), whole=isinstance(named, Run))
    return shown if reasons.processes else f"{text}: nothing was compiled"


def _found(text: str, named: Run | SavedGraph) -> tuple[Run, Why]:
    if isinstance(named, Run):
        return named, of_run(named)
    if named.run is None:
        only = "only a recorded run knows why its graphs exist"
        raise WrongKindError(f"{text} is a case", only, "graphdbg ls RUN --why")
    return named.run, of_run(named.run, compile_id=base(named.local_id.partition("/")[0])[0], process=named.process)


def document(reasons: Why) -> list[dict[str, Any]]:
    """The value of "why" in the JSON document: one object for each process."""
    return [
        {**msgspec.to_builtins(process), "causes": msgspec.to_builtins(frequent.causes(process))}
        for process in reasons.processes
    ]
