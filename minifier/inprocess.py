"""Minifying with the caller's predicate, in the caller's process: nodes and outputs, then what the passes change.

Settings and the stage are the caller's, and stay as they are.

>>> problem = FxProblem.of(gm, inputs, lambda module, inputs: "mul" in module.code)
>>> problem.test(Candidate.of([2])).verdict
<Ruling.SAME: 'same'>
>>> minify_here(gm, inputs, lambda module, inputs: "mul" in module.code).nodes
3
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dumps.errors import UsageError
from ..toolkit.cutting.atoms import fake_of, symbols_in
from ..toolkit.cutting.eager_values import record_values
from ..toolkit.cutting.subgraph import Atoms, build, candidate_spec, output_nodes
from ..toolkit.live.case import Live
from ..toolkit.live.eager import clone_inputs, copy_graph
from ..toolkit.live.spec import ReplaySpec
from ..toolkit.live.values import Values, input_bytes
from ..toolkit.verdicts.verdict import Verdict
from .budget import SearchLimits
from .engine import Engine, Step
from .events import Follow
from .minified import Minified, Result
from .passes import NAMES, PLAINER, pass_of
from .passes.forms import forms
from .search.edits import drop_outputs, exhaust
from .search.problem import Answer, Candidate, Ruling
from .search.tiers import TIERS, gentle

if TYPE_CHECKING:
    from torch import fx

Predicate = Callable[["fx.GraphModule", Sequence[Any]], Any]


@dataclass
class FxProblem:
    """A graph, the values of one run of it, its atoms, and a predicate that is True where a case fails.

    A case that the passes edited is asked about only where eager runs it, and a predicate that raises has no verdict on
    it.
    """

    gm: fx.GraphModule
    values: Values
    atoms: Atoms
    predicate: Predicate
    hints: Sequence[int] = ()
    spec: ReplaySpec = field(default_factory=ReplaySpec)

    @classmethod
    def of(
        cls, gm: fx.GraphModule, inputs: Sequence[Any], predicate: Predicate, spill: Path | None = None
    ) -> FxProblem:
        """Runs the graph once and numbers its atoms."""
        values = record_values(gm, inputs, spill)
        return cls(gm, values, Atoms.of(gm, values), predicate, spec=_spec_of(gm))

    @property
    def size(self) -> int:
        return len(self.atoms)

    def parents(self, atom: int) -> Sequence[int]:
        return self.atoms.parents[atom]

    def label(self, atom: int) -> Hashable:
        return self.atoms.labels[atom]

    def bypasses(self, atom: int) -> Sequence[int]:
        return self.atoms.bypasses[atom]

    @property
    def drawing(self) -> Sequence[int]:
        """The atoms that draw random numbers."""
        return self.atoms.random

    def build(self, candidate: Candidate) -> tuple[fx.GraphModule, list[Any]]:
        """The candidate's module and inputs."""
        case = self._case(candidate)
        return case.gm, case.inputs

    def _case(self, candidate: Candidate) -> Live:
        module, inputs = build(
            self.gm, self.atoms, self.values, candidate.keep, bypass=candidate.bypass, returned=candidate.returned
        )
        names = [node.name for node in self.gm.graph.nodes if node.op == "placeholder"]
        case = Live(module, inputs, candidate_spec(self.spec, names, module) if candidate.edits else self.spec)
        for edit in candidate.edits:
            case = pass_of(edit.partition(" ")[0]).apply(case, edit)
        return case

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        """The edits that one pass proposes, in rounds."""
        return pass_of(name).propose(self._case(candidate))

    def original(self) -> tuple[fx.GraphModule, list[Any]]:
        """A copy of the whole graph, and its inputs: the caller's own, or copies where the graph writes to them."""
        inputs = list(self.values.inputs)
        names = [node.name for node in self.gm.graph.nodes if node.op == "placeholder"]
        written = any(self.values.written(name) for name in names)
        return copy_graph(self.gm), clone_inputs(inputs) if written else inputs

    def outputs(self, candidate: Candidate) -> tuple[list[int], list[int]]:
        """Positions of the nodes that the candidate returns, and those among them that it could do without."""
        return loose_outputs(self.build(candidate)[0], self.atoms)

    def test(self, candidate: Candidate) -> Answer:
        """Asks the predicate; its exceptions propagate."""
        began = time.perf_counter()
        if candidate.edits:
            return self._edited(candidate)
        module, inputs = self.build(candidate)
        nodes, size = len(module.graph.nodes), input_bytes(inputs)
        verdict = Ruling.SAME if self.predicate(module, inputs) else Ruling.PASS
        return Answer(verdict, nodes=nodes, input_bytes=size, seconds=time.perf_counter() - began)

    def _edited(self, candidate: Candidate) -> Answer:
        began = time.perf_counter()
        try:
            case = self._case(candidate)
            runs = forms(case) is not None
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            return Answer(Ruling.INVALID, detail=str(error), seconds=time.perf_counter() - began)
        size = (len(case.gm.graph.nodes), input_bytes(case.inputs))
        verdict, detail = Ruling.INVALID, "eager refuses it"
        if runs:
            try:
                verdict, detail = Ruling.SAME if self.predicate(case.gm, case.inputs) else Ruling.PASS, ""
            except Exception as error:  # noqa: BLE001  it is the caller's; what it says of the nodes alone propagates
                detail = f"the predicate raises {type(error).__name__}: {error}"
        return Answer(verdict, nodes=size[0], input_bytes=size[1], detail=detail, seconds=time.perf_counter() - began)


def _spec_of(gm: fx.GraphModule) -> ReplaySpec:
    """What the passes have to know of a graph that was given without one: from before AOTAutograd or after, dynamic or
    not."""
    nodes = list(gm.graph.nodes)
    full = any("example_value" in node.meta for node in nodes)
    return ReplaySpec("dynamo" if full else "inference", dynamic=any(symbols_in(fake_of(node)) for node in nodes))


def loose_outputs(module: fx.GraphModule, atoms: Atoms) -> tuple[list[int], list[int]]:
    """Positions (in the original graph) of what a candidate returns, and of those outputs that something else keeps
    alive."""
    names = [node.name for node in output_nodes(module.graph)]
    read = {argument.name for node in module.graph.nodes if node.op != "output" for argument in node.all_input_nodes}
    items = {node.name for node in module.graph.nodes if node.target is operator.getitem}
    return atoms.positions(names), atoms.positions(name for name in names if name in read or name in items)


AXES = tuple(name for name in NAMES if name not in ("switches", "program"))
"""Passes that need no process of their own."""


def minify_here(
    gm: fx.GraphModule,
    inputs: list[Any],
    predicate: Callable[..., Any],
    *,
    max_time: float | None = None,
    max_queries: int | None = None,
    tell: Follow = lambda event: None,
) -> Minified:
    """Reduces nodes, outputs, sizes, values and the rest; the original is checked once.

    Exceptions of the predicate propagate, but of a case whose nodes failed before: that change is left out.
    """
    problem = FxProblem.of(gm, inputs, predicate)
    whole = (len(gm.graph.nodes), input_bytes(inputs))
    if not predicate(*problem.original()):
        raise UsageError(
            "the graph does not fail", "the predicate is false for it", "check the predicate and the inputs"
        )
    engine = Engine(problem, budget=SearchLimits(max_time, max_queries), queries=1, tell=tell)
    result = search(engine, problem, axes=AXES)
    live = problem.original() if result.best is None else problem.build(result.best)
    size = whole if result.answer is None else result.answer.size
    return Minified(
        result.queries,
        [(1, *whole), *result.history],
        None,
        *size,
        stopped=result.stopped,
        notes=result.notes,
        verdicts={verdict.value: count for verdict, count in result.verdicts.items()},
        live=live,
        original=whole,
        verdict=Verdict("fails", reason="the predicate is true for it"),
    )


def search(engine: Engine, problem: FxProblem, max_granularity: int | None = None, axes: Sequence[str] = ()) -> Result:
    """The node search, then the outputs of what it found, then the passes named by `axes`."""

    def outputs(engine: Engine, state: Candidate) -> Candidate:
        if engine.best is None:
            return state
        returned, loose = problem.outputs(engine.best)
        return drop_outputs(engine, engine.best, returned, loose)

    def axis(name: str) -> Step:
        def step(engine: Engine, state: Candidate) -> Candidate:
            return exhaust(engine, engine.case, lambda case: problem.propose(name, case), plainer=name in PLAINER)

        return step

    tiers = TIERS if max_granularity is None else gentle(max_granularity)
    if problem.size == 0:
        return engine.result()
    steps = [*tiers, ("outputs", outputs), *((name, axis(name)) for name in axes)]
    return engine.run(steps, Candidate.of(range(problem.size)))
