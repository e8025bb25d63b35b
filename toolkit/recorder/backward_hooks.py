"""Backwards of scripts that compile nothing: `graphdbg dump --compiled-autograd`.

Every top-level call of autograd's engine passes here. A new one is recorded as `ca<K>_0/compiled_autograd`: inputs as
the policy wants them, before anything writes to them; the graph when its first run ended, with its hooks and passes by
name. Until backwards repeat themselves anomaly mode is on (without its NaN checks), which is how autograd remembers the
lines of the forward. Changes no gradient and never raises into the recorded program.

For example: `watch(session)`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from ...dumps.wording import counted
from .. import torch_private as t
from ..live.torch_state import ambient, undisturbed
from ..torch_private import importing
from .flight import Flight, Graph, failure_fields, flying, keep_sources
from .observe import WHOLE
from .session import Function, Session, hook, wrap

if TYPE_CHECKING:
    from ...dumps.schema import InputRecord
    from ..capture.compiled_autograd.capturer import Backward

STAGE = "compiled_autograd"
QUIET = 3
"""After this many backwards without a new one, forward lines are no longer kept."""


def watch(session: Session) -> None:
    """Records the backwards of this process into the session from now on, or as soon as torch is imported."""
    importing.watch({"torch.autograd": lambda _: _install(session)})


def _install(session: Session) -> None:
    with session.guarded("compiled autograd"):
        session.backwards = Backwards(session)
        for name in ("engine_call", "graph_engine_call"):
            wrap(*t.home(name), engine_run_backward)


@hook
def engine_run_backward(session: Session, original: Function, t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps a top-level call of autograd's engine."""
    capturer = session.backwards.capturer() if session.backwards is not None else None
    if capturer is None:
        return original(t_outputs, *args, **kwargs)
    return capturer.backward(original, t_outputs, *args, **kwargs)


class Backwards:
    """One session's backwards in this process."""

    def __init__(self, session: Session) -> None:
        import torch

        self.session = session
        self._capturer: Any = None
        self._inputs: dict[str, InputRecord] = {}
        self._start = 0.0
        self._ambient: Any = None
        self._graph: Graph | None = None
        self._noting_lines = False
        self._lock = threading.Lock()
        if session.wants(STAGE) and not torch.is_anomaly_enabled():
            torch.autograd.set_detect_anomaly(True, check_nan=False)
            self._noting_lines = True

    def capturer(self) -> Any:
        """The capturer for the next backward; None when it is not recorded."""
        session = self.session
        if not session.wants(STAGE) or session.waiting.now:
            return None
        with self._lock, session.guarded("compiled autograd"):
            if self._capturer is None:
                from ..capture.compiled_autograd.capturer import Capturer

                self._capturer = Capturer(self._made, begun=self._begun, kept=self._kept)
            self._report_left_out()
            if self._capturer.quiet >= QUIET:
                self._no_more_lines()
        return self._capturer

    def stop(self) -> None:
        """Stops keeping forward lines, and reports what was left out."""
        self._no_more_lines()
        if self._capturer is not None:
            self._report_left_out()

    def _no_more_lines(self) -> None:
        import torch

        # if the program changed the mode meanwhile, it stays as it is
        if self._noting_lines and torch.is_anomaly_enabled() and not torch.is_anomaly_check_nan_enabled():
            torch.autograd.set_detect_anomaly(False)
            self._noting_lines = False

    def _begun(self, number: int, captured: Any) -> None:
        """Writes torch's own graph of a new backward before it runs, in case the run does not end."""
        import torch

        self._inputs, self._graph = {}, None
        session, name = self.session, f"!{number}"
        with session.guarded(f"{name}/{STAGE}"), torch.no_grad(), flying(session, compile_id=name) as flight:
            self._start = time.perf_counter()
            self._ambient = ambient(rng=session.options.inputs in WHOLE)
            if captured is not None and (graph := flight.capture(captured, STAGE, settle=False)) is not None:
                self._graph = graph
                session.event("running", graph.id)

    def _kept(self, name: str, value: Any) -> None:
        policy = self.session.options.inputs
        if policy == "none":
            return
        with self.session.guarded(f"input {name} of a backward"):
            from ...dumps import live
            from ...dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord

            node = NodeRecord(name=name, op="placeholder", target=name)
            record = GraphRecord(format=FORMAT, id="", stage=STAGE, graph=GraphBody(nodes=[node]))
            with undisturbed():
                kept = "index" if policy == "last" else policy
                seen = live.observe(record, [value.detach()], kept, self.session.writer().tensors)
            self._inputs[name] = seen.inputs[0]

    def _made(self, backward: Backward) -> None:
        import torch

        session = self.session
        seconds = time.perf_counter() - self._start
        name = f"!{backward.number}"
        with session.guarded(f"{name}/{STAGE}"), torch.no_grad(), flying(session, compile_id=name) as flight:
            backward.module.meta["custom"] = {"compiled_autograd": _facts(backward)}
            graph = self._graph
            if graph is not None:
                self._replace(flight, graph, backward)
            else:
                graph = flight.capture(backward.module, STAGE, roles=backward.inputs_described)
                if graph is None:
                    return
                flight.settle(None)
                session.event("running", graph.id)
            self._save_inputs(graph, backward)
            nodes = len(backward.module.graph.nodes)
            session.event("compiled", graph.id, nodes=nodes, seconds=round(seconds, 6))
            if backward.error is not None:
                session.event("failed", graph.id, at="run", **failure_fields(backward.error, STAGE))
            else:
                session.event("ran", graph.id, run_seconds=round(seconds, 6))
            if backward.captured is not None:
                text = backward.captured.print_readable(print_output=False)
                session.writer().save_code(graph.id, {"compiled_autograd.txt": text})
            if backward.reason:
                self._note(graph, f"recorded again: {backward.reason}")
            if backward.uncaptured:
                self._note(graph, f"torch's compiled autograd does not take this backward: {backward.uncaptured}")
            if backward.shared:
                names = ", ".join(backward.shared[:6])
                self._note(
                    graph, f"{names} share memory that the backward writes to: a replay keeps them apart and may differ"
                )
            if backward.fixed:
                self._note(graph, f"{counted(backward.fixed, 'number')} read from tensors and fixed in the graph")

    def _note(self, graph: Graph, message: str) -> None:
        self.session.event("note", graph.id, message=message)

    def _replace(self, flight: Flight, graph: Graph, backward: Backward) -> None:
        """Replaces the saved torch graph by the graph of the recorded backward."""
        if graph.record is not None:
            roles = backward.inputs_described
            record = flight.encoded(backward.module, graph.id, STAGE, None, roles, graph.record.ambient)
            writer = self.session.writer()
            writer.amend(record)
            keep_sources(writer, record)

    def _save_inputs(self, graph: Graph, backward: Backward) -> None:
        from ...dumps.schema import FORMAT, InputsRecord

        if self.session.options.inputs == "none":
            return
        names = [node.name for node in backward.module.graph.find_nodes(op="placeholder")]
        items = [self._inputs[name] for name in names if name in self._inputs]
        if len(items) < len(names):
            return
        seen = InputsRecord(
            format=FORMAT, policy=self.session.options.inputs, inputs=items, ambient=self._ambient, execution=1
        )
        self.session.writer().save_inputs(graph.id, seen)

    def _report_left_out(self) -> None:
        for reason in self._capturer.left_out:
            self.session.note(f"a backward was not recorded: {reason}")


def _facts(backward: Backward) -> dict[str, Any]:
    """The facts of the capture that are shown beside the graph: gradients by place, autograd nodes, what each pass
    did."""
    return {
        "outputs": backward.outputs,
        "hooks": backward.hooks,
        "autograd_nodes": len(backward.nodes),
        "forward": [list(row) for row in backward.forward],
        "passes": [
            {"name": record.name, "nodes": record.nodes, "moved": record.moved, "removed": record.removed}
            for record in backward.passes
        ],
    }
