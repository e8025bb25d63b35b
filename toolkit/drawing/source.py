"""What a drawing reads from a graph: nodes with short texts for their values and arguments, module paths, uses both
ways.

Made from a record and its table, so it needs no torch; a live graph is encoded first. Every text fits one line.

>>> graph = of_saved(saved)
>>> graph.nodes[6].value, graph.nodes[6].modules
('f32[2, 16]', (Level(path='up', kind='Linear'),))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...dumps.arguments import KINDS
from ...dumps.browse.partner import JOINT
from ...dumps.names import Path, common, frames_of, input_source, levels
from ...dumps.schema import ConstValue, GraphRecord, NodeRecord, SequenceValue, SymValue, TensorValue, Value
from ...dumps.short import DTYPES, base_name, shorten
from ...dumps.sidecar import Table, build
from ...dumps.store import SavedGraph
from ...dumps.tables import one_line, plain
from ...dumps.walk import references, returned, tag_of
from ...dumps.wording import counted
from .dot import family

_LONGEST_VALUE, _LONGEST_ARGUMENTS = 34, 80


def value_text(value: Value | None) -> str:
    """A value on an edge: "f32[8, s0]", "Sym(s0)", "3 values"; "" for none."""
    text = ""
    if isinstance(value, TensorValue):
        text = f"{DTYPES.get(value.dtype, value.dtype)}[{', '.join(map(str, value.shape))}]"
    elif isinstance(value, SymValue):
        text = f"Sym({value.expr})"
    elif isinstance(value, SequenceValue):
        text = value_text(value.items[0]) if len(value.items) == 1 else counted(len(value.items), "value")
    elif isinstance(value, ConstValue) and isinstance(value.value, int | float | str):
        text = str(value.value)
    return shorten(plain(text), _LONGEST_VALUE)


def arguments_text(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The arguments that are no nodes, as they would be typed; lists that hold nodes are left out."""
    texts = [_argument(arg) for arg in args]
    texts += [f"{key}={text}" for key, value in kwargs.items() if (text := _argument(value))]
    return shorten(plain(", ".join(filter(None, texts))), _LONGEST_ARGUMENTS)


def _argument(arg: Any) -> str:
    if isinstance(arg, list):
        texts = [_argument(item) for item in arg]
        if not any(texts):
            return ""
        named = [text or next(references(item), "None") for text, item in zip(texts, arg, strict=True)]
        return f"[{', '.join(named)}]"
    tag, content = tag_of(arg)
    if tag:
        text = KINDS[tag].drawn(content, _argument) if tag in KINDS else ""
        return DTYPES.get(text, text)
    if isinstance(arg, float):
        return f"{arg:.4g}"
    return "" if arg is None or arg == [] else str(arg)


_LONGEST_DETAIL = 300
_SUMMED = "Gradient addition node"
"""How torch begins the note on a node that adds up the gradients of a value that was used several times."""


@dataclass
class DrawnNode:
    """One node. `inputs` and `users` are positions; `value` is "f32[8, 64]", `arguments` what is not a node: "[1, 0]".

    `frames` are the user's lines from the outermost call to the innermost; `source` is where an input comes from
    ("blocks.0.up.weight"). `scalar` marks a symbol, mostly a size; `backward` what is computed for gradients;
    `recomputed` what a backward graph computes a second time; `summed` a sum of gradients.
    """

    index: int
    name: str
    op: str
    target: str
    base: str
    family: str
    value: str = ""
    inputs: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    modules: Path = ()
    frames: Path = ()
    arguments: str = ""
    where: str = ""
    code: str = ""
    seq_nr: int = -1
    source: str = ""
    detail: str = ""
    scalar: bool = False
    backward: bool = False
    recomputed: bool = False
    summed: bool = False

    @property
    def is_input(self) -> bool:
        """Whether nothing is computed here: a placeholder or a constant of the graph."""
        return self.op in ("placeholder", "get_attr")


class DrawnOutput(NamedTuple):
    """One output: its number, the position of the node that makes it, and whether it is there for the backward graph
    only."""

    number: int
    node: int
    saved: bool


@dataclass
class DrawnGraph:
    """A graph as drawings read it. `outputs` has no entry for outputs that are no nodes (None, numbers); `inner` counts
    the subgraphs of its higher-order ops, which are graphs of their own."""

    id: str
    stage: str
    nodes: list[DrawnNode]
    outputs: list[DrawnOutput] = field(default_factory=list)
    inner: int = 0

    def position(self, name: str) -> int | None:
        """The position of the node with that name; None when there is none."""
        return next((node.index for node in self.nodes if node.name == name), None)


def of_saved(saved: SavedGraph) -> DrawnGraph:
    """A saved graph, read from its files. Raises UnreadableError."""
    return of_record(saved.record, saved.id)


def of_record(record: GraphRecord, title: str = "") -> DrawnGraph:
    """The drawing's view of a graph in memory."""
    table = build(record)
    roles = {item.name: (item.role, input_source(item.source, item.role)) for item in record.inputs}
    modules: dict[int, Path] = {}
    frames: dict[int, Path] = {}
    sums: set[int] = set()
    nodes: list[DrawnNode] = []
    for row, node in zip(table.rows(), record.graph.nodes, strict=True):
        role, source = roles.get(node.name, ("", ""))
        if node.module not in modules:
            modules[node.module] = levels(row.module)
        if node.stack not in frames:
            stack = record.strings[node.stack] if 0 <= node.stack < len(record.strings) else ""
            frames[node.stack] = frames_of(stack)
            if _SUMMED in stack:
                sums.add(node.stack)
        is_input = node.op == "placeholder"
        nodes.append(
            DrawnNode(
                row.index,
                plain(row.name),
                row.op,
                plain(row.target),
                plain(base_name(row.target)),
                family(row.op, row.target, role, is_scalar=isinstance(node.value, SymValue)),
                value_text(node.value),
                list(row.inputs),
                [],
                modules[node.module],
                frames[node.stack],
                "" if is_input or node.op == "output" else arguments_text(node.args, node.kwargs),
                plain(row.where),
                one_line(row.code, 80),
                row.seq_nr,
                plain(source) if is_input else "",
            )
        )
    for node, recorded in zip(nodes, record.graph.nodes, strict=True):
        node.scalar = isinstance(recorded.value, SymValue)
        node.detail = _detail(node, table)
        for used in node.inputs:
            nodes[used].users.append(node.index)
        node.recomputed = "backward" in record.stage and recorded.meta.get("partitioner_tag") == "is_forward"
        node.summed = recorded.stack in sums
        node.backward = node.op != "output" and _is_backward(record.stage, node, recorded, nodes)
    _place_gradients(nodes)
    outputs = _outputs(record, {node.name: node.index for node in nodes})
    return DrawnGraph(title or record.id, record.stage, nodes, outputs, len(record.graph.subgraphs))


def _is_backward(stage: str, node: DrawnNode, recorded: NodeRecord, nodes: list[DrawnNode]) -> bool:
    if stage not in JOINT:
        return "backward" in stage and not node.recomputed
    made_so = recorded.meta.get("autograd_backward") is True or node.family == "tangent"
    return made_so or any(nodes[used].backward for used in node.inputs)


def _place_gradients(nodes: list[DrawnNode]) -> None:
    """Gives each sum of gradients, for which autograd records no module, the module that used the value several times:
    the path of the newest summand, cut to the call depth of the recorded line (the first call is the root module's)."""
    for node in nodes:
        if node.backward and not node.modules and not node.is_input:
            known = [nodes[other].modules for other in sorted(node.inputs, reverse=True) if nodes[other].modules]
            if known:
                node.modules = known[0][: len(node.frames) - 1] if node.frames else common(known)


def without_meta(graph: DrawnGraph, *, keep_modules: bool = False) -> DrawnGraph:
    """A graph reduced to its structure: nodes, targets, arguments."""
    kept = [
        replace(
            node,
            modules=node.modules if keep_modules else (),
            detail=f"{node.name} = {node.target}",
            **{name: getattr(DrawnNode, name) for name in ("value", "frames", "where", "code", "seq_nr")},
        )
        for node in graph.nodes
    ]
    return replace(graph, nodes=kept)


def _outputs(record: GraphRecord, position: dict[str, int]) -> list[DrawnOutput]:
    last = record.graph.nodes[-1] if record.graph.nodes else None
    if last is None or last.op != "output":
        return []
    items = returned(last.args)
    made_for = last.meta.get("desc")
    words = made_for if isinstance(made_for, list) and len(made_for) == len(items) else [""] * len(items)
    return [
        DrawnOutput(number, position[name], "SavedForBackwards" in _word(record, word))
        for number, (item, word) in enumerate(zip(items, words, strict=True))
        for name in references(item)
        if name in position
    ]


def _word(record: GraphRecord, word: Any) -> str:
    number = word.get("string") if isinstance(word, dict) else None
    return record.strings[number] if isinstance(number, int) and 0 <= number < len(record.strings) else str(word)


def _detail(node: DrawnNode, table: Table) -> str:
    row = table.row(node.index)
    parts = [
        f"{node.name} = {node.target}" if not node.is_input else f"{node.name}: {node.op} {node.source}",
        f"value {row.dtype} {row.shape} stride {row.stride} {row.device}" if row.dtype else "",
        f"module {node.modules[-1].path} ({node.modules[-1].kind})" if node.modules else "",
        f"{node.where}  {node.code}" if node.where else "",
        f"seq_nr {node.seq_nr}" if node.seq_nr >= 0 else "",
    ]
    return "\n".join(shorten(plain(part), _LONGEST_DETAIL) for part in parts if part)
