"""The outermost wrapper: Dynamo hands a graph to the user's backend. All backends pass here.

The backend gets the same graph and inputs; only the caches that would hide later stages are off while it runs.

>>> OutputGraph.call_user_compiler = call_user_compiler(OutputGraph.call_user_compiler)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import roles, unsaved, why_hooks
from .caches import bypassed
from .flight import Flight, Graph, flying
from .live_torch import backend_options, counter, forced_lazy_graph_off, is_serializable, undisabled
from .observe import watch_callable
from .session import Session, active


def call_user_compiler(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps OutputGraph.call_user_compiler(self, gm, example_inputs)."""

    @functools.wraps(original)
    def wrapper(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None:
            return original(self, gm, *args, **kwargs)
        with flying(session) as flight:
            graph = _capture(flight, self, gm)
            hits = counter("aot_autograd", "autograd_cache_hit")
            with bypassed(session):
                compiled = original(self, gm, *args, **kwargs)
            if counter("aot_autograd", "autograd_cache_hit") > hits:
                session.hidden(flight.name, "the joint, forward, backward and inference graphs", "the AOTAutograd cache")
        return _watched(session, self, graph, compiled)

    return wrapper


def _capture(flight: Flight, output_graph: Any, gm: Any) -> Graph | None:
    session = flight.session
    with session.guarded("roles of the inputs"):
        flight.options = backend_options(getattr(output_graph, "compiler_fn", None))
        fields = getattr(output_graph, "co_fields", None) or {}
        where = f"{Path(str(fields.get('co_filename', ''))).name}:{fields.get('co_firstlineno', '')}"
        session.functions[flight.name] = f"{fields.get('co_name', '')} {where}"
        flight.dynamo_roles = session.roles[flight.name] = roles.of_dynamo(gm)
    backend = getattr(output_graph, "compiler_fn", None)
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None) or type(backend).__name__
    graph = flight.capture(gm, "dynamo", {"backend": str(name), **_options(flight)}, roles=flight.dynamo_roles)
    if graph is not None:
        with session.guarded(f"the backend of {graph.id}"):
            unsaved.note_backend(session, backend)
    why_hooks.symbols(session, flight.name, graph)
    return graph


def _options(flight: Flight) -> dict[str, Any]:
    return {"options": dict(flight.options)} if flight.options else {}


def _watched(session: Session, output_graph: Any, graph: Graph | None, compiled: Any) -> Any:
    if graph is None:
        return compiled
    with session.guarded(f"first run of {graph.id}"):
        if getattr(output_graph, "package", None) is not None or is_serializable(compiled):
            session.note(f"first run of {graph.id} not observed: its compiled form is saved by a precompile package")
            return compiled
        return watch_callable(session, [graph], undisabled(forced_lazy_graph_off(compiled)))
    return compiled
