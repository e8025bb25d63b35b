# pyright: basic
"""Minifying with the caller's predicate, in the caller's process.

>>> minify_here(gm, inputs, lambda module, inputs: "mul" in module.code).nodes
4
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dumps.errors import UsageError
from .budget import Budget
from .engine import Engine
from .found import Event, Result
from .fxproblem import FxProblem
from .minified import Minified
from .problem import Candidate
from .search.outputs import drop_outputs
from .search.tiers import TIERS, gentle

if TYPE_CHECKING:
    from torch import fx


def minify_here(
    gm: fx.GraphModule,
    inputs: list[Any],
    predicate: Callable[..., Any],
    *,
    max_time: float | None = None,
    max_queries: int | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Minified:
    """Reduces nodes, inputs and outputs; the original is checked once. Exceptions of the predicate propagate."""
    from ..toolkit.values import input_bytes

    problem = FxProblem.of(gm, inputs, predicate)
    whole = (len(gm.graph.nodes), input_bytes(inputs))
    if not predicate(*problem.original()):
        raise UsageError("the graph does not fail", "the predicate is false for it", "check the predicate and the inputs")
    engine = Engine(problem, budget=Budget(max_time, max_queries), queries=1, on_event=on_event)
    result = search(engine, problem)
    live = problem.original() if result.best is None else problem.build(result.best)
    size = whole if result.answer is None else result.answer.size
    return Minified(
        result.queries, [(1, *whole), *result.history], None, *size, stopped=result.stopped, notes=result.notes,
        verdicts={verdict.value: count for verdict, count in result.verdicts.items()}, live=live, original=whole,
    )  # fmt: skip


def search(engine: Engine, problem: FxProblem, max_granularity: int | None = None) -> Result:
    """The node search, then the outputs of what it found."""

    def outputs(engine: Engine, state: Candidate) -> Candidate:
        if engine.best is None:
            return state
        returned, loose = problem.outputs(engine.best)
        return drop_outputs(engine, engine.best, returned, loose)

    tiers = TIERS if max_granularity is None else gentle(max_granularity)
    if problem.size == 0:
        return engine.result()
    return engine.run([*tiers, ("outputs", outputs)], Candidate.of(range(problem.size)))
