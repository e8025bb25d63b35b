"""All views of the nodes of one graph in one place: detail, source, code, stages, neighbourhood, partners. Files are
read once.

The workbench asks it in a thread, `graphdbg show --node` at once. Each view is a Sheet; one that has nothing to show
says why. `lock` keeps it to one thread at a time.

>>> about = About(saved, view)
>>> print(text(about.detail(view.position("addmm_1"))))
addmm_1  call_function  aten.addmm.default
call     aten.addmm.default(primals_5, mul_2, permute_1)
value    float32  [2, 4]  stride [4, 1]  offset 0  cpu  32 B
module   down  torch.nn.modules.linear.Linear
line     train.py:11 in forward  return self.down(torch.nn.functional.gelu(self.up(x)))
kernel   extern_kernels.addmm
partner  mm  0_0/backward  same seq_nr 14
         mm_1  0_0/backward  same seq_nr 14
         sum_1  0_0/backward  same seq_nr 14
         permute_2  0_0/backward  same seq_nr 14
         permute_3  0_0/backward  same seq_nr 14
         view  0_0/backward  same seq_nr 14
inputs 3 primals_5  f32[4]  placeholder
         mul_2      f32[2, 16]  aten.mul.Tensor
         permute_1  f32[16, 4]  aten.permute.default
users 1  output    output
made of  linear_1, aten.addmm.default
meta     partitioner_tag = 'is_forward'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from threading import RLock

from ..errors import GraphdbgError
from ..store import SavedGraph
from ..walk import Frame
from . import near, source, stages
from .kernels import Generated, Use
from .loading import loading
from .naming import no_node
from .node import NodeDetail, detail_of, sheet_of
from .partner import Partner, graph_of, partners
from .recorded import Recorded
from .sheet import DIM, Sheet, line
from .slices import finish
from .table import GraphView

DETAIL, SOURCE, CODE, STAGES, NEAR = "detail", "source", "code", "stages", "near"
VIEWS = (DETAIL, SOURCE, CODE, STAGES, NEAR)
_LANGUAGES = {"cpp": "cpp", "cpp_pybinding": "cpp", "metal": "cpp"}
_KEPT = 64


class About:
    """The nodes of one graph. `lock`: to be held where several threads ask."""

    def __init__(self, saved: SavedGraph, view: GraphView | None = None) -> None:
        self.saved = saved
        self.view = view if view is not None else finish(loading(saved))
        self.lock = RLock()
        self.recorded = Recorded(saved)
        self.related = stages.Related(saved)
        self._details: dict[int, NodeDetail] = {}
        self._codes: dict[str, Generated | None] = {}
        self._views: dict[str, GraphView] = {}

    def position(self, name: str) -> int:
        """The position of a node by its name; raises UsageError with names that are alike."""
        place = self.view.position(name)
        if place is not None:
            return place
        raise no_node(self.saved, self.view.table.name, name)

    def sheet(self, kind: str, index: int, number: int = 0) -> Sheet:
        """A view by its name. `number` chooses the frame, the kernel, or the hops."""
        with self.lock:
            if kind == SOURCE:
                return self.source(index, number)
            if kind == CODE:
                return self.code(index, number)
            if kind == NEAR:
                return self.near(index, number)
            return self.stages(index) if kind == STAGES else self.detail(index)

    @property
    def views(self) -> tuple[str, ...]:
        """The views that have something to show for this graph."""
        return tuple(kind for kind in VIEWS if kind != STAGES or self.related.graphs)

    # -- one node

    def of(self, index: int) -> NodeDetail:
        """The recorded detail of the node. Raises UnreadableError."""
        detail = self._details.get(index)
        if detail is None:
            if len(self._details) >= _KEPT:
                self._details.clear()
            detail = self._details[index] = detail_of(self.saved, self.view, self.recorded, index)
        return detail

    def detail(self, index: int, *, everything: bool = False) -> Sheet:
        """All that is recorded of the node, its partners and kernels."""
        partners, why = self.partners(index)
        uses = self.uses(index)
        names = [use.kernel + ("" if use.sure else " (by op and place)") for _, use in uses]
        return sheet_of(self.of(index), partners, why_no_partner=why, kernels=names, everything=everything)

    def partners(self, index: int) -> tuple[list[Partner], str]:
        """The partners of the node, or why there are none."""
        try:
            return partners(self.saved, self.view, index, self._other), ""
        except GraphdbgError as error:
            return [], error.why or error.what

    @cached_property
    def _other(self) -> SavedGraph:
        return graph_of(self.saved)

    def stack(self, index: int) -> list[Frame]:
        """The frames of the node, the user's in front."""
        return self.of(index).stack

    def source(self, index: int, number: int = 0) -> Sheet:
        """The user's file at the line of a frame of the node."""
        return source.sheet_of_frame(self.saved, self.stack(index), number)

    def near(self, index: int, hops: int = near.HOPS, width: int = near.WIDTH) -> Sheet:
        """The neighbourhood of the node, drawn."""
        return near.sheet_of(self.view, index, hops, width)

    def stages(self, index: int) -> Sheet:
        """The node at the other stages of its compile."""
        if not self.related.graphs:
            return Sheet("no other stages", [line(("no other graph of this compile was recorded", DIM))])
        return stages.sheet_of(self.related, self.view, index, self.related.of(self.view, index))

    # -- generated code

    def uses(self, index: int) -> list[tuple[SavedGraph, Use]]:
        """The kernels that the node went into, and the graph whose code has them: this one, or one that was made from
        it."""
        own = self._code(self.saved)
        if own is not None:
            return [(self.saved, use) for use in own.uses(self.view, self.recorded, index)]
        if not any(graph.code_files() for graph in self.related.graphs):
            return []
        uses_elsewhere: list[tuple[SavedGraph, Use]] = []
        graphs = {graph.id: graph for graph in self.related.graphs}
        for other in self.related.of(self.view, index):
            graph = graphs[other.graph]
            if (code := self._code(graph)) is not None:
                view = self._views.setdefault(graph.id, GraphView(graph.table))
                uses = code.uses(view, Recorded(graph), other.index)
                uses_elsewhere += [(graph, use) for use in uses]
        return list({(graph.id, use): (graph, use) for graph, use in uses_elsewhere}.values())

    def _code(self, graph: SavedGraph) -> Generated | None:
        if graph.id not in self._codes:
            self._codes[graph.id] = Generated.of(graph)
        return self._codes[graph.id]

    def code(self, index: int, number: int = 0) -> Sheet:
        """The generated module of the graph, with a kernel of the node (or its call) marked."""
        uses = self.uses(index)
        if uses:
            return self._code_of(uses, number % len(uses))
        own = self._code(self.saved)
        if own is None:
            return Sheet("no code", [line((self._why_no_code(), DIM))])
        name = self.view.table.name[index]
        return Sheet(
            f"no kernel of {name}",
            own.lines,
            language="python",
            path=self._path(self.saved),
            inside=_inside(own),
            notes=[f"{name} is in no kernel that can be told: it may be an input, a view, or computed with its users"],
        )

    def _code_of(self, uses: Sequence[tuple[SavedGraph, Use]], number: int) -> Sheet:
        graph, use = uses[number]
        code = self._code(graph)
        assert code is not None
        marked = [range(use.start, use.end)] if use.start >= 0 else []
        marked += [range(use.call, use.call + 1)] if use.call >= 0 else []
        notes = (
            []
            if use.sure
            else ["by its op and its place among the calls: Inductor wrote no node names for this kernel"]
        )
        where = f" of {graph.id}" if graph is not self.saved else ""
        choice = f"{number + 1}/{len(uses)}" if len(uses) > 1 else ""
        return Sheet(
            f"{use.kernel}{where}",
            code.lines,
            marked[0].start if marked else 0,
            marked,
            "python",
            choice=choice,
            notes=notes,
            path=self._path(graph),
            inside=_inside(code),
        )

    def _path(self, graph: SavedGraph) -> str:
        return next((str(file.path) for file in graph.code_files()), "")

    def _why_no_code(self) -> str:
        if self.saved.error:
            return f"no code was generated: {self.saved.error}"
        return "no code was recorded: the graph was not compiled to the end, or by a compiler that generates none"


def _inside(code: Generated) -> list[tuple[range, str]]:
    """The parts of the module that are in another language."""
    return [
        (range(kernel.start + 1, kernel.end - 1), _LANGUAGES[kernel.language])
        for kernel in code.kernels
        if kernel.language in _LANGUAGES
    ]
