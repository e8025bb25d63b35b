"""All views of the nodes of one graph: detail, source, code, stages, neighbourhood, partners. Files are read once.

Also: a node's counterparts at other stages of its compile: its name in Dynamo's graph, in the joint graph, after
Inductor's passes.

The workbench calls this in a thread, `graphdbg show --node` directly. Each view is a Sheet; a view with nothing to show
says why. `lock` admits one thread at a time.

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

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from threading import RLock
from typing import NamedTuple, TypeVar

from ..errors import BadValueError, GraphdbgError, NoSuchNodeError, UsageError
from ..schema import STAGES as STAGE_NAMES
from ..short import row_value
from ..sidecar import NodeRow
from ..store import SavedGraph
from ..walk import Frame
from . import near
from .kernels import Generated, Use
from .node import detail_of, sheet_of
from .partner import Partner, graph_of, partners
from .recorded import Recorded
from .search import alike
from .sheet import BAD, DIM, HERE, LINK, TITLE, Line, Sheet, line, span
from .table import GraphView

T = TypeVar("T")

_TRACED = ("dynamo", "pre_grad")
"""Stages before AOTAutograd, which renames all nodes."""

_ORDER = {stage: place for place, stage in enumerate(STAGE_NAMES)}
MOST = 12


@dataclass(frozen=True)
class Counterpart:
    """A node of another stage: its graph's id and stage, its position and name, and by what it was recognised."""

    graph: str
    stage: str
    index: int
    name: str
    target: str
    value: str
    how: str


class Related:
    """The graphs of one compile, opened once; safe to use from one thread at a time."""

    def __init__(self, saved: SavedGraph) -> None:
        self.saved = saved
        self.unread: dict[str, str] = {}

    @cached_property
    def graphs(self) -> list[SavedGraph]:
        """The other graphs of this compile, in the order of their stages."""
        saved = self.saved
        if saved.run is None:
            return []
        compiled = saved.local_id.partition("/")[0]
        others = [
            graph
            for graph in saved.run.graphs()
            if graph.process == saved.process and graph.local_id.partition("/")[0] == compiled and graph.id != saved.id
        ]
        return sorted(others, key=lambda graph: _ORDER.get(graph.stage, len(_ORDER)))

    def of(self, view: GraphView, index: int) -> list[Counterpart]:
        """The counterparts of a node in all other graphs; a graph that cannot be read is named in `unread`."""
        me = _node(self.saved, view.table.row(index))
        counterparts: list[Counterpart] = []
        for graph in self.graphs:
            try:
                places, how = _counterparts(me, graph)
            except (GraphdbgError, OSError) as error:
                self.unread[graph.id] = str(error)
                continue
            for row in map(graph.table.row, places):
                counterparts.append(
                    Counterpart(graph.id, graph.stage, row.index, row.name, row.target, row_value(row), how)
                )
        return counterparts


class _NodeFacts(NamedTuple):
    """The facts by which a node is recognised in other graphs."""

    row: NodeRow
    stage: str
    source: str = ""
    origins: Sequence[str] = ()


def _node(saved: SavedGraph, row: NodeRow) -> _NodeFacts:
    if saved.has_table:
        return _NodeFacts(row, saved.stage)
    source = next((item.source for item in saved.record.inputs if item.name == row.name), "")
    return _NodeFacts(row, saved.stage, source, saved.record.graph.nodes[row.index].from_node)


def _sides(stage: str) -> set[str]:
    return {side for side in ("forward", "backward") if side in stage} or {"forward", "backward"}


def _counterparts(me: _NodeFacts, graph: SavedGraph) -> tuple[list[int], str]:
    """The positions of a node's counterparts in another graph, and how they were recognised: the surest way that finds
    any."""
    table = graph.table
    text = table.strings
    aot = me.stage not in _TRACED and graph.stage not in _TRACED
    named = [at for at, name in enumerate(table.name) if name == me.row.name]
    same = [at for at in named if aot or text[table.target[at]] == me.row.target]
    is_input = me.row.op == "placeholder"
    if (same and not is_input) or not _sides(me.stage) & _sides(graph.stage) or (is_input and graph.has_table):
        return same, "same name"
    if not graph.has_table:
        nodes = graph.record.graph.nodes
        if is_input:
            sources = {item.name for item in graph.record.inputs if me.source and item.source == me.source}
            places_there = [at for at, node in enumerate(nodes) if node.op == "placeholder" and node.name in sources]
            return (places_there, "same input") if places_there else (same, "same name")
        calls = [at for at, node in enumerate(nodes) if node.op.startswith("call")]
        for places_there, how in (
            ([at for at in calls if me.row.name in nodes[at].from_node[:1]], "made from it"),
            ([at for at in calls if nodes[at].name in me.origins[:1]], "it was made from this"),
            ([at for at, node in enumerate(nodes) if node.from_node[:1] == me.origins[:1] != []], "made from the same"),
        ):
            if places_there:
                return places_there, how
    calls = [at for at, op in enumerate(table.op) if text[op].startswith("call")]
    if me.row.seq_nr >= 0:
        numbered = (at for at in calls if table.seq_nr[at] == me.row.seq_nr)
        if places_there := [at for at in numbered if text[table.target[at]] == me.row.target]:
            return places_there, "same seq_nr and op"
    if me.row.code and me.row.op.startswith("call"):
        line = (me.row.where, me.row.code)
        return [at for at in calls if (text[table.where[at]], text[table.code[at]]) == line], "same line of code"
    return [], ""


def stages_sheet(related: Related, view: GraphView, index: int, counterparts: Sequence[Counterpart]) -> Sheet:
    """The stages as a sheet: one heading for each graph, this one included, and below it the node's counterparts."""
    lines: list[Line] = []
    marked: list[range] = []
    mine = view.table.row(index)
    everywhere = sorted([*related.graphs, related.saved], key=lambda graph: _ORDER.get(graph.stage, len(_ORDER)))
    width = max((len(graph.stage) for graph in everywhere), default=0)
    for graph in everywhere:
        here = graph.id == related.saved.id
        if here:
            marked.append(range(len(lines), len(lines) + 1))
            label = f"{graph.stage:<{width}}  "
            lines.append(line((label, HERE), (mine.name, HERE), f"  {row_value(mine)}", (f"  {mine.target}", DIM)))
            continue
        nodes = [counterpart for counterpart in counterparts if counterpart.graph == graph.id]
        if graph.id in related.unread:
            lines.append(line((f"{graph.stage:<{width}}  ", TITLE), (related.unread[graph.id], BAD)))
        elif not nodes:
            lines.append(line((f"{graph.stage:<{width}}  ", TITLE), (_why_none(related.saved.stage, graph.stage), DIM)))
        for place, counterpart in enumerate(nodes[:MOST]):
            label = f"{graph.stage if place == 0 else '':<{width}}  "
            how_text = f"  {counterpart.target if counterpart.target != counterpart.name else ''}" + (
                f"  ({counterpart.how})" if place == 0 else ""
            )
            lines.append(
                line(
                    (label, TITLE),
                    span(counterpart.name, LINK, counterpart.name, counterpart.graph),
                    f"  {counterpart.value}",
                    (how_text, DIM),
                )
            )
        if len(nodes) > MOST:
            lines.append(line(" " * (width + 2), (f"and {len(nodes) - MOST} more", DIM)))
    return Sheet("the same node at the other stages", lines, 0, marked)


def _why_none(mine: str, stage: str) -> str:
    if not _sides(mine) & _sides(stage):
        return "the other side of autograd: the node's detail lists its partners"
    return "no node there is known to be this one"


def no_node(saved: SavedGraph, names: Sequence[str], name: str) -> UsageError:
    """The error for a node that does not exist, with similar names."""
    near = alike(names, name)
    hint = f"names like it are {', '.join(near)}" if near else "graphdbg show lists its nodes"
    return NoSuchNodeError(f"{saved.id} has no node {name!r}", "", hint)


def positions(saved: SavedGraph, text: str) -> list[int]:
    """The places of the nodes in `A`, `A..B` (both included) or `A,B..C`, in order. Raises UsageError for a name that
    the graph does not have, and for a stretch that runs backwards."""
    names = saved.table.name
    places = {name: place for place, name in enumerate(names)}
    node_places: set[int] = set()
    for part in filter(None, (term.strip() for term in text.split(","))):
        first, _, last = part.partition("..")
        ends = [first, last or first]
        if not first or part.endswith(".."):
            raise BadValueError(f"--nodes {part!r} has only one end", "", "name both: --nodes A..B")
        for name in ends:
            if name not in places:
                raise no_node(saved, names, name)
        start, end = (places[name] for name in ends)
        if end < start:
            raise BadValueError(f"{last} comes before {first} in this graph", "", f"swap them: --nodes {last}..{first}")
        node_places.update(range(start, end + 1))
    if not node_places:
        raise BadValueError("--nodes is empty", "", "give a node A, a range A..B, or several: A,B..C")
    return sorted(node_places)


_MOST_BYTES = 1 << 21


def sheet_of_frame(saved: SavedGraph, stack: Sequence[Frame], number: int = 0) -> Sheet:
    """A frame's file as a sheet; the frames alone where its text is not available. Raises UnreadableError for a damaged
    copy."""
    if not stack:
        return Sheet("no line", [line(("no stack was recorded for this node", DIM))])
    number %= len(stack)
    frame = stack[number]
    choice = f"{number + 1}/{len(stack)}" if len(stack) > 1 else ""
    text = saved.sources.text(frame.file)
    path, notes = "", list[str]()
    if text is not None:
        path = str(saved.sources.path(frame.file) or "")
        if not quoted(text, frame):
            notes.append(f"line {frame.line} of the dump's copy is not what the stack quotes: {frame.code}")
    else:
        text = _present(frame)
        if text is not None:
            path = frame.file
            notes.append(
                "the run kept no copy: this is the file on this machine as it is now; the quoted line is the same"
            )
    if text is None:
        return _recorded(stack, number, choice, saved.sources.why_not(frame.file))
    lines = text.splitlines()
    at = min(frame.line, len(lines)) - 1
    title = frame.where + (f" in {frame.function}" if frame.function else "")
    marked = [range(at, at + 1)] if at >= 0 else []
    return Sheet(title, lines, max(0, at), marked, language="python", choice=choice, notes=notes, path=path)


def quoted(text: str, frame: Frame) -> bool:
    """Whether the text has the line that the frame quotes, if it quotes one."""
    lines = text.splitlines()
    return 0 < frame.line <= len(lines) and (not frame.code or lines[frame.line - 1].strip() == frame.code)


def _present(frame: Frame) -> str | None:
    """The text of the frame's file on this machine, if it is a readable Python file with the quoted line in its
    place."""
    path = Path(frame.file)
    try:
        if not frame.code or path.suffix != ".py" or not path.is_absolute():
            return None
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return None
        text = path.read_text(encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError):
        return None
    return text if quoted(text, frame) else None


def _recorded(stack: Sequence[Frame], number: int, choice: str, why: str) -> Sheet:
    """The frames of a stack with the lines that they quote, as a sheet."""
    quoted_lines = f"{stack[number].file}: {why}; these are the lines that the stack quotes"
    lines: list[Line] = [line((quoted_lines, DIM)), line("")]
    marked: list[range] = []
    for place, frame in enumerate(stack):
        if place == number:
            marked.append(range(len(lines), len(lines) + 2))
        kind = HERE if place == number else TITLE if frame.user else DIM
        lines.append(line((frame.where, kind), (f" in {frame.function}" if frame.function else "", DIM)))
        lines.append(line(f"    {frame.code}"))
    return Sheet(stack[number].where, lines, marked[0].start, marked, choice=choice)


DETAIL, SOURCE, CODE, STAGES, NEAR = "detail", "source", "code", "stages", "near"
VIEWS = (DETAIL, SOURCE, CODE, STAGES, NEAR)
_LANGUAGES = {"cpp": "cpp", "cpp_pybinding": "cpp", "metal": "cpp"}
_KEPT = 64


class About:
    """The nodes of one graph. `lock`: to be held where several threads ask."""

    def __init__(self, saved: SavedGraph, view: GraphView | None = None) -> None:
        self.saved = saved
        self.view = view if view is not None else GraphView(saved.table)
        self.lock = RLock()
        self.recorded = Recorded(saved)
        self.related = Related(saved)
        self.of = lru_cache(_KEPT)(partial(detail_of, saved, self.view, self.recorded))
        """The recorded detail of a node. Raises UnreadableError."""
        self._codes: dict[str, Generated | None] = {}
        self._views: dict[str, GraphView] = {}

    def locked(self, ask: Callable[[], T]) -> T:
        """Calls `ask` while holding the lock, and returns its answer."""
        with self.lock:
            return ask()

    def position(self, name: str) -> int:
        """The position of a node by its name; raises UsageError with names that are alike."""
        place = self.view.position(name)
        if place is not None:
            return place
        raise no_node(self.saved, self.view.table.name, name)

    def sheet(self, kind: str, index: int, number: int = 0) -> Sheet:
        """A view by its name. `number` chooses the frame, the kernel, or the hops."""
        with self.lock:
            if kind in (SOURCE, CODE, NEAR):
                return getattr(self, kind)(index, number)
            return self.stages(index) if kind == STAGES else self.detail(index)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views that this graph has."""
        return tuple(kind for kind in VIEWS if kind != STAGES or self.related.graphs)

    # -- one node

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
        """The stack frames of the node, the user's first."""
        return self.of(index).stack

    def source(self, index: int, number: int = 0) -> Sheet:
        """The user's file at the line of one of the node's frames."""
        return sheet_of_frame(self.saved, self.stack(index), number)

    def near(self, index: int, hops: int = near.HOPS, width: int = near.WIDTH) -> Sheet:
        """The neighbourhood of the node, drawn."""
        return near.sheet_of(self.view, index, hops, width)

    def stages(self, index: int) -> Sheet:
        """The node at the other stages of its compile."""
        if not self.related.graphs:
            return Sheet("no other stages", [line(("no other graph of this compile was recorded", DIM))])
        return stages_sheet(self.related, self.view, index, self.related.of(self.view, index))

    # -- generated code

    def uses(self, index: int) -> list[tuple[SavedGraph, Use]]:
        """The kernels that compute the node, each with the graph whose code has it: this graph, its form before or
        after Inductor's passes, or a graph made from it."""
        own = self._code(self.saved)
        if own is not None:
            return [(self.saved, use) for use in own.uses(self.view, self.recorded, index)]
        if not any(graph.code_files() for graph in self.related.graphs):
            return []
        uses_elsewhere: list[tuple[SavedGraph, Use]] = []
        graphs = {graph.id: graph for graph in self.related.graphs}
        half = self.saved.stage.removeprefix("post_grad_")
        for other in self.related.of(self.view, index):
            graph = graphs[other.graph]
            if half in ("forward", "backward") and graph.stage != half:
                continue  # the other half recomputes it
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
            notes=[f"{name} is in no known kernel: it may be an input, a view, or computed inside its users"],
        )

    def _code_of(self, uses: Sequence[tuple[SavedGraph, Use]], number: int) -> Sheet:
        graph, use = uses[number]
        code = self._code(graph)
        assert code is not None
        marked = [range(use.start, use.end)] if use.start >= 0 else []
        marked += [range(use.call, use.call + 1)] if use.call >= 0 else []
        notes = ["by its op and its place among the calls: Inductor wrote no node names for this kernel"]
        where = f" of {graph.id}" if graph is not self.saved else ""
        choice = f"{number + 1}/{len(uses)}" if len(uses) > 1 else ""
        return Sheet(
            f"{use.kernel}{where}",
            code.lines,
            marked[0].start if marked else 0,
            marked,
            "python",
            choice=choice,
            notes=notes * (not use.sure),
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
    """The line ranges of the generated module that are in another language, with that language."""
    return [
        (range(kernel.start + 1, kernel.end - 1), _LANGUAGES[kernel.language])
        for kernel in code.kernels
        if kernel.language in _LANGUAGES
    ]
