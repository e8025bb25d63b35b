"""Encodes a live fx.GraphModule as a GraphRecord. Changes nothing: adds no guard, runs no op, touches no `node.meta`.

Of `node.meta` and `graph_module.meta` the part is kept that Inductor, the partitioner and their passes read, according
to their sources (KEPT), except values (a field of the record) and keys that they compute themselves. A kept key whose
value has no saved form is counted in the body's meta "not_saved"; so is an unknown key.

>>> encode(gm, id="0_0/forward", stage="forward", sink=saved.tensors).graph.nodes[0].name
'primals_1'
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ..allowlist import TRITON_CALLS, words
from ..names import NAMES
from ..schema import (
    FORMAT,
    Ambient,
    Arg,
    GraphBody,
    GraphRecord,
    InputRecord,
    ModuleRecord,
    NodeRecord,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from ..tensors import TensorSink
from . import definitions, leaf_modules, targets
from . import torch_private as t
from .triton_kernels import KernelWriter
from .values import ArgumentWriter, ValueWriter, is_plain_tensor

CARRY = "graphdbg"
"""Key in GraphModule.meta of the data that a loaded module keeps from its record."""
CARRIED_VALUE = "graphdbg_value"
"""Key in node.meta of a recorded value, on modules that were loaded without fake values."""
VALUE_KEYS = ("val", "example_value")
GROUPS = "process_groups"
"""Key in GraphBody.meta of the process groups that collectives name, so that a replay can make them."""


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

CARRIED_DESCRIPTOR = "graphdbg_desc"
"""Key in node.meta of descriptors that this torch does not have."""
CARRIED_META = "graphdbg_meta"
"""Key in node.meta of encoded metadata that needs fake values, on modules that were loaded without fake values."""

STACK_KEYS = ("nn_module_stack", "fwd_nn_module_stack")


CARRIED = ("id", "stage", "compile_id", "compile_kwargs", "ambient", "config", "definitions", "inputs", "versions")
"""The fields of a record that a module loaded from it, or a case saved with `like`, takes over."""


def encode(
    gm: GraphModule,
    *,
    id: str,
    stage: str,
    compile_id: str | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
    ambient: Ambient | None = None,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    roles: Iterable[InputRecord] = (),
    sink: TensorSink | None = None,
) -> GraphRecord:
    """The record of a live graph, which is left untouched; adds no guard.

    `roles` has the known roles and sources of inputs. Tensors that the graph holds go to `sink`; without a sink, and
    for tensors that it declines, only their metadata is written.
    """
    known = {item.name: InputRecord(item.name, item.role, item.source, statistics=item.statistics) for item in roles}
    with torch.no_grad(), t.modes_off():
        encoder = _Encoder(gm, sink)
        body = encoder.whole()
        plain = encoder.plain.encode
        kwargs = {key: plain(_unboxed(value)) for key, value in (compile_kwargs or {}).items()}
        rooms = (config or {}).items()
        settings = {room: {key: plain(value) for key, value in values.items()} for room, values in rooms}
        symbols, guards, shape_env = encoder.symbols.finish()
        kernels = encoder.kernels.finish() if "kernels" in vars(encoder) else []
    names = [node.name for node in body.nodes if node.op == "placeholder"]
    record = GraphRecord(
        format=FORMAT,
        id=id,
        stage=stage,
        compile_id=compile_id,
        versions={"torch": str(torch.__version__)},
        graph=body,
        inputs=[known.get(name) or InputRecord(name) for name in names],
        symbols=symbols,
        guards=guards,
        shape_env=shape_env,
        strings=list(encoder.meta.strings),
        kernels=kernels,
        compile_kwargs=kwargs,
        ambient=ambient or Ambient(),
        config=settings,
    )
    record.definitions = definitions.of_record(record, config or {}, encoder.functions)
    return record


class _Encoder:
    def __init__(self, gm: GraphModule, sink: TensorSink | None) -> None:
        self.gm = gm
        self.carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})
        self.values = ValueWriter(self.carry.get("originals"), sink)
        self.symbols = self.values.symbols
        self.plain = ArgumentWriter(self.values)
        self.meta = MetaWriter(self.plain, self.carry.get("not_saved", {}))
        self.functions: set[str] = set()

    @cached_property
    def kernels(self) -> KernelWriter:
        """The user's own Triton kernels that the graph calls."""
        return KernelWriter()

    def whole(self) -> GraphBody:
        """The graph with its subgraphs."""
        self._count(self.gm)
        if self.carry.get("has_shape_env"):
            self.symbols.adopt(self.carry["symbols"].env)
        body = self.body(self.gm)
        groups = _process_groups(self.gm) or self.carry.get(GROUPS)
        if groups:
            body.meta[GROUPS] = groups
        if NAMES in self.carry:
            body.meta[NAMES] = self.carry[NAMES]
        if self.meta.lost:
            body.meta["not_saved"] = {"dict": [[key, count] for key, count in sorted(self.meta.lost.items())]}
        return body

    def body(self, gm: GraphModule) -> GraphBody:
        """One graph with the objects that it refers to; subgraphs are bodies of their own."""
        body = GraphBody(nodes=[])
        held: dict[int, str] = {}
        graph_carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})

        def keep(tensor: torch.Tensor) -> str:
            """Stores a tensor that stands directly among the arguments, and returns its name."""
            if id(tensor) not in held:
                held[id(tensor)] = _free_name(gm, body.attrs)
                body.attrs[held[id(tensor)]] = self.values.store(tensor)
            return held[id(tensor)]

        arguments = ArgumentWriter(self.values, keep)
        body.meta = self.meta.module(gm)
        keys: Counter[str] = Counter()
        for node in gm.graph.nodes:
            body.nodes.append(self._node(gm, body, node, arguments, keys))
        self.functions |= arguments.functions
        if keys["example_value"] > keys["val"] or graph_carry.get("value_key") == "example_value":
            body.meta["value_key"] = "example_value"
        if keys["tensor_meta"] or graph_carry.get("tensor_meta"):
            body.meta["tensor_meta"] = True
        return body

    def _node(
        self, gm: GraphModule, body: GraphBody, node: torch.fx.Node, arguments: ArgumentWriter, keys: Counter[str]
    ) -> NodeRecord:
        target = str(node.target)
        if node.op == "call_function":
            target = targets.name_of(node.target)
            self.functions.add(target)
        record = NodeRecord(name=node.name, op=cast(Any, node.op), target=target)
        record.args = [arguments.encode(argument) for argument in node.args]
        record.kwargs = {name: arguments.encode(argument) for name, argument in node.kwargs.items()}
        if node.op in ("get_attr", "call_module"):
            self._refer(gm, body, node, arguments)
        key = _value_key(node)
        if key is not None:
            keys[key] += 1
            record.value = self.values.value(node.meta[key], whole_storage=node.op == "placeholder")
            if key == "example_value" and node.op == "placeholder" and isinstance(record.value, TensorValue):
                record.value.base = self.values.base(node.meta[key])
        else:
            record.value = node.meta.get(CARRIED_VALUE)
            if record.value is not None:
                self._use_carried(record.value)
        keys["tensor_meta"] += "tensor_meta" in node.meta
        self.meta.node(node, record)
        if target in TRITON_CALLS:
            self.kernels.node(node, record)
        return record

    def _refer(self, gm: GraphModule, body: GraphBody, node: torch.fx.Node, arguments: ArgumentWriter) -> None:
        """Writes the attribute that a node refers to by its path, once."""
        path = str(node.target)
        if path in body.attrs or path in body.subgraphs or path in body.modules:
            return
        attribute = attrgetter(path)(gm)
        if isinstance(attribute, GraphModule):
            body.subgraphs[path] = self.body(attribute)
        elif node.op == "call_module":
            body.modules[path] = leaf_modules.encode(attribute, arguments, self.values.store)
        elif is_plain_tensor(attribute):
            body.attrs[path] = self.values.store(attribute)
        else:
            kind = cast(type[Any], type(attribute))
            body.modules[path] = ModuleRecord(type=f"{kind.__module__}.{kind.__qualname__}", repr=repr(attribute)[:200])

    def _count(self, gm: GraphModule) -> None:
        """Counts the storages of all values and tensors, before any is written, to find those that are shared."""
        paths: dict[str, None] = {}
        for node in gm.graph.nodes:
            key = _value_key(node)
            if key is not None:
                self.values.count(node.meta[key])
            if node.op in ("get_attr", "call_module"):
                paths[node.target] = None
        for path in paths:
            attribute = attrgetter(path)(gm)
            if isinstance(attribute, GraphModule):
                self._count(attribute)
            else:
                is_module = isinstance(attribute, torch.nn.Module)
                self.values.count([*attribute.parameters(), *attribute.buffers()] if is_module else attribute)

    def _use_carried(self, value: Value) -> None:
        symbols = self.carry.get("symbols")
        if symbols is None:
            return
        if isinstance(value, TensorValue):
            for dim in (*value.shape, *value.stride, value.offset, value.storage_bytes):
                if isinstance(dim, str):
                    self.symbols.text(symbols.expr(dim))
        elif isinstance(value, SymValue):
            self.symbols.text(symbols.expr(value.expr))
        elif isinstance(value, SequenceValue):
            for item in value.items:
                self._use_carried(item)


def _value_key(node: torch.fx.Node) -> str | None:
    return next((key for key in VALUE_KEYS if key in node.meta), None)


def _free_name(gm: GraphModule, taken: Mapping[str, StoredTensor]) -> str:
    index = len(taken)
    while f"_argument_{index}" in taken or hasattr(gm, f"_argument_{index}"):
        index += 1
    return f"_argument_{index}"


def _unboxed(value: Any) -> Any:
    """The value in Inductor's BoxedBool or BoxedDeviceIndex; other values as they are."""
    return value.value if type(value).__name__ in ("BoxedBool", "BoxedDeviceIndex") else value


def _process_groups(gm: GraphModule) -> Arg:
    """Process groups by name, from the arguments of functional collectives; None for a graph without collectives, or
    where this process knows none of the names. Does not communicate."""
    groups = ((name, _group(name)) for name in sorted(set(_group_names(gm))))
    facts: list[Arg] = [[name, _facts_of(group)] for name, group in groups if group is not None]
    return {"dict": facts} if facts else None


def _group_names(gm: GraphModule) -> Iterator[str]:
    for part in gm.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                if node.op == "call_function" and "c10d" in str(node.target):
                    yield from (value for value in (*node.args, *node.kwargs.values()) if isinstance(value, str))


def _group(name: str) -> Any:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    try:
        return t.resolve_process_group(name)
    except (RuntimeError, ValueError):
        return None


def _facts_of(group: Any) -> Arg:
    distributed = sys.modules["torch.distributed"]
    ranks = [int(rank) for rank in distributed.get_process_group_ranks(group)]
    of_all = [["rank", int(distributed.get_rank())], ["world_size", int(distributed.get_world_size())]]
    return {"dict": [["backend", str(distributed.get_backend(group))], ["ranks", ranks], *of_all]}


class FunctionName(str):
    """A function's name in the form that Inductor uses in names of kernels; `whole` is the name as recorded."""

    def __new__(cls, name: str, whole: str) -> FunctionName:
        instance = super().__new__(cls, name)
        instance.whole = whole
        return instance

    whole: str

    def __reduce__(self) -> Any:
        return FunctionName, (str(self), self.whole)


class MetaWriter:
    """Encodes metadata of nodes and modules. `strings`: text -> its index in GraphRecord.strings, where each text is
    written once; `lost` counts the keys that could not be kept."""

    def __init__(self, arguments: ArgumentWriter, lost: dict[str, int]) -> None:
        self.arguments = arguments
        self.originals = arguments.originals
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
            kept["desc"] = described(meta["desc"])
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


def described(descriptor: Any) -> Any:
    """The text of AOTAutograd's descriptors of inputs and outputs ("GradAOTOutput(grad_of=PlainAOTInput(idx=0))"); None
    for None."""
    if isinstance(descriptor, (list, tuple)):
        return [described(item) for item in cast(list[Any], descriptor)]
    return None if descriptor is None else repr(descriptor)


def _chain(sources: Any) -> list[str]:
    names: list[str] = []
    while sources and len(names) < 32:
        source = sources[0]
        names.append(str(source.name))
        sources = getattr(source, "from_node", None)
    return names


def _callable_name(value: Any) -> str:
    if isinstance(value, str):
        return getattr(value, "whole", value)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return str(value)
    return f"{getattr(value, '__module__', '') or ''}.{name}".lstrip(".")
