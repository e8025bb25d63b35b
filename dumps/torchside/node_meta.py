"""Saves the kept part of `node.meta` and `graph_module.meta`, and restores it.

KEPT lists the keys that Inductor, the partitioner and their passes read, according to their sources, except values (a
field of the record) and keys that they compute themselves. A kept key whose value has no saved form is counted in the
body's meta "not_saved"; so is an unknown key.

For example, `writer.node(node, record)`: fills record.stack, .module, .seq_nr, .original_aten, .from_node, .meta.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections import Counter
from typing import Any, cast

import torch
from torch.fx.node import map_aggregate

from .. import inert, syntax
from ..allowlist import words
from ..errors import DamagedError, GraphdbgError, RefusedError
from ..program.text import is_identifier
from ..schema import Arg, NodeRecord
from ..walk import contents
from . import targets
from . import torch_private as t
from .arguments import ArgumentReader, ArgumentWriter

KEPT = words(
    """
    autograd_node hook MODULE_TYPE
    _allow_mixed_dtype_folding _numeric_debug_handle ac_graph_id autograd_backward bucketing_sources_key
    bw_donated_idxs cpu_offload_reload_node cudagraph_annotation custom dequant_type dislike_padding
    dynamo_flat_name_to_original_fqn eager_input_vals has_backward_hook has_frozen_params inductor_realize_to_strides
    is_backward is_functional_regenerated is_gradient_acc is_wrapped kpack low_precision_pointwise_barrier
    matrix_instr_nonkdim memory_budget mutated_named_buffers mutation_region_id only_clone_these_tensors
    original_device original_output_strides original_size original_stride partition_names partitioner_tag
    produced_by_chunker quant_options quantization_tag recompute saved_for_offloading saved_for_quantization
    saved_tensor_with_no_vc_check should_fallback should_offload tensor_dict torch_fn user_cache_hash
    user_visible_output_idxs waves_per_eu
    """
)
"""Keys with a plain value (numbers, text, dtypes, SymInts, fake values, and lists and dicts of them)."""

_KEYS = ("SequenceKey", "MappingKey", "GetAttrKey", "ConvertIntKey", "CallMethodKey", "InnerTensorKey", "DivideByKey")
"""The kinds of path keys that lead to an unbacked symbol inside a value."""

HANDLED = words(
    """
    val example_value tensor_meta stack_trace nn_module_stack fwd_nn_module_stack seq_nr fwd_seq_nr original_aten
    from_node source_fn_stack fwd_source_fn_stack output_stack_traces unbacked_bindings desc
    """
)
"""Keys with their own field or encoding."""

IGNORED = words(
    """
    creation_timestamp grapharg opt_ctx numeric_debug_handle dynamo_compile_id
    backend_id steal_arg is_torch_exported locals_to_steal fake_tensor_prop hidden type_promoted graphdbg_value _stage
    node_info fusion_meta buf_meta value extra_options mutation_region_id_counter
    """
)
"""Keys that the passes compute themselves, or that are meaningful inside one process only."""

_SIZE_METHODS = ("size", "stride", "storage_offset", "numel", "dim")

CARRIED_DESCRIPTOR = "graphdbg_desc"
"""Key in node.meta of descriptors that this torch does not have."""
CARRIED_META = "graphdbg_meta"
"""Key in node.meta of encoded metadata that needs fake values, on modules that were loaded without fake values."""

STACK_KEYS = ("nn_module_stack", "fwd_nn_module_stack")

_MAX_LENGTH = 4_000
"""The most characters of the text of a descriptor."""


def fake_of(node: torch.fx.Node) -> Any:
    """The fake value that tracing put on a node, or None."""
    return node.meta.get("val", node.meta.get("example_value"))


class _FunctionName(str):
    """A function's name in the form that Inductor uses in names of kernels; `whole` is the name as recorded."""

    def __new__(cls, name: str, whole: str) -> _FunctionName:
        instance = super().__new__(cls, name)
        instance.whole = whole
        return instance

    whole: str

    def __reduce__(self) -> Any:
        return _FunctionName, (str(self), self.whole)


class MetaWriter:
    """Encodes metadata of nodes and modules. `strings`: text -> its index in GraphRecord.strings, where each text is
    written once; `lost` counts the keys that could not be kept."""

    def __init__(self, arguments: ArgumentWriter, originals: dict[str, str], lost: dict[str, int]) -> None:
        self.arguments = arguments
        self.originals = originals
        self.lost = Counter(lost)
        self.strings: dict[str, int] = {}

    def node(self, node: torch.fx.Node, record: NodeRecord) -> None:
        """Fills all fields of a record that come from `node.meta`, except its value."""
        meta = node.meta
        record.stack = self._text(meta.get("stack_trace"))
        seq_nr = meta.get("seq_nr")
        record.seq_nr = seq_nr if isinstance(seq_nr, int) else -1
        if meta.get("original_aten") is not None:
            record.original_aten = targets.name_of(meta["original_aten"])
        elif "graphdbg_original_aten" in meta:
            record.original_aten = meta["graphdbg_original_aten"]
        record.from_node = [self.originals.get(name, name) for name in _chain(meta.get("from_node"))]
        kept = record.meta
        for key in STACK_KEYS:
            if meta.get(key):
                record.module = self._module_stack(meta[key])
                if key != STACK_KEYS[0]:
                    kept["module_of"] = "forward"
                break
        for key in ("source_fn_stack", "fwd_source_fn_stack"):
            if meta.get(key):
                pairs = [(str(name), _callable_name(function)) for name, function, *_ in meta[key]]
                kept[key] = [[self.originals.get(name, name), function] for name, function in pairs]
        if isinstance(meta.get("fwd_seq_nr"), int):
            kept["fwd_seq_nr"] = meta["fwd_seq_nr"]
        if meta.get("output_stack_traces"):
            indices = [self._text(text) for text in meta["output_stack_traces"]]
            kept["output_stack_traces"] = [None if index < 0 else {"string": index} for index in indices]
        if meta.get("unbacked_bindings"):
            kept["unbacked_bindings"] = self._bindings(meta["unbacked_bindings"])
        if CARRIED_DESCRIPTOR in meta:
            kept["desc"] = meta[CARRIED_DESCRIPTOR]
        elif meta.get("desc") is not None:
            kept["desc"] = _described(meta["desc"])
        self._plain(meta, kept)

    def module(self, gm: torch.nn.Module) -> dict[str, Arg]:
        """The kept metadata of a GraphModule."""
        kept: dict[str, Arg] = {}
        self._plain(getattr(gm, "meta", {}), kept)
        return kept

    def _plain(self, meta: dict[str, Any], kept: dict[str, Arg]) -> None:
        kept.update(meta.get(CARRIED_META, {}))
        for key, value in meta.items():
            if key in IGNORED or key.startswith("graphdbg"):
                continue
            if value is None and (key in KEPT or key in HANDLED):
                kept[key] = None  # passes copy existing keys, so an existing None counts
            if key in HANDLED or value is None:
                continue
            if key not in KEPT:
                self.lost[key] += 1
                continue
            if key == "tensor_dict":
                value = {name: item for name, item in value.items() if isinstance(item, (str, int))}
                if not value:
                    continue
            before = self.arguments.opaque
            encoded = self.arguments.encode(value)
            if self.arguments.opaque > before:
                self.lost[key] += 1
            else:
                kept[key] = encoded

    def _text(self, text: object) -> int:
        """The index of a text in `strings`, -1 for none."""
        if not isinstance(text, str) or not text:
            return -1
        return self.strings.setdefault(self.originals.get(text, text), len(self.strings))

    def _module_stack(self, stack: dict[Any, Any]) -> int:
        return self._text("\n".join(f"{item[0]}: {_callable_name(item[1])}" for item in stack.values()))

    def _bindings(self, bindings: dict[Any, Any]) -> Arg:
        encoded: list[Arg] = []
        for symbol, path in bindings.items():
            keys: list[Arg] = []
            for key in path:
                field = next(iter(getattr(key, "__dataclass_fields__", {})), None)
                keys.append([type(key).__name__, self.arguments.encode(getattr(key, field)) if field else None])
            encoded.append([self.arguments.symbols.use(symbol), keys])
        return encoded


class MetaReader:
    """Restores the metadata of a rebuilt node; without `fake` only what needs no fake value."""

    def __init__(self, arguments: ArgumentReader, *, fake: bool) -> None:
        self.arguments = arguments
        self.fake = fake
        self.strings = arguments.strings
        self.texts = arguments.texts
        self._stacks: dict[int, str] = {}

    def node(self, node: torch.fx.Node, record: NodeRecord, where: str) -> None:
        """Restores `node.meta` from a record, except the value."""
        meta = node.meta
        if record.stack >= 0:
            meta["stack_trace"] = self._stack(record.stack, where)
        if record.seq_nr >= 0:
            meta["seq_nr"] = record.seq_nr
        if record.original_aten:
            try:
                meta["original_aten"] = targets.resolve(record.original_aten, where)
            except GraphdbgError:  # it only names kernels, so an op that is not registered here is no reason to refuse
                meta["graphdbg_original_aten"] = record.original_aten
        if record.from_node:
            meta.update(_from_node([self.texts(name) for name in record.from_node]))
        if record.module >= 0:
            key = STACK_KEYS[bool(record.meta.get("module_of") == "forward")]
            lines = [line.partition(": ") for line in self._stack(record.module, where).split("\n")]
            meta[key] = {str(index): (path, kind) for index, (path, _, kind) in enumerate(lines)}
        for key, value in record.meta.items():
            try:
                self._restore(meta, key, value, where)
            except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:
                why = f"its metadata {key!r} is malformed ({type(error).__name__}: {error})"
                raise DamagedError(where, why) from error

    def module(self, gm: torch.nn.Module, kept: dict[str, Arg], where: str) -> None:
        """Restores the metadata of a GraphModule."""
        for key, value in kept.items():
            if key in KEPT:
                gm.meta[key] = self.arguments.decode(value, where)  # pyright: ignore

    def tensor_meta(self, node: torch.fx.Node) -> None:
        """Sets meta["tensor_meta"], as tracing does for every node whose value is a single tensor."""
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            with t.suppress_guards(self.arguments.reader.symbols.env):
                node.meta["tensor_meta"] = t.tensor_metadata(value)

    def _restore(self, meta: dict[str, Any], key: str, value: Arg, where: str) -> None:
        if value is None:
            if key in KEPT or key in HANDLED:
                meta[key] = None
        elif not self.fake and _has_values(value):
            meta.setdefault(CARRIED_META, {})[key] = value
        elif key in ("source_fn_stack", "fwd_source_fn_stack"):
            pairs = [(str(name), str(kind)) for name, kind in _pairs(value, where)]
            meta[key] = [(self.texts(name), _FunctionName(inert.name(kind), kind)) for name, kind in pairs]
        elif key == "output_stack_traces":
            meta[key] = [None if item is None else self._stack(item["string"], where) for item in value]
        elif key == "unbacked_bindings":
            meta[key] = self._bindings(value, where)
        elif key == "fwd_seq_nr" and isinstance(value, int):
            meta[key] = value
        elif key == "desc":
            texts = cast(list[Any], value if isinstance(value, list) else [value])
            descriptors = [_descriptor(text) if isinstance(text, str) else None for text in texts]
            if _described(descriptors) == texts:
                meta[key] = descriptors if isinstance(value, list) else descriptors[0]
            else:
                meta[CARRIED_DESCRIPTOR] = value
        elif key == "eager_input_vals":  # matched with a node's arguments, so of the same list and dict types
            meta[key] = map_aggregate(self.arguments.decode(value, where), lambda leaf: leaf)
        elif key in KEPT:
            meta[key] = self.arguments.decode(value, where)

    def _bindings(self, value: Arg, where: str) -> dict[Any, Any]:
        kinds = {name: kind for name in _KEYS if (kind := t.optional(name)) is not None}
        paths: dict[Any, Any] = {}
        for name, keys in _pairs(value, where):
            symbol = self.arguments.reader.symbols.by_name.get(name)
            if symbol is None:
                raise DamagedError(where, f"it binds {name!r}, which is not a symbol of the graph")
            path: list[Any] = []
            for kind, item in _pairs(keys, where):
                if kind not in kinds:
                    raise DamagedError(where, f"it binds {name!r} through {kind!r}, which is not a known kind of path")
                decoded = self.arguments.decode(item, where)
                if isinstance(decoded, str) and not _is_harmless(kind, decoded):
                    why = f"it binds {name!r} through {kind} {decoded!r}, which a saved graph may not use"
                    raise RefusedError(where, why)
                path.append(kinds[kind]() if kind == "ConvertIntKey" else kinds[kind](decoded))
            paths[symbol] = tuple(path)
        return paths

    def _stack(self, index: int, where: str) -> str:
        """A text of several lines, made inert."""
        if index not in self._stacks:
            text = self._string(index, where)
            self._stacks[index] = self.texts.kept(inert.lines(text), text)
        return self._stacks[index]

    def _string(self, index: int, where: str) -> str:
        if not 0 <= index < len(self.strings):
            raise DamagedError(where, f"it refers to text {index} of {len(self.strings)}")
        return self.strings[index]


def _described(descriptor: Any) -> Any:
    """The text of AOTAutograd's descriptors of inputs and outputs ("GradAOTOutput(grad_of=PlainAOTInput(idx=0))"); None
    for None."""
    if isinstance(descriptor, (list, tuple)):
        return [_described(item) for item in cast(list[Any], descriptor)]
    return None if descriptor is None else repr(descriptor)


def _descriptor(text: str) -> Any:
    """The descriptor of a text, which is parsed, never evaluated: only descriptor classes exist. None when this torch
    has no such descriptor, or the text is none. Inductor and the partitioner look at their classes."""
    if len(text) > _MAX_LENGTH:
        return None
    try:
        return _built(syntax.expression(text))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _built(tree: ast.AST) -> Any:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, str, type(None))):
        return inert.text(tree.value) if isinstance(tree.value, str) else tree.value
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
        descriptor_class = _descriptor_classes().get(tree.func.id)
        if descriptor_class is not None and all(keyword.arg is not None for keyword in tree.keywords):
            return descriptor_class(**{str(keyword.arg): _built(keyword.value) for keyword in tree.keywords})
    raise ValueError("no descriptor")


@functools.cache
def _descriptor_classes() -> dict[str, Any]:
    """Name -> class of all descriptors that are plain dataclasses."""
    home: Any = t.optional("descriptors", object)
    bases = tuple(base for name in ("AOTInput", "AOTOutput") if (base := getattr(home, name, None)) is not None)
    return {
        name: kind
        for name, kind in cast(dict[str, Any], vars(home)).items()
        if isinstance(kind, type) and issubclass(kind, bases) and dataclasses.is_dataclass(kind)
    }


def _has_values(value: Arg) -> bool:
    """Whether encoded metadata holds fake values."""
    return any(True for _ in contents(value, "value"))


def _is_harmless(kind: str, name: str) -> bool:
    """Whether a path key is safe to follow on a value: the name is used in getattr, or called."""
    if kind == "CallMethodKey":
        return name in _SIZE_METHODS
    return kind in ("InnerTensorKey", "GetAttrKey", "MappingKey") and is_identifier(name) and "__" not in name


def _chain(sources: Any) -> list[str]:
    names: list[str] = []
    while sources and len(names) < 32:
        source = sources[0]
        names.append(str(source.name))
        sources = getattr(source, "from_node", None)
    return names


def _from_node(chain: list[str]) -> dict[str, Any]:
    """Builds meta["from_node"] from names, nearest first; NodeSource's constructor would need live nodes."""
    make = t.optional("NodeSource._from_dict")
    if make is None or not chain:
        return {}
    entry: dict[str, Any] = {}
    for name in reversed(chain):
        of_nothing = {"target": "", "graph_id": 0, "pass_name": "", "action": "create"}
        entry = {"name": name, **of_nothing, "from_node": [entry] if entry else []}
    return {"from_node": [make(entry)]}


def _callable_name(value: Any) -> str:
    if isinstance(value, str):
        return getattr(value, "whole", value)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return str(value)
    return f"{getattr(value, '__module__', '') or ''}.{name}".lstrip(".")


def _pairs(value: Any, where: str) -> list[Any]:
    pairs = cast(list[Any], value) if isinstance(value, list) else [None]
    if not all(isinstance(item, list) and len(cast(list[Any], item)) == 2 for item in pairs):
        raise DamagedError(where, "its metadata is malformed")
    return pairs
