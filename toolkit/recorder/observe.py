"""Watches the first real run of a compiled graph: records its inputs, and whether it ran or how it failed.

Inputs are looked at before the call, so before any mutation. After the first run the compiled graph is as torch made
it:
Inductor's result gets its own callable back (no cost per step), others keep a closure that costs one branch. Holds no
tensor.
With the policy `all` every execution is watched; the inputs of the second lie beside inputs.json as inputs.2.json, and
so on.
With `last` and `--when` every execution is watched too, and `hold` copies its inputs.

For example: `watch_inductor(session, graph, compiled_fx_graph)`.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...dumps.schema import GraphBody, GraphRecord
from ..live.torch_state import ambient, is_a, is_capturing, is_fake, undisturbed
from ..torch_private.unseen import passed_over, seen, unseen
from .flight import Graph, failure_fields
from .session import Session

WHOLE = ("first", "all")


class Watch:
    """Watches the executions of one compiled callable. `graphs`: those that it is compiled from; an inference graph and
    its form after the joint passes run as one."""

    def __init__(self, session: Session, graphs: Sequence[Graph]) -> None:
        self.session = session
        records = [graph.record for graph in graphs if graph.record is not None]
        self.graphs = [(record.id, record.stage, inputs_only(record)) for record in records]
        self.hold = session.hold([(local, stage) for local, stage, _ in self.graphs], records[0]) if records else None
        self.every = session.options.inputs == "all" or self.hold is not None
        self._lock = threading.Lock()
        self._count = 0
        for graph in graphs:
            graph.watched = True
            graph.record = None

    def begin(self, inputs: Sequence[Any]) -> int:
        """Returns the number of this execution; 0 where it is not watched: not wanted, with fake tensors, or in a CUDA
        graph capture."""
        if self.session.waiting.now or any(map(is_fake, inputs)) or is_capturing():
            return 0
        if self.hold is not None and self.hold.holder.closed:
            return 0
        with self._lock:
            self._count += 1
            return self._count if self._count == 1 or self.every else 0

    def call(self, number: int, function: Callable[..., Any], inputs: Sequence[Any], arguments: tuple[Any, ...]) -> Any:
        """Calls `function(*arguments)`. Keeps the inputs before the call; journals how the first run ended."""
        session, hold = self.session, self.hold
        if number == 1:
            session.release(self.graphs[0][0])
        for local, _, record in self.graphs:
            with session.guarded(f"inputs of {local}"):
                self._observe(number, local, record, inputs)
            if number == 1:
                session.event("running", local)
        execution = hold.before(number, inputs) if hold is not None else None
        del inputs
        if number > 1 and execution is None:
            return seen(function, *arguments)
        start = time.perf_counter()
        try:
            result = seen(function, *arguments)
        except BaseException as error:
            if number == 1:
                for local, stage, _ in self.graphs:
                    session.event("failed", local, at="run", **failure_fields(error, stage))
            if hold is not None:
                hold.failed(error)
            raise
        finally:
            del arguments
        if number == 1:
            for local, _, _ in self.graphs:
                session.event("ran", local, run_seconds=round(time.perf_counter() - start, 6))
        if hold is not None and execution is not None:
            hold.after(execution, result)
        return result

    def _observe(self, number: int, local: str, record: GraphRecord, inputs: Sequence[Any]) -> None:
        policy = self.session.options.inputs
        if policy != "none" and (number == 1 or policy == "all"):
            # with "last", the first execution's layout, in case the last copy is torn
            keep_inputs(self.session, number, local, record, inputs, "index" if policy == "last" else policy)


def keep_inputs(
    session: Session, number: int, local: str, record: GraphRecord, inputs: Sequence[Any], policy: str
) -> None:
    """Saves an execution's inputs beside the graph, as the policy says, with the ambient state."""
    from ...dumps import live

    writer = session.writer()
    state = ambient(rng=policy in WHOLE)
    with undisturbed():
        seen = live.observe(record, list(inputs), policy, writer.tensors)
    seen.ambient, seen.execution = state, number
    writer.save_inputs(local, seen, number=number if number > 1 else 0)


def watch_inductor(session: Session, graphs: Sequence[Graph], compiled: Any) -> Any:
    """Watches the first run of the inner compiler's result; returns the object to pass on in its place."""
    graphs = [graph for graph in graphs if not graph.watched]
    if not graphs:
        return compiled
    if getattr(compiled, "current_callable", None) is None:
        packaged = is_a(compiled, "CompiledAOTI")  # and not called
        return compiled if packaged else watch_callable(session, graphs, compiled)
    watch = Watch(session, graphs)
    original = compiled.current_callable
    weak = weakref.ref(compiled)

    @unseen
    def current_callable(inputs: list[Any]) -> Any:
        number = watch.begin(inputs)
        if number == 0:
            return seen(original, inputs)
        owner = weak()
        if owner is not None and owner.current_callable is current_callable and not watch.every:
            owner.current_callable = original
        return watch.call(number, original, inputs, (inputs,))

    compiled.current_callable = current_callable
    return compiled


def watch_callable(session: Session, graphs: Sequence[Graph], compiled: Any) -> Any:
    """Watches the first run of any callable, boxed (one list) or not; later calls cost one branch."""
    graphs = [graph for graph in graphs if not graph.watched]
    if not graphs or not callable(compiled):
        return compiled
    watch: Watch | None = Watch(session, graphs)
    takes = len(watch.graphs[0][2].graph.nodes) if watch.graphs else 0

    def run(*arguments: Any, **keywords: Any) -> Any:
        return compiled(*arguments, **keywords) if watch is None or keywords else watched(watch, arguments)

    @unseen
    def watched(watching: Watch, arguments: tuple[Any, ...]) -> Any:
        nonlocal watch
        boxed = len(arguments) == 1 and isinstance(arguments[0], list)
        # or one input is a list
        inputs = arguments[0] if boxed and (takes != 1 or len(arguments[0]) == 1) else arguments
        number = watching.begin(inputs)
        if number == 0:
            return seen(compiled, *arguments)
        if not watching.every:
            watch = None
        return watching.call(number, compiled, inputs, arguments)

    return instead_of(compiled, run)


def instead_of(compiled: Any, run: Any) -> Any:
    """Copies the attributes of a compiled callable to `run`, which calls it; returns `run`."""
    functools.update_wrapper(run, compiled, updated=("__dict__",) if hasattr(compiled, "__code__") else ())
    for name in [name for name in vars(run) if name.startswith("_torchdynamo")]:
        delattr(run, name)  # they mark a wrapper of Dynamo's own, which older versions would unwrap
    if getattr(compiled, "_boxed_call", False):
        run._boxed_call = True  # type: ignore[attr-defined]
    passed_over(run)
    return run


def inputs_only(record: GraphRecord) -> GraphRecord:
    """The parts of a record that identify its inputs."""
    placeholders = [node for node in record.graph.nodes if node.op == "placeholder"]
    graph = GraphBody(nodes=placeholders)
    return msgspec.structs.replace(record, graph=graph, guards=[], strings=[], config={}, compile_kwargs={})
