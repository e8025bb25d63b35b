# pyright: basic
"""At which node of the graph was the compiler when it raised? Read from the frames of the exception, with no further compile.

Inductor's lowering, its scheduler and its code generators hold the fx node they are at, or an object that knows the nodes it came
from, in a local variable; the innermost such frame is the answer. Where no frame tells, the operator in the message is looked up.
Only reads.

>>> try: compile_it()
... except Exception as error: raised_at(error, gm)
['mul_31']
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from torch import fx

from ..normalise import lowering_target

_LOCALS = ("n", "node", "fx_node", "current_node", "buffer", "scheduler_node", "snode")
_DEPTH = 20


def raised_at(error: BaseException, gm: fx.GraphModule) -> list[str]:
    """The names of the nodes of `gm` that were being compiled, innermost knowledge first; empty where nothing tells."""
    there = {node.name for node in gm.graph.nodes}
    for one in reversed(list(_chain(error))):
        for frame in reversed(list(_frames(one.__traceback__))):
            known = [name for key in _LOCALS if key in frame for name in _names(frame[key])]
            found = [name for name in dict.fromkeys(known) if name in there]
            if found:
                return found
    for one in _chain(error):
        if target := lowering_target(str(one)):
            return [node.name for node in gm.graph.nodes if str(node.target) == target]
    return []


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it wraps, outermost first."""
    current: BaseException | None = error
    for _ in range(_DEPTH):
        if current is None:
            return
        yield current
        inner = getattr(current, "inner_exception", None)
        current = (
            inner
            if isinstance(inner, BaseException) and inner is not current
            else current.__cause__ or current.__context__
        )


def _frames(traceback: TracebackType | None) -> Iterator[dict[str, Any]]:
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next


def _names(value: Any) -> list[str]:
    if isinstance(value, fx.Node):
        return [value.name] if value.op not in ("placeholder", "output") else []
    for holder in (value, getattr(value, "node", None)):
        if isinstance(one := getattr(holder, "origin_node", None), fx.Node):
            return [one.name]
        origins = getattr(holder, "origins", None)
        if isinstance(origins, (set, frozenset)) or hasattr(origins, "__iter__"):
            found = [one.name for one in origins if isinstance(one, fx.Node)]  # type: ignore[union-attr]
            if found:
                return found
    return []
