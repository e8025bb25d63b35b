"""Everything that a dump holds of one node, as one record: what it computes, its value, where it comes from, who uses it.

Made from the table, and of graph.json only what belongs to the node. Must not import torch; the code, the partner and the
related graphs are found by modules of their own.

>>> detail = detail_of(saved, view, Recorded(saved), view.position("addmm_1"))
>>> detail.call, detail.inputs[0].name
('aten.addmm.default(primals_7, view, permute)', 'primals_7')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .. import expr
from ..diff.arguments import text as argument_text
from ..errors import GraphdbgError
from ..schema import Arg, InputRecord, NodeRecord, SequenceValue, SymbolRecord, SymValue, TensorValue, Value
from ..sidecar import Frame, dims_text, frames
from ..tables import plain
from .levels import module_path
from .recorded import Recorded
from .short import row_value
from .table import GraphView

if TYPE_CHECKING:
    from ..store import SavedGraph

_HIDDEN_META = ("source_fn_stack", "fwd_source_fn_stack", "tensor_dict", "mutation_region_id")


class Near(msgspec.Struct):
    """A node beside this one: an input or a user, its op and its value."""

    index: int
    name: str
    target: str
    value: str


class NodeDetail(msgspec.Struct, kw_only=True):
    """One node. `values` has one row (dtype, shape, stride, offset, device, remarks) for each tensor in its value; `input` is
    what is known of a placeholder; `meta` what else was recorded; `notes` says what could not be shown and why."""

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
        """The same as a JSON object."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        made["stack"] = [{**frame._asdict(), "user": frame.user} for frame in self.stack]
        return made


def detail_of(saved: SavedGraph, view: GraphView, recorded: Recorded, index: int) -> NodeDetail:
    """All that is recorded of the node at that position. Raises UnreadableError for a damaged file."""
    row = view.table.row(index)
    detail = NodeDetail(
        index=index, name=row.name, op=row.op, target=row.target, size_bytes=row.size_bytes, seq_nr=row.seq_nr,
        inputs=[_near(view, at) for at in view.inputs(index)], users=[_near(view, at) for at in view.users(index)],
        modules=_modules(row.module),
    )  # fmt: skip
    if recorded.large and recorded.too_large:
        detail.notes.append(recorded.too_large)
        detail.values = [_from_columns(row.dtype, row.shape, row.stride, row.device)]
        return detail
    following = view.table.name[index + 1] if index + 1 < len(view) else ""
    node = recorded.node(row.name, following)
    if node is None:
        detail.notes.append("graph.json has no such node: the table beside it is of another graph")
        return detail
    _fill(detail, node, recorded)
    if not recorded.large:
        detail.aliases = _aliases(saved, node)
    return detail


def _fill(detail: NodeDetail, node: NodeRecord, recorded: Recorded) -> None:
    detail.args, detail.kwargs = node.args, node.kwargs
    detail.call = call_text(node, recorded)
    detail.values = list(_values(node.value))
    detail.symbols = _symbols(node.value, recorded.symbols)
    detail.original_aten, detail.from_node = node.original_aten, node.from_node
    detail.stack = frames(recorded.string(node.stack))
    detail.meta = {key: argument_text(value, recorded.strings) for key, value in node.meta.items() if key not in _HIDDEN_META}
    if node.op == "placeholder":
        detail.input = recorded.inputs.get(node.name)


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
    return [{"value": argument_text(getattr(value, "value", None)) if hasattr(value, "value") else getattr(value, "type", "")}]


def _of_tensor(value: TensorValue) -> dict[str, str]:
    found = {
        "dtype": value.dtype, "shape": _dims(value.shape), "stride": _dims(value.stride), "offset": str(value.offset),
        "device": value.device,
    }  # fmt: skip
    if value.layout != "strided":
        found["layout"] = value.layout
    flags = [word for word in ("requires_grad", "conj", "neg") if getattr(value, word)]
    if value.storage_bytes is not None:
        flags.append(f"view of {value.storage_bytes} bytes")
    if value.quantizer:
        flags.append("quantised")
    if flags:
        found["also"] = ", ".join(flags)
    return found


def _from_columns(dtype: str, shape: str, stride: str, device: str) -> dict[str, str]:
    return {"dtype": dtype, "shape": dims_text(shape), "stride": dims_text(stride), "device": device}


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
    """The symbols in a value's sizes, with what is known of each."""
    names: set[str] = set()
    for text in _expressions(value):
        try:
            names |= expr.symbols(text)
        except GraphdbgError:  # shown as it is; what rebuilds a graph refuses it
            continue
    return [symbol for symbol in known if symbol.name in names]


def _aliases(saved: SavedGraph, node: NodeRecord) -> list[str]:
    """The nodes whose values share the storage of this one's."""
    if not isinstance(node.value, TensorValue) or node.value.storage is None:
        return []
    return [
        other.name for other in saved.record.graph.nodes
        if other.name != node.name and isinstance(other.value, TensorValue) and other.value.storage == node.value.storage
    ]  # fmt: skip
