"""All recorded data of one node, as one record: its computation, its value, its origin, its users.

Reads the table, and of graph.json only the node's own part. `sheet_of` shows the record, most important things first.
Imports no torch; other modules find code, partner and related graphs.

>>> detail = detail_of(saved, view, Recorded(saved), view.position("addmm_1"))
>>> detail.call, detail.inputs[0].name
('aten.addmm.default(primals_5, mul_2, permute_1)', 'primals_5')
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from .. import expr
from ..diff.arguments import text as argument_text
from ..errors import GraphdbgError
from ..names import module_path
from ..schema import Arg, ConstValue, InputRecord, NodeRecord, SequenceValue, SymbolRecord, SymValue, TensorValue, Value
from ..short import row_value
from ..sidecar import dims_text
from ..store import SavedGraph
from ..tables import plain
from ..walk import Frame, frames, references
from ..wording import counted, size_text
from .partner import NUMBER, Partner
from .recorded import Recorded
from .sheet import BAD, DIM, HERE, TITLE, Line, Sheet, Span, line, link, span
from .table import GraphView

_HIDDEN_META = ("source_fn_stack", "fwd_source_fn_stack", "tensor_dict", "mutation_region_id")


class Near(msgspec.Struct):
    """A neighbour of the node: an input or a user, with its op and value."""

    index: int
    name: str
    target: str
    value: str


class NodeDetail(msgspec.Struct, kw_only=True):
    """One node. `values` has one row (dtype, shape, stride, offset, device, remarks) for each tensor in its value;
    `input` is the record of a placeholder's input; `meta`: other recorded metadata; `notes`: what could not be shown,
    and why."""

    index: int
    name: str
    op: str
    target: str
    call: str = ""
    args: list[Arg] = []
    kwargs: dict[str, Arg] = {}
    values: list[dict[str, str]] = []
    size_bytes: int | None = None
    symbols: list[SymbolRecord] = []
    inputs: list[Near] = []
    users: list[Near] = []
    modules: list[tuple[str, str]] = []
    seq_nr: int = -1
    original_aten: str = ""
    from_node: list[str] = []
    stack: list[Frame] = []
    input: InputRecord | None = None
    aliases: list[str] = []
    meta: dict[str, str] = {}
    notes: list[str] = []

    def fixed(self) -> dict[str, Any]:
        """The node as a JSON object."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        fields["stack"] = [{**frame._asdict(), "user": frame.user} for frame in self.stack]
        return fields


def detail_of(saved: SavedGraph, view: GraphView, recorded: Recorded, index: int) -> NodeDetail:
    """All that is recorded of the node at that position. Raises UnreadableError for a damaged file."""
    row = view.table.row(index)
    detail = NodeDetail(
        index=index,
        name=row.name,
        op=row.op,
        target=row.target,
        size_bytes=row.size_bytes,
        seq_nr=row.seq_nr,
        inputs=[_near(view, at) for at in view.inputs(index)],
        users=[_near(view, at) for at in view.users(index)],
        modules=_modules(row.module),
    )
    if recorded.large and recorded.too_large:
        detail.notes.append(recorded.too_large)
        shape, stride = dims_text(row.shape), dims_text(row.stride)
        detail.values = [{"dtype": row.dtype, "shape": shape, "stride": stride, "device": row.device}]
        return detail
    following = view.table.name[index + 1] if index + 1 < len(view) else ""
    node = recorded.node(row.name, following)
    if node is None:
        detail.notes.append("graph.json has no such node: the table beside it is of another graph")
        return detail
    detail.args, detail.kwargs = node.args, node.kwargs
    detail.call = call_text(node, recorded)
    detail.values = list(_values(node.value))
    detail.symbols = _symbols(node.value, recorded.symbols)
    detail.original_aten, detail.from_node = node.original_aten, node.from_node
    detail.stack = frames(recorded.string(node.stack))
    detail.meta = {
        key: argument_text(value, recorded.strings) for key, value in node.meta.items() if key not in _HIDDEN_META
    }
    if node.op == "placeholder":
        detail.input = recorded.inputs.get(node.name)
    if not recorded.large:
        detail.aliases = _aliases(saved, node)
    return detail


def call_text(node: NodeRecord, recorded: Recorded) -> str:
    """The node as a call: target(arguments, names=...)."""
    if node.op in ("placeholder", "get_attr"):
        return node.target
    strings = recorded.strings
    texts = [argument_text(arg, strings) for arg in node.args]
    texts += [f"{name}={argument_text(arg, strings)}" for name, arg in node.kwargs.items()]
    if node.op == "call_method" and texts:
        return f"{texts[0]}.{node.target}({', '.join(texts[1:])})"
    return f"{'return' if node.op == 'output' else node.target}({', '.join(texts)})"


def _modules(text: str) -> list[tuple[str, str]]:
    """Path and class of the modules around a node, the outermost first; the model itself is left out."""
    pairs = [(plain(module_path(path)), kind) for path, _, kind in (line.partition(": ") for line in text.split("\n"))]
    return [(path, kind) for path, kind in pairs if path]


def _near(view: GraphView, index: int) -> Near:
    row = view.table.row(index)
    return Near(index, row.name, row.target if row.op.startswith("call_") else row.op, row_value(row))


def _values(value: Value | None) -> list[dict[str, str]]:
    if isinstance(value, SequenceValue):
        return [row for item in value.items for row in _values(item) or [{"value": "none"}]]
    if isinstance(value, TensorValue):
        return [_of_tensor(value)]
    if isinstance(value, SymValue):
        hint = "" if value.hint is None else str(value.hint)
        return [{"dtype": f"Sym{value.kind.capitalize()}", "value": value.expr, "hint": hint}]
    if value is None:
        return []
    return [{"value": argument_text(value.value) if isinstance(value, ConstValue) else value.type}]


def _of_tensor(value: TensorValue) -> dict[str, str]:
    labels = {
        "dtype": value.dtype,
        "shape": _dims(value.shape),
        "stride": _dims(value.stride),
        "offset": str(value.offset),
        "device": value.device,
    }
    if value.layout != "strided":
        labels["layout"] = value.layout
    flags = [word for word in ("requires_grad", "conj", "neg") if getattr(value, word)]
    flags += [f"view of {value.storage_bytes} bytes"] * (value.storage_bytes is not None)
    flags += ["quantised"] * bool(value.quantizer)
    if flags:
        labels["also"] = ", ".join(flags)
    return labels


def _dims(dims: list[int | str]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _expressions(value: Value | None) -> set[str]:
    if isinstance(value, SequenceValue):
        return {text for item in value.items for text in _expressions(item)}
    if isinstance(value, SymValue):
        return {value.expr}
    if isinstance(value, TensorValue):
        return {dim for dim in (*value.shape, *value.stride, value.offset) if isinstance(dim, str)}
    return set()


def _symbols(value: Value | None, known: list[SymbolRecord]) -> list[SymbolRecord]:
    """The records of the symbols in a value's sizes."""
    names: set[str] = set()
    for text in _expressions(value):
        try:
            names |= expr.symbols(text)
        except GraphdbgError:  # shown as it is; rebuilding the graph refuses it
            continue
    return [symbol for symbol in known if symbol.name in names]


def _aliases(saved: SavedGraph, node: NodeRecord) -> list[str]:
    """The nodes whose values share the storage of this one's."""
    if not isinstance(node.value, TensorValue) or node.value.storage is None:
        return []
    return [
        other.name
        for other in saved.record.graph.nodes
        if other.name != node.name
        and isinstance(other.value, TensorValue)
        and other.value.storage == node.value.storage
    ]


MOST = 40
"""The most inputs or users that are listed; the rest are counted."""
LONGEST = 2_000
"""The most characters of a call that are shown."""
_LABEL = 9


def sheet_of(
    detail: NodeDetail,
    partners: Sequence[Partner] = (),
    *,
    why_no_partner: str = "",
    kernels: Sequence[str] = (),
    everything: bool = False,
) -> Sheet:
    """The sheet. `partners` and `kernels` come from other modules; `everything` lists all users."""
    lines: list[Line] = [
        line((detail.name, HERE), f"  {detail.op}  ", (detail.target if detail.op != "output" else "", TITLE))
    ]
    lines += (line((f"note: {note}", BAD)) for note in detail.notes)
    if detail.op.startswith("call_") or detail.op == "output":
        lines.append(_labelled("call", *_call(detail)))
    lines += _value_lines(detail)
    lines += map(_symbol, detail.symbols)
    if detail.input is not None:
        lines += _input(detail.input)
    if detail.modules:
        lines.append(_labelled("module", detail.modules[-1][0], (f"  {detail.modules[-1][1]}", DIM)))
    lines += _stack(detail)
    if kernels:
        lines.append(_labelled("kernel", ", ".join(kernels)))
    lines += _partners(partners, why_no_partner, detail.seq_nr)
    most = len(detail.users) + len(detail.inputs) if everything else MOST
    lines += _listing("inputs", detail.inputs, most)
    lines += _listing("users", detail.users, most)
    lines += _origin(detail)
    return Sheet(detail.name, lines)


def _labelled(label: str, *pieces: Span | tuple[str, str] | str) -> Line:
    return line((f"{label:<{_LABEL}}", DIM), *pieces)


def _call(detail: NodeDetail) -> Iterator[Span]:
    """Yields the text of the call, with the names of nodes as links."""
    names = set(references([detail.args, list(detail.kwargs.values())]))
    for word in re.split(r"([\w.]+)", detail.call[:LONGEST]):
        head = word if word in names else word.partition(".")[0]
        if head in names:
            yield link(head)
        yield span(word.removeprefix(head) if head in names else word)
    if len(detail.call) > LONGEST:
        yield span(f" … and {counted(len(detail.call) - LONGEST, 'character')} more", DIM)


def _value_lines(detail: NodeDetail) -> Iterator[Line]:
    for number, value in enumerate(detail.values):
        label = "value" if len(detail.values) == 1 else f"value {number}"
        shown = [
            f"{key} {text}" if key in ("stride", "offset", "hint") else text for key, text in value.items() if text
        ]
        if len(detail.values) == 1 and detail.size_bytes:
            shown.append(size_text(detail.size_bytes))
        yield _labelled(label, "  ".join(shown))
    if len(detail.values) > 1:
        yield _labelled("bytes", size_text(detail.size_bytes))
    if detail.aliases:
        rest = f" and {len(detail.aliases) - MOST} more" if len(detail.aliases) > MOST else ""
        yield _labelled("storage", "shared with ", *_listed(detail.aliases[:MOST]), rest)


def _listed(names: Sequence[str]) -> Iterator[Span]:
    for number, name in enumerate(names):
        if number:
            yield span(", ")
        yield link(name)


def _symbol(symbol: SymbolRecord) -> Line:
    lower = "-∞" if symbol.lower is None else symbol.lower
    upper = "∞" if symbol.upper is None else symbol.upper
    words = [f"{symbol.name} = {'?' if symbol.hint is None else symbol.hint} when recorded", f"in [{lower}, {upper}]"]
    words += [word for word in (symbol.source, "" if symbol.backed else "unbacked", symbol.replacement) if word]
    return _labelled("symbol", "  ".join(words))


def _input(item: InputRecord) -> Iterator[Line]:
    yield _labelled("input", item.role, f"  {item.source}")
    if item.scalar is not None:
        yield _labelled("seen", f"{item.scalar}")
    if item.statistics:
        numbers = [f"{key} {_number(value)}" for key, value in item.statistics.items()]
        bad = any(item.statistics.get(key) for key in ("nan", "inf"))
        yield _labelled("seen", ("  ".join(numbers), BAD if bad else ""))
    else:
        yield _labelled("seen", ("no statistics: this graph did not run in the recording", DIM))
    if item.stored is not None and item.stored.storage:
        yield _labelled("stored", f"its values are in tensors/{item.stored.storage[:12]}…")


def _number(value: float | int | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _stack(detail: NodeDetail) -> Iterator[Line]:
    for number, frame in enumerate(detail.stack):
        label = "line" if number == 0 else ""
        kind = "" if frame.user else DIM
        within = f" in {frame.function}" if frame.function else ""
        yield _labelled(label, (frame.where, kind or TITLE), (within, DIM), (f"  {frame.code}", kind))


def _partners(partners: Sequence[Partner], why: str, number: int) -> Iterator[Line]:
    seq_nr_text = f"  seq_nr {number}" if number >= 0 else ""  # shown even without partners
    for place, partner in enumerate(partners[:MOST]):
        label = "partner" if place == 0 else ""
        how = f"  {partner.graph}  {partner.how}" + (f" {number}" if partner.how == NUMBER else "")
        yield _labelled(label, link(partner.name, partner.graph), (how, DIM))
    if len(partners) > MOST:
        yield _labelled("", (f"and {len(partners) - MOST} more", DIM))
    if not partners and (why or seq_nr_text):
        yield _labelled("partner", (why or "not looked up", DIM), (seq_nr_text, DIM))


def _listing(label: str, nodes: Sequence[Near], most: int) -> Iterator[Line]:
    if not nodes:
        yield _labelled(label, ("none", DIM))
    width = max((len(node.name) for node in nodes[:most]), default=0)
    for number, node in enumerate(nodes[:most]):
        pad = " " * (width - len(node.name) + 2)
        pieces = link(node.name), f"{pad}{node.value}", (f"  {node.target}", DIM)
        yield _labelled(f"{label} {len(nodes)}" if number == 0 else "", *pieces)
    if len(nodes) > most:
        yield _labelled("", (f"and {len(nodes) - most} more", DIM))


def _origin(detail: NodeDetail) -> Iterator[Line]:
    if made_of := [name for name in (*detail.from_node, detail.original_aten) if name]:
        yield _labelled("made of", ", ".join(made_of))
    for key, text in detail.meta.items():
        yield _labelled("meta", (f"{key} = {text[:200]}", DIM))
