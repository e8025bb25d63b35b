"""The wrappers of the compiler: of Dynamo's call to a backend, AOT backends' compilers, Inductor's passes and compiler.

Also: of the backwards that the program's own compiled autograd captures and Dynamo compiles, as
`ca<K>_<frame>_<recompile>/dynamo`.

The backend gets the same graph and inputs; only the caches that would hide later stages are off while it runs. A
forward, backward or inference graph and its post-grad form belong to one compiler call. Compilers and partitioners of
AOT backends other than Inductor are wrapped where AOTAutograd receives them; those of Inductor pass there too and are
not wrapped again.

For example: `OutputGraph.call_user_compiler = call_user_compiler(OutputGraph.call_user_compiler)`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...dumps import kernels
from ...dumps.reading import LARGE_BYTES
from .. import torch_private as t
from ..live import roles, steps
from ..live.torch_state import is_a, is_fake
from . import why_hooks
from .flight import Flight, Graph, bypassed, cached_apart, here, in_flight, in_pass, level, note_backend
from .observe import instead_of, watch_callable, watch_inductor
from .session import Function, Session, hook

CODE = "compiled_autograd.txt"
"""File with torch's own graph of a backward, beside the Dynamo graph made from it."""
_ORIGIN = re.compile(r"in set_node_origin\n\s*(\S.*? \(NodeCall \d+\))")
_PART = re.compile(r"aot\d+_")
_LINE = re.compile(r'File "(<eval_with_key>[^"]*)", line \d+, in \w+\n\s*(\w+)(?:\s*:[^=]*)? = ')


class Capture:
    """A backward captured by compiled autograd. `origins`: node name -> autograd node; `calls`: node name -> (index,
    kind) of the hook that the node calls."""

    def __init__(self, gm: Any) -> None:
        self.module = gm
        self.origins: dict[str, str] = {}
        self.calls: dict[str, tuple[int, str]] = {}
        self.named: dict[int, str] = {}
        self.inputs: dict[Any, str] = {}
        parts: dict[str, str] = {}
        for node in gm.graph.nodes:
            if node.op != "call_function" or _is_size(node):  # a size node carries the stack of the input before it
                continue
            part = _PART.match(node.name)
            # operators inside a compiled part have no stack of their own
            origin = _origin(node) or parts.get(part[0] if part else "", "")
            if origin:
                self.origins[node.name] = origin
                parts.update({part[0]: origin} if part else {})
                if getattr(node.args[0] if node.args else None, "name", "") == "inputs":
                    self.inputs[node.args[1]] = origin
            kind = node.kwargs.get("hook_type")
            if kind and (index := _index(node.args[0])) is not None:
                self.calls[node.name] = index, str(kind)

    def place(self, name: str) -> dict[str, str]:
        """The autograd node and the hook that a node of the capture belongs to."""
        place = {"autograd_node": self.origins[name]} if name in self.origins else {}
        index, _ = self.calls.get(name, (None, ""))
        return {**place, "hook": self.named[index]} if index in self.named else place


_silent = SimpleNamespace(debug=lambda *_: None)
"""A logger without output: only with a logger set does torch compute why it captures again. It keeps no reference to
it."""
_reasons: dict[int, list[str]] = {}
_sizes: dict[int, dict[str, str]] = {}
_SIZE = re.compile(r"sizes\[\d+\]")


@hook
def enable(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """Switches compiled autograd on in torch's own context, after setting a silent verbose logger."""
    with session.guarded("compiled autograd"):
        t.set_verbose_logger(_silent)
    return original(*args, **kwargs)


@hook
def begin_capture(session: Session, original: Function, self: Any, *args: Any) -> Any:
    """begin_capture(inputs, sizes, scalars, origins, ...): remembers which autograd node each size comes from."""
    captured = original(self, *args)
    with session.guarded("compiled autograd"):
        _sizes[self.id] = {f"sizes[{index}]": f"{name} (NodeCall {at})" for index, (at, name) in enumerate(args[3][1])}
    return captured


@hook
def log_compile_reasons(session: Session, original: Function, self: Any, compile_reasons: list[str]) -> Any:
    """Records why torch captures again; torch says so after the capture began."""
    with session.guarded("compiled autograd"):
        own = f"!{self.id}: "  # torch may repeat the reasons of earlier captures
        _reasons[self.id] = [str(reason).removeprefix(own) for reason in compile_reasons if str(reason).startswith(own)]
    return original(self, compile_reasons)


@hook
def create_graph_module(session: Session, original: Function, self: Any, id: str) -> Any:
    """Records the capture as a module, after its passes ran."""
    gm = original(self, id)
    with session.guarded("compiled autograd"):
        # an instance with `record` is graphdbg's own, made only to look at the graph
        if not id.endswith("PreReordering") and not hasattr(self, "record"):
            session.captures[gm.forward.__code__.co_filename] = Capture(gm)
            reasons, sizes = _reasons.pop(self.id, []), _sizes.pop(self.id, {})
            named = {name: sizes[name] for reason in reasons for name in _SIZE.findall(reason) if name in sizes}
            why_hooks.journal(session, "capture", compile=f"ca{self.id}", reasons=reasons, sizes=named or None)
    return gm


def spelt_out(flight: Flight, gm: Any, scope: Mapping[str, Any] | None = None) -> Any:
    """Dynamo's graph of a captured backward in the form in which it is saved; any other graph unchanged. `scope`: the
    variables of the frame."""
    session = flight.session
    if not session.captures or not str(flight.compile_id).startswith("!"):
        return gm
    with session.guarded("compiled autograd"):
        from ..capture.compiled_autograd.steps import spelt_out as spelt

        capture = _called(session, scope or {})
        shown = spelt(gm, lambda node: _place(session, capture, node))
        if shown is not gm:
            shown.meta = {**gm.meta, "custom": {"compiled_autograd": _facts(capture)}} if capture else dict(gm.meta)
        return shown
    return gm


def save_code(session: Session, graph: str, scope: Mapping[str, Any]) -> None:
    """Saves torch's own graph of the backward beside the Dynamo graph, where Dynamo is compiling such a backward."""
    capture = _called(session, scope) if session.captures else None
    if capture is not None:
        with session.guarded(graph):
            session.writer().save_code(graph, {CODE: capture.module.print_readable(print_output=False)})


def _called(session: Session, scope: Mapping[str, Any]) -> Capture | None:
    """The capture whose frame is being compiled, its hooks named after those it was called with; None for other
    frames."""
    module = scope.get("self")
    capture = next((candidate for candidate in session.captures.values() if candidate.module is module), None)
    if capture is not None:
        for index, function in enumerate(scope.get("hooks") or ()):
            capture.named[index] = _name(function)
    return capture


def _place(session: Session, capture: Capture | None, node: Any) -> dict[str, str]:
    """The autograd node and hook of a node in Dynamo's graph."""
    whole = node.args[0] if node.op == "call_function" and node.args else None
    if getattr(whole, "name", "") == "l_inputs_" and capture is not None:
        return {"autograd_node": capture.inputs[node.args[1]]} if node.args[1] in capture.inputs else {}
    trace = node.meta.get("stack_trace") or ""
    line = _LINE.search(trace)
    if line and line[1] in session.captures:
        return session.captures[line[1]].place(line[2])
    return {"autograd_node": origin} if node.op != "placeholder" and (origin := _origin(node)) else {}


def _facts(capture: Capture) -> dict[str, Any]:
    return {
        "autograd_nodes": len(set(capture.origins.values())),
        "hooks": [
            {"hook": capture.named.get(index, f"hook {index}"), "kind": kind, "node": capture.origins.get(name, "")}
            for name, (index, kind) in capture.calls.items()
        ],
    }


def _origin(node: Any) -> str:
    match = _ORIGIN.search(node.meta.get("stack_trace") or "")
    return match[1] if match else ""


def _is_size(node: Any) -> bool:
    """Whether a node of a capture extracts a size, or unwraps one."""
    whole = node.args[0] if node.args else None
    taken = getattr(whole, "op", "") == "placeholder" and getattr(whole, "name", "") == "sizes"
    return taken or node.target is t.unwrap_maybe_dynamic_int


def _index(node: Any) -> int | None:
    index = node.args[1] if len(getattr(node, "args", ())) == 2 else None
    return index if isinstance(index, int) else None


def _name(function: Any) -> str:
    """The name of a hook: its function, file and line, where known."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    module = getattr(function, "__module__", None) or type(function).__module__
    name = f"{module}.{getattr(function, '__qualname__', None) or type(function).__qualname__}"
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else name


_JOINT_KWARGS = ("num_fwd_outputs", "static_lifetime_input_indices")
_COMPILERS = {"bw_compiler": "backward", "inference_compiler": "inference", "fw_compiler": "forward"}
_aot_calls = itertools.count(-1, -1)

_signature = functools.cache(inspect.signature)


@in_flight
def call_user_compiler(flight: Flight, original: Function, self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
    """OutputGraph.call_user_compiler(self, gm, example_inputs): the outermost call. All backends pass here."""
    session = flight.session
    graph = _of_dynamo(flight, self, gm)
    with bypassed(session, flight.name, "AOTAutograd", "the joint, forward, backward and inference graphs"):
        compiled = original(self, gm, *args, **kwargs)
    stepping = steps.compiled_into(self)
    if graph is None and not stepping:
        return compiled
    what = f"first run of {graph.id if graph else flight.name}"
    with session.guarded(what):
        if getattr(self, "package", None) is not None or is_a(compiled, "SerializableCallable"):
            session.note(f"{what} not observed: its compiled form is saved by a precompile package")
        else:
            plain = plain_callable(compiled)
            plain = instead_of(plain, steps.marking(plain, stepping)) if stepping else plain
            return plain if graph is None else (session.watch or watch_callable)(session, [graph], plain)
    return compiled


def _of_dynamo(flight: Flight, output_graph: Any, gm: Any) -> Graph | None:
    session = flight.session
    backend = getattr(output_graph, "compiler_fn", None)
    with session.guarded("roles of the inputs"):
        flight.options = backend_options(backend)
        fields = getattr(output_graph, "co_fields", None) or {}
        where = f"{Path(str(fields.get('co_filename', ''))).name}:{fields.get('co_firstlineno', '')}"
        session.functions[flight.name] = f"{fields.get('co_name', '')} {where}"
        flight.dynamo_roles = session.roles[flight.name] = roles.of_dynamo(gm)
    with session.guarded("names of the outputs"):
        flight.dynamo_outputs = session.outputs[flight.name] = roles.dynamo_outputs(output_graph, gm)
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None) or type(backend).__name__
    options = {"options": dict(flight.options)} if flight.options else {}
    scope = getattr(output_graph, "local_scope", None) or {}
    graph = flight.capture(spelt_out(flight, gm, scope), "dynamo", {"backend": str(name), **options})
    if graph is not None:
        save_code(session, graph.id, scope)
        with session.guarded(f"the backend of {graph.id}"):
            note_backend(session, backend)
        why_hooks.symbols(session, flight.name, graph)
    return graph


@hook
def aot_module_simplified(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """aot_module_simplified(mod, args, fw_compiler, bw_compiler, partition_fn, ..., inference_compiler)."""
    with session.guarded("AOT compilers"):
        bound = _signature(original).bind(*args, **kwargs)
        given = bound.arguments
        partition = given.get("partition_fn") or _signature(original).parameters["partition_fn"].default
        if not is_inductor_partition(partition):
            forward, number = given["fw_compiler"], next(_aot_calls)
            for argument, stage in _COMPILERS.items():
                given[argument] = _aot_compiler(given.get(argument) or forward, stage, number)
            given["partition_fn"] = in_flight(_aot_partition, updated=())(partition)
            args, kwargs = bound.args, bound.kwargs
    return original(*args, **kwargs)


def _aot_compiler(compiler: Any, stage: str, number: int) -> Any:
    function = getattr(compiler, "compiler_fn", compiler)
    wrapper = in_flight(functools.partial(_aot_compile, stage, number), updated=())(function)
    for name, value in getattr(function, "__dict__", {}).items():
        if name.startswith("_is_"):
            setattr(wrapper, name, value)
    return aot_compiler_like(compiler, wrapper)


def _aot_compile(
    stage: str, number: int, flight: Flight, original: Function, gm: Any, *args: Any, **kwargs: Any
) -> Any:
    session = flight.session
    flight.graph_id = number if flight.graph_id is None else flight.graph_id
    graph = flight.capture(gm, stage, flight.main, grows=True)
    here.aot.append(graph)
    try:
        with bypassed(session):
            compiled = original(gm, *args, **kwargs)
    finally:
        here.aot.pop()
    if graph is not None:
        with session.guarded(f"first run of {graph.id}"):
            return watch_callable(session, [graph], compiled)
    return compiled


def _aot_partition(flight: Flight, original: Function, gm: Any, joint_inputs: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(joint_inputs, (list, tuple)) or joint_inputs:
        _joint(flight, gm, kwargs)
    return original(gm, joint_inputs, *args, **kwargs)


def _joint(flight: Flight, gm: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Captures the joint graph before partitioning; returns its compiler's arguments."""
    facts = {**{key: kwargs[key] for key in _JOINT_KWARGS if key in kwargs}, **flight.main}
    flight.capture(gm, "joint", facts)
    return facts


@hook
def standalone_compile(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """standalone_compile(gm, example_inputs, ...): keeps its cache entries apart, so that its result can be saved."""
    with cached_apart(session):
        return original(*args, **kwargs)


@in_flight
def compile_fx_main(
    flight: Flight, original: Function, model: Any, example_inputs: Any, *args: Any, **kwargs: Any
) -> Any:
    """_compile_fx_main(model_, example_inputs_, ...): opens a flight for calls without Dynamo, and keeps what replays
    need."""
    with flight.session.guarded("outputs of the model"):
        flight.main = {"num_example_inputs": len(example_inputs)}
        if (graph := getattr(model, "graph", None)) is not None:
            flight.main["num_orig_model_outputs"] = len(t.tree_leaves(graph.output_node().args[0]))
    with bypassed(flight.session):
        return original(model, example_inputs, *args, **kwargs)


@in_pass("pre_grad")
def pre_grad_passes(flight: Flight, original: Function, *args: Any, **kwargs: Any) -> Any:
    """_recursive_pre_grad_passes(gm, example_inputs): its result is the pre_grad graph."""
    result = original(*args, **kwargs)
    flight.capture(spelt_out(flight, result), "pre_grad", flight.main)
    return result


@in_flight
def partition_fn(flight: Flight, original: Function, gm: Any, joint_inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """partition_fn(gm, joint_inputs, ...): its argument is the joint graph; joint passes run inside."""
    # AOTAutograd first partitions the subgraphs of invoke_subgraph, without inputs (2.13) or with a partitioner of
    # their own.
    empty = isinstance(joint_inputs, (list, tuple)) and not joint_inputs
    if empty or kwargs.get("partitioner_fn_override") is not None:
        flight.session.note(
            "joint graphs of nested regions are recorded inside the graphs that hold them, not by themselves"
        )
        with level("joint"):
            return original(gm, joint_inputs, *args, **kwargs)
    here.joints.append(_joint(flight, gm, kwargs))
    try:
        return original(gm, joint_inputs, *args, **kwargs)
    finally:
        here.joints.pop()


@in_pass("joint")
def joint_graph_passes(flight: Flight, original: Function, gm: Any, *args: Any, **kwargs: Any) -> Any:
    """_recursive_joint_graph_passes(gm, ...): inside the partitioner its result is the joint graph after the passes;
    elsewhere (inference) both its argument and its result are captured."""
    joint = here.joints[-1] if here.joints else None
    before = flight.capture(gm, "inference", flight.main, grows=True) if joint is None else None
    result = original(gm, *args, **kwargs)
    passed = flight.capture(result, "joint_passed", flight.main if joint is None else joint, grows=joint is None)
    if joint is None:
        flight.inference += [graph for graph in (before, passed) if graph is not None]
    return result


@in_flight
def compile_fx_inner(
    flight: Flight, original: Function, gm: Any, example_inputs: Any, *args: Any, **kwargs: Any
) -> Any:
    """_compile_fx_inner(gm, example_inputs, **kwargs): captures forward and backward, keeps code, watches the first
    run."""
    session = flight.session
    kind = "backward" if kwargs.get("is_backward") else "inference" if kwargs.get("is_inference") else "forward"
    facts: dict[str, Any] = {}
    with session.guarded("compile kwargs"):
        plain = {key: _plain(value) for key, value in kwargs.items() if key != "get_decomp_fn"}
        facts = {**plain, **tracing_facts(kind)}
    with session.guarded("example inputs"):
        restride(gm, example_inputs)
    graphs = _inner_graphs(flight, gm, kind, facts)
    here.inner.append((kind, facts))
    try:
        with bypassed(session, flight.name, "FX graph", f"post_grad_{kind}"):
            compiled = original(gm, example_inputs, *args, **kwargs)
    finally:
        here.inner.pop()
    _save_code(session, graphs, compiled)
    with session.guarded("first run"):
        return watch_inductor(session, graphs, compiled)
    return compiled


def _plain(value: Any) -> Any:
    """The value of an argument that Inductor boxed in an object with one attribute `value`."""
    return value.value if type(value).__name__ in ("BoxedBool", "BoxedDeviceIndex") else value


def _inner_graphs(flight: Flight, gm: Any, kind: str, facts: dict[str, Any]) -> list[Graph]:
    """The graphs that this call compiles: the inference graphs captured before its joint passes, else one captured
    now."""
    waiting = next((outer for outer in reversed(here.flights) if outer.inference), None)
    if kind == "inference" and waiting is not None:
        adopted, waiting.inference = waiting.inference, []
        return _adopt(flight, gm, adopted, facts)
    graph = here.aot[-1] if here.aot else None
    if graph is not None:
        flight.amend(graph, gm, facts)
    else:
        graph = flight.capture(gm, kind, facts)
    return [graph] if graph is not None else []


def _adopt(flight: Flight, gm: Any, adopted: list[Graph], facts: dict[str, Any]) -> list[Graph]:
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    same: list[Graph] = []
    for graph in adopted:
        for outer in here.flights:
            if graph in outer.open:
                outer.open.remove(graph)
        flight.open.append(graph)
        record = graph.record
        if record is not None and [node.name for node in record.graph.nodes if node.op == "placeholder"] == names:
            flight.amend(graph, gm, facts)
            same.append(graph)
    if not same:
        # freezing has turned parameters into constants: the inner compiler gets another graph
        frozen = flight.capture(gm, "joint_passed", facts)
        same = [frozen] if frozen is not None else []
    return same


@in_pass("post_grad")
def post_grad_passes(flight: Flight, original: Function, gm: Any, *args: Any, **kwargs: Any) -> Any:
    """_recursive_post_grad_passes(gm, is_inference), which works in place: afterwards gm is the post-grad graph."""
    result = original(gm, *args, **kwargs)
    if here.inner:
        kind, facts = here.inner[-1]
        flight.capture(gm, f"post_grad_{kind}", facts)
    return result


def _save_code(session: Session, graphs: list[Graph], compiled: Any) -> None:
    source = getattr(compiled, "source_code", None)
    if not isinstance(source, str) or not source:
        return
    with session.guarded("generated code"):
        # large code is split into kernels when it is read
        files = kernels.split(source) if len(source) < LARGE_BYTES else {kernels.WHOLE: source}
        for graph in graphs:
            save = functools.partial(session.writer().save_code, graph.id, files)
            if not session.waiting.postpone(graph.id, save):
                save()


def restride(gm: Any, example_inputs: Any) -> None:
    """Sets placeholders' fake values to the example inputs: a backward's input strides follow from the forward's
    layout, and AOTAutograd passes them only there. Inductor does the same a moment later."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if is_fake(value):
            node.meta["val"] = value


def tracing_facts(kind: str) -> dict[str, Any]:
    """The parts of AOTAutograd's metadata that Inductor reads while it compiles but that no argument carries."""
    context = t.loaded("TracingContext")
    tracing = context.try_get() if context is not None else None
    metadata = getattr(tracing, "fw_metadata", None)
    if metadata is None:
        return {}
    names = ("bw_donated_idxs",) if kind == "backward" else ("num_mutated_inp_runtime_indices", "static_input_indices")
    return {name: getattr(metadata, name) for name in names if getattr(metadata, name, None) is not None}


def aot_compiler_like(model: Any, compiler: Any) -> Any:
    """Wraps `compiler` in the class of `model`, by which AOTAutograd recognises cacheable compilers."""
    wrapper = t.loaded("SerializableAOTDispatchCompiler")
    if wrapper is not None and isinstance(model, wrapper):
        return wrapper(model.output_code_ty, compiler)
    return compiler


def is_inductor_partition(function: Any) -> bool:
    """Whether a partition function is Inductor's, whose own hooks see all of it."""
    return function is not None and function is t.loaded("partition_fn")


def backend_options(compiler_fn: Any) -> dict[str, Any]:
    """The Inductor options given to torch.compile, which its wrapper applies only while it compiles."""
    inner = [getattr(compiler_fn, name, None) for name in ("_torchdynamo_orig_backend", "_compiler_fn")]
    for candidate in (compiler_fn, *inner):
        options = getattr(candidate, "config", None)
        if isinstance(options, dict):
            return dict(options)
    return {}


def plain_callable(compiled: Any) -> Any:
    """What Dynamo would make of a compiled callable before wrapping it again: a lazy graph module's plain forward,
    recompiled now, without Dynamo's own `disable` wrapper, a second layer of which would cost every step. There are no
    public names for this."""
    lazy = t.loaded("LazyGraphModule")
    owner: Any = getattr(compiled, "__self__", None)
    if lazy is not None and isinstance(compiled, lazy):
        lazy.force_recompile(compiled)
    elif lazy is not None and isinstance(owner, lazy) and getattr(compiled, "__name__", "") == "_lazy_forward":
        lazy.force_recompile(owner)
        compiled = owner.forward
    while getattr(compiled, "_torchdynamo_wrapper_id", None) == id(compiled) and callable(
        getattr(compiled, "_torchdynamo_orig_callable", None)
    ):
        compiled = compiled._torchdynamo_orig_callable
    return compiled
