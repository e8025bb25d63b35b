"""Wrappers around Inductor: pre-grad, joint and post-grad passes, the partitioner, the inner compiler.

A forward, backward or inference graph and its post-grad form share one compiler call, kept per thread. Passes recurse into
subgraphs of higher-order operators; only the outermost call is recorded, which holds those subgraphs.

>>> compile_fx.partition_fn = partition_fn(compile_fx.partition_fn)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...dumps import kernels
from ...dumps.compressed import LARGE_BYTES
from . import roles
from .caches import bypassed
from .flight import Flight, Graph, current, flying, here, level
from .live_torch import counter, is_fake, tracing_facts
from .observe import watch_inductor
from .session import Session, active

_JOINT_KWARGS = ("num_fwd_outputs", "static_lifetime_input_indices")
_NOT_KEPT = ("get_decomp_fn",)
_OUTPUT_META = ("user_visible_output_idxs",)


def compile_fx_main(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps _compile_fx_main(model_, example_inputs_, ...): frames calls made without Dynamo, and keeps what replays need."""

    @functools.wraps(original)
    def wrapper(model: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(model, example_inputs, *args, **kwargs)
        with flying(session) as flight, bypassed(session):
            with session.guarded("outputs of the model"):
                flight.main = {"num_example_inputs": len(example_inputs), **_model_outputs(model)}
            return original(model, example_inputs, *args, **kwargs)

    return wrapper


def _model_outputs(model: Any) -> dict[str, Any]:
    graph = getattr(model, "graph", None)
    if graph is None:
        return {}
    found: list[Any] = []
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    stack = [output.args[0]]
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple)):
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        else:
            found.append(item)
    return {"num_orig_model_outputs": len(found)}


def pre_grad_passes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps _recursive_pre_grad_passes(gm, example_inputs): its result is the pre_grad graph."""

    @functools.wraps(original)
    def wrapper(gm: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(gm, *args, **kwargs)
        with level("pre_grad") as depth:
            result = original(gm, *args, **kwargs)
        if depth == 0:
            flight = current(session)
            if flight is not None:
                flight.capture(result, "pre_grad", flight.main, roles=_pre_grad_roles(result, flight))
        return result

    return wrapper


def _pre_grad_roles(gm: Any, flight: Flight) -> Any:
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    return flight.dynamo_roles if names == [role.name for role in flight.dynamo_roles] else None


def partition_fn(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps partition_fn(gm, joint_inputs, ...): its argument is the joint graph; joint passes run inside."""

    @functools.wraps(original)
    def wrapper(gm: Any, joint_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(gm, joint_inputs, *args, **kwargs)
        if _is_subgraph(joint_inputs, kwargs):
            session.note("joint graphs of nested regions are recorded inside the graphs that hold them, not by themselves")
            with level("joint"):
                return original(gm, joint_inputs, *args, **kwargs)
        with flying(session) as flight:
            facts = {**{key: kwargs[key] for key in _JOINT_KWARGS if key in kwargs}, **flight.main}
            flight.capture(gm, "joint", facts, roles=_aot_roles(session, flight, gm, "joint"))
            here.joints.append(facts)
            try:
                return original(gm, joint_inputs, *args, **kwargs)
            finally:
                here.joints.pop()

    return wrapper


def _is_subgraph(joint_inputs: Any, kwargs: dict[str, Any]) -> bool:
    """AOTAutograd partitions the subgraphs of invoke_subgraph first, without inputs (2.13) or with a partitioner of their own."""
    empty = isinstance(joint_inputs, (list, tuple)) and not joint_inputs
    return empty or kwargs.get("partitioner_fn_override") is not None


def joint_graph_passes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps _recursive_joint_graph_passes(gm, ...): inside the partitioner its result is the joint graph after the passes;
    elsewhere its argument is the inference graph."""

    @functools.wraps(original)
    def wrapper(gm: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(gm, *args, **kwargs)
        flight = current(session)
        with level("joint") as depth:
            if depth > 0 or flight is None:
                return original(gm, *args, **kwargs)
            if not here.joints:
                inference = flight.capture(gm, "inference", flight.main, roles=_aot_roles(session, flight, gm, "inference"))
                if inference is not None:
                    flight.inference.append(inference)
            result = original(gm, *args, **kwargs)
        stage_roles = _aot_roles(session, flight, result, "joint_passed")
        passed = flight.capture(result, "joint_passed", here.joints[-1] if here.joints else flight.main, roles=stage_roles)
        if not here.joints and passed is not None:
            flight.inference.append(passed)
        return result

    return wrapper


def compile_fx_inner(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps _compile_fx_inner(gm, example_inputs, **kwargs): captures forward and backward, keeps code, watches the first run."""

    @functools.wraps(original)
    def wrapper(gm: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(gm, example_inputs, *args, **kwargs)
        with flying(session, graph_id=kwargs.get("graph_id")) as flight:
            kind = "backward" if kwargs.get("is_backward") else "inference" if kwargs.get("is_inference") else "forward"
            facts: dict[str, Any] = {}
            with session.guarded("compile kwargs"):
                facts = {**{key: _plain(value) for key, value in kwargs.items() if key not in _NOT_KEPT}, **tracing_facts(kind)}
            with session.guarded("example inputs"):
                _restride(gm, example_inputs)
            graphs = _inner_graphs(session, flight, gm, kind, facts)
            here.inner.append((kind, facts))
            hits = counter("inductor", "fxgraph_cache_hit")
            try:
                with bypassed(session):
                    compiled = original(gm, example_inputs, *args, **kwargs)
            finally:
                here.inner.pop()
            if counter("inductor", "fxgraph_cache_hit") > hits:
                session.hidden(flight.name, f"post_grad_{kind}", "the FX graph cache")
            _save_code(session, graphs, compiled)
        with session.guarded("first run"):
            return watch_inductor(session, graphs, compiled)
        return compiled

    return wrapper


def _restride(gm: Any, example_inputs: Any) -> None:
    """Gives placeholders the values that are compiled for: a forward's own layout decides the strides of what a backward is
    given, which AOTAutograd tells in the example inputs alone. Inductor does the same a moment later."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if is_fake(value):
            node.meta["val"] = value


def _inner_graphs(session: Session, flight: Flight, gm: Any, kind: str, facts: dict[str, Any]) -> list[Graph]:
    """The graphs that this call compiles: captured now, or the inference graphs captured before its joint passes."""
    waiting = next((outer for outer in reversed(here.flights) if outer.inference), None)
    if kind == "inference" and waiting is not None:
        adopted, waiting.inference = waiting.inference, []
        return _adopt(session, flight, gm, adopted, facts)
    if here.aot and here.aot[-1] is not None:
        graph = here.aot[-1]
        flight.amend(graph, facts, _output_meta(gm))
        return [graph]
    graph = flight.capture(gm, kind, facts, roles=_aot_roles(session, flight, gm, kind))
    return [graph] if graph is not None else []


def _adopt(session: Session, flight: Flight, gm: Any, adopted: list[Graph], facts: dict[str, Any]) -> list[Graph]:
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    same: list[Graph] = []
    for graph in adopted:
        for outer in here.flights:
            if graph in outer.open:
                outer.open.remove(graph)
        flight.open.append(graph)
        record = graph.record
        if record is not None and [node.name for node in record.graph.nodes if node.op == "placeholder"] == names:
            flight.amend(graph, facts, _output_meta(gm))
            same.append(graph)
    if not same:
        # Freezing turns parameters into constants: another graph, which is what the inner compiler sees.
        frozen = flight.capture(gm, "joint_passed", facts, roles=_aot_roles(session, flight, gm, "joint_passed"))
        same = [frozen] if frozen is not None else []
    return same


def post_grad_passes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps _recursive_post_grad_passes(gm, is_inference), which works in place: afterwards gm is the post-grad graph."""

    @functools.wraps(original)
    def wrapper(gm: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(gm, *args, **kwargs)
        with level("post_grad") as depth:
            result = original(gm, *args, **kwargs)
        flight = current(session)
        if depth == 0 and flight is not None and here.inner:
            kind, facts = here.inner[-1]
            stage = f"post_grad_{kind}"
            flight.capture(gm, stage, facts, roles=_aot_roles(session, flight, gm, stage))
        return result

    return wrapper


def _aot_roles(session: Session, flight: Flight, gm: Any, stage: str) -> Any:
    with session.guarded("roles of the inputs"):
        return roles.of_aot(gm, flight.dynamo_roles or session.roles.get(flight.name, []), stage)
    return None


def _output_meta(gm: Any) -> dict[str, Any]:
    output = next((node for node in reversed(gm.graph.nodes) if node.op == "output"), None)
    return {key: output.meta[key] for key in _OUTPUT_META if output is not None and key in output.meta}


def _plain(value: Any) -> Any:
    """Inductor boxes some arguments in an object with one `value`."""
    return value.value if type(value).__name__ in ("BoxedBool", "BoxedDeviceIndex") else value


def _save_code(session: Session, graphs: list[Graph], compiled: Any) -> None:
    source = getattr(compiled, "source_code", None)
    if not isinstance(source, str) or not source:
        return
    with session.guarded("generated code"):
        files = kernels.split(source) if len(source) < LARGE_BYTES else {kernels.WHOLE: source}  # large: told apart when read
        for graph in graphs:
            if not session.waiting.postpone(graph.id, functools.partial(session.writer().save_code, graph.id, files)):
                session.writer().save_code(graph.id, files)
