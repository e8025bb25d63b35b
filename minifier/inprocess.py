# pyright: basic
"""Minifying with the caller's predicate, in the caller's process: nodes and outputs, then what the passes change.

Settings and the stage are the caller's, and stay as they are.

>>> minify_here(gm, inputs, lambda module, inputs: "mul" in module.code).nodes
4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..dumps.errors import UsageError
from ..toolkit.verdict import Verdict
from .budget import Budget
from .engine import Engine, Step
from .found import Event, Result
from .fxproblem import FxProblem
from .minified import Minified
from .passes import NAMES, PLAINER
from .problem import Candidate
from .search.edits import exhaust
from .search.outputs import drop_outputs
from .search.tiers import TIERS, gentle

if TYPE_CHECKING:
    from torch import fx

AXES = tuple(name for name in NAMES if name not in ("switches", "program"))
"""Passes that need no process of their own."""


def minify_here(
    gm: fx.GraphModule,
    inputs: list[Any],
    predicate: Callable[..., Any],
    *,
    max_time: float | None = None,
    max_queries: int | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Minified:
    """Reduces nodes, outputs, sizes, values and the rest; the original is checked once.

    Exceptions of the predicate propagate, but of a case whose nodes failed before: that change is left out.
    """
    from ..toolkit.values import input_bytes

    problem = FxProblem.of(gm, inputs, predicate)
    whole = (len(gm.graph.nodes), input_bytes(inputs))
    if not predicate(*problem.original()):
        raise UsageError("the graph does not fail", "the predicate is false for it", "check the predicate and the inputs")
    engine = Engine(problem, budget=Budget(max_time, max_queries), queries=1, on_event=on_event)
    result = search(engine, problem, axes=AXES)
    live = problem.original() if result.best is None else problem.build(result.best)
    size = whole if result.answer is None else result.answer.size
    return Minified(
        result.queries, [(1, *whole), *result.history], None, *size, stopped=result.stopped, notes=result.notes,
        verdicts={verdict.value: count for verdict, count in result.verdicts.items()}, live=live, original=whole,
        record=Verdict("fails", reason="the predicate is true for it"),
    )  # fmt: skip


def search(engine: Engine, problem: FxProblem, max_granularity: int | None = None, axes: Sequence[str] = ()) -> Result:
    """The node search, then the outputs of what it found, then the passes named by `axes`."""

    def outputs(engine: Engine, state: Candidate) -> Candidate:
        if engine.best is None:
            return state
        returned, loose = problem.outputs(engine.best)
        return drop_outputs(engine, engine.best, returned, loose)

    def axis(name: str) -> Step:
        def step(engine: Engine, state: Candidate) -> Candidate:
            state = engine.best or Candidate.of(range(problem.size))
            return exhaust(engine, state, lambda case: problem.propose(name, case), plainer=name in PLAINER)

        return step

    tiers = TIERS if max_granularity is None else gentle(max_granularity)
    if problem.size == 0:
        return engine.result()
    steps = [*tiers, ("outputs", outputs), *((name, axis(name)) for name in axes)]
    return engine.run(steps, Candidate.of(range(problem.size)))
