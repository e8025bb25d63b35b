# pyright: basic
"""AOT dispatch: a function or a module as one functional graph, with or without its backward.

Also: a captured graph whose inputs and outputs are described: AOTAutograd's descriptors in our words, and the caller's
own values that they name.

The steps are AOTAutograd's, in its order: parameters lifted, arguments fake; mutations and aliases found by a first
run; mutations turned into outputs; functionalised; tensor subclasses taken apart; traced; checked to be functional;
dead code removed. Each is a line below. Added here are the user's lines (`UserLines`) and assigned buffers
(`Assigned`). Source of the order: torch/_functorch/_aot_autograd/graph_capture.py (2.13.0).

>>> captured = joint_graph(model, (x,))
>>> [node.name for node in captured.module.graph.nodes if node.op == "call_function"]
['t', 'addmm', 't_1', 'mm', 't_2', 'sum_1', 'view', 't_3']
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.nn.modules.module import register_module_buffer_registration_hook

from ...dumps.errors import NoGraphError
from ...dumps.names import kind_of
from ...dumps.output import say
from ...dumps.schema import InputRecord
from .. import torch_private as t
from ..live.roles import of_aot


@dataclass
class OutputDescription:
    """What one output of a graph is: "user", "mutation" (an input's new value), "alias base", "gradient", "token" or
    "saved".

    `source` names the value that it belongs to: `output[0]`, `running_mean`. A gradient that no input needs is None and
    "unknown".
    """

    name: str
    kind: str
    source: str


@dataclass
class Captured:
    """A functional graph. `inputs` are the fake values it was traced with, in the order of its placeholders; `stage` is
    "joint" or "inference"; `real` are the caller's own values where they are known, None where they are not (tangents).
    """

    module: fx.GraphModule
    stage: str
    inputs: list[Any]
    real: list[Any]
    inputs_described: list[InputRecord]
    outputs_described: list[OutputDescription]
    mutated: list[str] = field(default_factory=list[str])
    aliased: list[str] = field(default_factory=list[str])
    compile_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    raw_metadata: Any = None
    """Torch's own ViewAndMutationMeta."""
    notes: list[str] = field(default_factory=list[str])
    """Effects of the function that the graph does not contain, one sentence each."""

    def values(self, seed: int = 0) -> list[Any]:
        """Real inputs: the caller's, and for tangents normal numbers drawn with `seed`, of the traced layout."""
        generator = torch.Generator().manual_seed(seed)
        inputs: list[Any] = []
        for fake, real in zip(self.inputs, self.real, strict=True):
            if real is not None or not isinstance(fake, torch.Tensor):
                inputs.append(real)
                continue
            value = torch.empty_strided(_hints(fake.shape), _hints(fake.stride()), dtype=fake.dtype, device=fake.device)
            kind = torch.complex64 if fake.dtype.is_complex else torch.float32
            drawn = torch.randn(value.shape, generator=generator, dtype=kind, device="cpu")
            inputs.append(value.copy_(drawn))
        return inputs

    def save(self, path: str | Path, *, seed: int = 0) -> Path:
        """Writes a case folder with the descriptions beside the graph; inputs that are objects of this process, such as
        a DTensor's device mesh, are left out where they only pass through. Says `notes`. Raises UsageError where `path`
        exists.
        """
        from ...dumps.live import save_graph
        from ...dumps.torchside.encode import CARRY

        module, places = without_objects(self.module, self.inputs)
        values = self.values(seed)
        module.meta[CARRY] = {"inputs": [self.inputs_described[place] for place in places]}
        kwargs = dict(self.compile_kwargs)
        if "static_lifetime_input_indices" in kwargs:
            static = set(kwargs["static_lifetime_input_indices"])
            kwargs["static_lifetime_input_indices"] = [at for at, place in enumerate(places) if place in static]
        for note in self.notes:
            say(f"graphdbg: {note}")
        return save_graph(module, [values[place] for place in places], path, stage=self.stage, compile_kwargs=kwargs)


def _hints(sizes: Sequence[Any]) -> list[int]:
    return [size.node.hint if hasattr(size, "node") else int(size) for size in sizes]


def outputs_of(gm: Any) -> list[OutputDescription]:
    """The description of each output of a traced graph."""
    output = gm.graph.output_node()
    described = output.meta.get("desc") or [None] * len(output.args[0])
    texts = [None if description is None else repr(description) for description in described]
    pairs = zip(output.args[0], texts, strict=False)
    return [OutputDescription(getattr(node, "name", str(node)), *kind_of(text)) for node, text in pairs]


class CallerValues:
    """The caller's own values by the descriptor of an input: parameters and buffers by name, arguments by position,
    parts of a tensor subclass by attribute, and the storage that overlapping inputs share.
    """

    def __init__(self, module: torch.nn.Module, flat: Sequence[Any]) -> None:
        self.module, self.flat = module, flat

    def of(self, described: Any, fake: Any) -> Any:
        """The caller's value, detached; None where the caller has none, as for a tangent or an effect token."""
        value = self._of(described, fake)
        if not isinstance(value, torch.Tensor):
            return value
        fits = isinstance(fake, torch.Tensor) and value.dim() == fake.dim() and value.dtype == fake.dtype
        return value.detach() if fits else None

    def _of(self, described: Any, fake: Any) -> Any:
        kind = type(described).__name__
        if kind == "ParamAOTInput":
            return self.module.get_parameter(described.target)
        if kind == "BufferAOTInput":
            return self.module.get_buffer(described.target)
        if kind == "PlainAOTInput":
            return self.flat[described.idx] if described.idx < len(self.flat) else None
        if kind == "SubclassGetAttrAOTInput":
            base = self._of(described.base, None)
            return None if base is None else getattr(base, described.attr)
        if kind in ("SyntheticBaseAOTInput", "ViewBaseAOTInput"):
            return self._shared(self._of(described.base_of, None), fake)
        return None

    def _shared(self, tensor: Any, fake: Any) -> Any:
        """The tensor over a whole storage of which `tensor` is a view, in the layout that was traced."""
        if not isinstance(tensor, torch.Tensor) or not isinstance(fake, torch.Tensor):
            return None
        layout = [int(size) for size in (*fake.shape, *fake.stride(), fake.storage_offset())]
        sizes, strides, offset = layout[: fake.dim()], layout[fake.dim() : -1], layout[-1]
        return tensor.detach().as_strided(sizes, strides, offset)


_NUMBERS = (int, float, bool, complex, torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = (torch.Tensor, torch.dtype, torch.device, str, type(None), *_NUMBERS)


def without_objects(module: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[int]]:
    """Removes inputs that are objects: returns (graph, positions of the inputs that stay). The same graph where it has
    none.

    A case cannot hold objects of the process, such as the device mesh of a DTensor. Most only pass through to the
    outputs, beside the local tensors that they describe: such an input is removed, and outputs that return it become
    None. Raises UsageError where a node computes with such an object.

    Raises UsageError where a node computes with such an object.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    objects = {node for node, value in zip(placeholders, inputs, strict=True) if not isinstance(value, _PLAIN)}
    if not objects:
        return module, list(range(len(placeholders)))
    for node in objects:
        if users := [user.name for user in node.users if user.op != "output"]:
            kind = type(inputs[placeholders.index(node)]).__name__
            why = f"{users[0]} computes with {node.name}, an object of this process ({kind})"
            raise NoGraphError("the graph cannot be saved", why)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node in objects:
            continue
        if node.op == "output":
            outputs = [None if output in objects else output for output in node.args[0]]
            last = graph.output(tuple(copies[output] if isinstance(output, fx.Node) else output for output in outputs))
            last.meta.update(node.meta)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    flat = fx.GraphModule(module, graph)
    flat.meta.update(module.meta)
    return flat, [place for place, node in enumerate(placeholders) if node not in objects]


_TORCH = str(Path(torch.__file__).parent)
_LAYERS = str(Path(torch.nn.modules.__file__).parent)
_CALLING = (torch.nn.modules.module.__file__,)
_OURS = str(Path(__file__).parent)


class UserLines:
    """Filters the stacks of one tracer. `marker` is the file whose frame calls the captured function."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.made: dict[int, list[traceback.FrameSummary]] = {}

    def attach(self) -> None:
        """Makes the running tracer, if any, record the user's lines."""
        tracer = tracer_at_work()
        if tracer is not None:
            tracer.record_stack_traces = True
            tracer._filter_traceback_frames = self.filtered

    def filtered(self, stack: traceback.StackSummary) -> traceback.StackSummary:
        """The user's frames of a stack; those of the forward node where a backward node has none."""
        frames = list(stack)
        own = [place for place, frame in enumerate(frames) if frame.filename == self.marker]
        running = t.current_autograd_node()  # None in a forward; its public form is in C++ only
        mine = list(_of_user(frames[own[-1] + 1 :] if own else ()))
        if running is not None:
            mine = list(_of_user(_below_engine(frames))) or self.made.get(running._sequence_nr(), [])
        elif mine:
            self.made.setdefault(t.autograd_sequence_number() - 1, mine)
        return traceback.StackSummary.from_list(mine)


def _below_engine(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The frames below the autograd engine: a custom Function's backward, a hook, a recomputation."""
    engine = [place for place, frame in enumerate(frames) if frame.name == "_engine_run_backward"]
    return frames[engine[-1] + 1 :] if engine else []


def _of_user(frames: Iterable[traceback.FrameSummary]) -> Iterable[traceback.FrameSummary]:
    for frame in frames:
        layer = frame.filename.startswith(_LAYERS) and frame.filename not in _CALLING
        inside = frame.filename.startswith((_TORCH, _OURS)) or frame.filename.startswith("<")
        if layer or not inside:
            yield frame


def tracer_at_work() -> Any:
    """The tracer of the `make_fx` that is running; None outside one."""
    mode = t.get_proxy_mode()
    return None if mode is None else mode.tracer


class Assigned:
    """Watches the assignments of a module and its children. `names` are the buffers that were assigned, in order."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.paths = {id(submodule): path for path, submodule in module.named_modules()}
        self.before = [(path, submodule, dict(submodule.__dict__)) for path, submodule in module.named_modules()]
        self.buffers = [(submodule, dict(submodule._buffers)) for submodule in module.modules()]
        self.names: dict[str, str] = {}
        self.kept: list[str] = []
        """Attributes that are no buffers and were assigned a tensor."""

    def __enter__(self) -> Assigned:
        self._handle = register_module_buffer_registration_hook(self._saw)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
        for submodule, buffers in self.buffers:
            submodule._buffers.clear()
            submodule._buffers.update(buffers)
        self.restore()

    def restore(self) -> None:
        """Restores attributes that hold a traced tensor to their old values, so that a later call does not see an
        earlier call's tensors."""
        for path, submodule, before in self.before:
            for name in [name for name, value in submodule.__dict__.items() if _traced(value)]:
                if (full := f"{path}.{name}".lstrip(".")) not in self.kept:
                    self.kept.append(full)
                if name in before:
                    submodule.__dict__[name] = before[name]
                else:
                    del submodule.__dict__[name]

    def notes(self, *, joint: bool) -> list[str]:
        """Effects that the graph does not contain, one sentence each."""
        lost = [f"the function sets {name} to a tensor; the graph does not contain that" for name in self.kept]
        if joint and self.names:
            what = "is reassigned, which a joint graph does not contain; write in place (copy_) to record it"
            lost.append(f"{', '.join(self.names)} {what}")
        return lost

    def _saw(self, module: torch.nn.Module, name: str, value: Any) -> None:
        path = self.paths.get(id(module))
        if path is not None and isinstance(value, torch.Tensor):
            self.names[f"{path}.{name}".lstrip(".")] = _node_name_of(value) or ""

    def outputs(self, gm: Any, metadata: Any) -> None:
        """Adds the assigned buffers to the outputs of a traced inference graph, in front."""
        output = gm.graph.output_node()
        nodes = {node.name: node for node in gm.graph.nodes}
        added = {name: nodes[node] for name, node in self.names.items() if node in nodes}
        output.args = ((*added.values(), *output.args[0]),)
        described = [t.InputMutationAOTOutput(t.BufferAOTInput(name)) for name in added]
        output.meta["desc"] = [*described, *output.meta["desc"]]
        places = {getattr(described, "target", None): place for place, described in enumerate(_inputs(gm))}
        for name in added:
            place = places.get(name)
            if place is not None and not metadata.input_info[place].mutates_data:
                metadata.input_info[place] = dataclasses.replace(metadata.input_info[place], mutates_data=True)
                metadata.num_mutated_inp_runtime_indices += 1


def _inputs(gm: Any) -> list[Any]:
    """The descriptors of the inputs without effect tokens, which the metadata does not count, so that positions
    agree."""
    described = [node.meta.get("desc") for node in gm.graph.find_nodes(op="placeholder")]
    return [description for description in described if not type(description).__name__.endswith("TokenAOTInput")]


def _traced(value: Any) -> bool:
    """Whether a value holds a tensor that exists only while tracing."""
    return any(isinstance(leaf, (t.FakeTensor, t.FunctionalTensor)) for leaf in t.tree_leaves(value))


def _node_name_of(value: torch.Tensor) -> str | None:
    """The node that made a tensor in the graph that is being traced; None where none did."""
    tracer = tracer_at_work()
    plain: Any = value.from_functional() if isinstance(value, t.FunctionalTensor) else value  # pyright: ignore
    slot = None if tracer is None else t.get_proxy_slot(plain, tracer, None)
    return None if slot is None else slot.proxy.node.name


def inference_graph(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    keep_mutations: bool = False,
    dynamic: bool = False,
) -> Captured:
    """The graph of `f(*args, **kwargs)` without a backward, gradients off.

    `f` is a function or a module, `args` and `kwargs` its arguments in any nesting. What it writes to inputs are extra
    outputs, in front, and so are buffers that it assigns; with `keep_mutations` writes stay (`copy_`) at the end of the
    graph. `dynamic` gives sizes symbols. Nodes carry the user's lines; `notes` say what the graph does not hold. Raises
    UsageError for arguments that cannot be traced, and whatever `f` raises.
    """
    with torch.no_grad():
        return _capture(f, args, kwargs, decompositions, keep_mutations=keep_mutations, joint=False, dynamic=dynamic)


def joint_graph(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic: bool = False,
) -> Captured:
    """The graph of `f(*args, **kwargs)` and its backward: inputs, then tangents in; outputs, then gradients out.

    Every output that requires a gradient gets a tangent. Raises UsageError where nothing requires a gradient, and
    whatever `f` raises.
    """
    with torch.enable_grad():
        return _capture(f, args, kwargs, decompositions, keep_mutations=False, joint=True, dynamic=dynamic)


class _FunctionModule(torch.nn.Module):
    """A module that calls a plain function."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self._called = f

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._called(*args, **kwargs)


def _capture(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    decompositions: Any,
    *,
    keep_mutations: bool,
    joint: bool,
    dynamic: bool,
) -> Captured:
    module = f if isinstance(f, torch.nn.Module) else _FunctionModule(f)
    own = tuple(args), dict(kwargs or {})
    given, named = _with_symbols(own) if dynamic else own
    with Assigned(module) as assigned, contextlib.ExitStack() as stack:
        prepared = _prepared(module, given, named, dict(decompositions or {}), keep_mutations)
        stack.enter_context(t.compiled_autograd_off())
        state = t.create_aot_state(stack, *prepared)  # finds mutations, aliases, and whether a backward is needed
        if joint and not state.needs_autograd:
            raise NoGraphError(
                "there is no joint graph",
                "no output requires a gradient",
                "call inference_graph, or give parameters or inputs that require grad",
            )
        described_call = _describing(prepared[0], UserLines(__file__), assigned)
        function, state.flat_args, state.flat_args_descs, state.fw_metadata = t.pre_compile(
            t.wrappers_for_dispatch(state.needs_autograd),
            described_call,
            state.flat_args,
            state.flat_args_descs,
            state.aot_config,
            fw_metadata=state.fw_metadata,
        )
        state.fw_metadata.deterministic = torch.are_deterministic_algorithms_enabled()
        gm, inputs = _joint(function, state) if joint else _inference(function, state, assigned)
    callers = CallerValues(module, t.tree_leaves(own))
    captured = _described(gm, inputs, callers, state.fw_metadata, "joint" if joint else "inference")
    captured.notes = assigned.notes(joint=joint)
    return captured


def _describing(call: Callable[..., Any], lines: UserLines, assigned: Assigned) -> Callable[..., Any]:
    """Wraps the function: returns a descriptor beside each output, keeps the user's lines, and first restores
    attributes that an earlier call set."""

    @t.simple_wraps(call)
    def described(*args: Any) -> Any:
        assigned.restore()
        lines.attach()
        outputs = call(*args)
        return outputs, type(outputs)(t.PlainAOTOutput(index) for index in range(len(outputs)))

    return described


def _inference(function: Callable[..., Any], state: Any, assigned: Assigned) -> tuple[Any, list[Any]]:
    config, metadata = state.aot_config, state.fw_metadata
    traced = t.fn_input_mutations_to_outputs(
        function, state.flat_args_descs, metadata, keep_data_input_mutations=config.keep_inference_input_mutations
    )
    traced, args, described = _desugared(traced, state.flat_args, state.flat_args_descs, function, state, joint=False)
    gm, inputs = _trace(traced, args, described, config)
    assigned.outputs(gm, metadata)
    copies = t.assert_functional_graph(gm.graph)
    _order_streams(gm, metadata, joint=False)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    if t.assert_functional_graph(gm.graph) != copies:
        raise AssertionError("removing dead code removed a write to an input")
    t.propagate_input_mutation_stacktraces(gm.graph)
    if (tokens := len(metadata.tokens)) and t.functorch_config.unlift_effect_tokens:
        t.unlift_tokens(gm, metadata, config)
        last = gm.graph.output_node()
        last.meta["desc"] = last.meta["desc"][tokens:]  # unlift_tokens leaves the descriptors as they were
        inputs = inputs[tokens:]
    return gm, list(inputs)


def _joint(function: Callable[..., Any], state: Any) -> tuple[Any, list[Any]]:
    config, metadata = state.aot_config, state.fw_metadata
    both = (state.flat_args, metadata.traced_tangents)
    both_described = (state.flat_args_descs, metadata.traced_tangents_descs)
    forward = t.fn_prepped_for_autograd(function, state.flat_args_descs, metadata, config)
    traced: Any = t.create_joint(forward, state.flat_args_descs, aot_config=config)
    handle = traced.handle
    traced, args, described = _desugared(traced, both, both_described, function, state, joint=True, handle=handle)
    gm, inputs = _trace(traced, args, described, config)
    t.assert_no_fake_params_or_buffers(gm)
    t.copy_fwd_metadata_to_bw_nodes(gm)  # before dead code is removed, or a backward node loses its forward node
    _order_streams(gm, metadata, joint=True)
    gm.graph.eliminate_dead_code()
    t.assert_functional_graph(gm.graph)
    gm.recompile()
    return gm, t.tree_leaves(inputs)


def _desugared(
    traced: Any, args: Any, described: Any, original: Any, state: Any, *, joint: bool, handle: Any = None
) -> tuple[Any, Any, Any]:
    """The function on functional plain tensors: functionalised, subclasses taken apart, effect tokens threaded
    through."""
    metadata = state.fw_metadata
    given = {"joint_fn_handle": handle} if joint else {}
    traced, args, described = t.create_functionalized_fn(
        traced, args, described, meta=metadata, aot_config=state.aot_config, trace_joint=joint, **given
    )
    plain = t.aot_dispatch_subclass(traced, args, described, is_joint_structure=joint, meta=metadata, fw_only=original)
    parts = plain.plain_tensor_trace_fn, plain.plain_tensor_args, plain.plain_tensor_args_descs
    return t.handle_effect_tokens_fn(*parts, meta=metadata, trace_joint=joint)


def _described(gm: Any, inputs: list[Any], own: CallerValues, metadata: Any, stage: str) -> Captured:
    outputs = outputs_of(gm)
    mutated = [output.source for output in outputs if output.kind == "mutation"]
    aliases = (t.OutputType.alias_of_input, t.OutputType.is_input, t.OutputType.alias_of_intermediate)
    aliased = [f"output[{index}]" for index, seen in enumerate(metadata.output_info) if seen.output_type in aliases]
    given = iter(inputs)
    placed: list[tuple[Any, Any]] = []
    for node in gm.graph.find_nodes(op="placeholder"):
        late = type(node.meta.get("desc")).__name__ == "BackwardTokenAOTInput"  # found while tracing, so no argument
        fake = node.meta.get("val") if late else next(given)
        placed.append((fake, own.of(node.meta.get("desc"), fake)))
    written, returned = metadata.num_mutated_inp_runtime_indices, len(metadata.output_info)
    kwargs = {
        "num_fwd_outputs": written + returned + metadata.num_intermediate_bases,
        "num_orig_model_outputs": returned,
        "num_mutated_inp_runtime_indices": written,
        "static_lifetime_input_indices": list(metadata.static_input_indices or ()),
    }
    kwargs = kwargs if stage == "joint" else {}
    fakes, real = [fake for fake, _ in placed], [value for _, value in placed]
    return Captured(gm, stage, fakes, real, of_aot(gm, [], stage), outputs, mutated, aliased, kwargs, metadata)


def _with_symbols(args: Any) -> Any:
    """The arguments as fake tensors whose sizes (but 0 and 1) are symbols; AOTAutograd then goes on in their fake
    mode."""
    mode = t.FakeTensorMode(shape_env=t.ShapeEnv(), static_shapes=False)

    def fake(index: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        context = t.StatelessSymbolicContext([t.DimDynamic.DUCK] * value.dim())
        return mode.from_tensor(value, symbolic_context=context, source=t.ConstantSource(f"args_{index}"))

    leaves, spec = t.tree_flatten(args)
    return t.tree_unflatten([fake(index, leaf) for index, leaf in enumerate(leaves)], spec)


_STREAM_STEPS = (
    "assign_backward_streams",
    "assign_epilogue_copy_streams",
    "insert_backward_syncs",
    "sync_deallocations",
    "wrap_all_sync_nodes_with_control_deps",
)
"""Torch's passes over a joint graph that uses streams, in order; those that this torch lacks are skipped."""


def _prepared(
    module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any], decompositions: Any, keep_mutations: bool
) -> tuple[Any, ...]:
    """Parameters lifted, arguments flattened and made fake: (function, fakes, descriptions, config, mode, symbols)."""
    device = [None] if t.takes("prepare_aot_module_simplified", "boxed_forward_device_index") else []
    given = (module, tuple(args), kwargs, decompositions, keep_mutations, *device, False)
    prepared = t.prepare_aot_module_simplified(*given, flatten=True, force_non_lazy_backward_lowering=True)
    return (prepared[0], *prepared[4:9])


def _trace(function: Callable[..., Any], args: Any, described: Any, config: Any) -> tuple[Any, Any]:
    """The function as a graph of ATen operators, its placeholders and output described in `meta["desc"]`; and the
    arguments as they were before tracing, which may change their metadata."""
    before = t.tree_map_only(torch.Tensor, t.detach_and_copy_item_memo, args)
    return t.create_graph(function, args, described, aot_config=config), before


def _order_streams(gm: Any, metadata: Any, *, joint: bool) -> None:
    """Places streams and their waits as AOTAutograd does. Graphs of one stream are left as they are."""
    for name in _STREAM_STEPS if joint else ("assign_epilogue_copy_streams", "wrap_all_sync_nodes_with_control_deps"):
        t.optional(name, lambda _: None)(gm)
    t.optional("populate_fw_metadata_with_stream_indices", lambda *_: None)(gm, metadata)
    if joint:
        t.optional("extract_tangent_source_stack_traces", lambda *_: None)(gm, metadata)
