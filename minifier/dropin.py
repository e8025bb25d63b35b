"""A drop-in for functorch.compile.minifier: same parameters, same result, fewer calls of the predicate.

The predicate is called in this process, one call after the other; True means that the case fails. Nodes, inputs and
outputs are reduced, nothing else: node targets and constants stay as they are. The small case holds no more input bytes
than the original needed for the same nodes (`spared`).

"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import fx

from ..dumps.errors import BadValueError, CommandLineError, UsageError
from ..dumps.output import say
from ..dumps.torchside.values import fake_of
from ..dumps.wording import counted
from ..toolkit.cutting.atoms import symbols_in
from ..toolkit.cutting.eager_values import record_values
from ..toolkit.cutting.subgraph import Atoms, build, candidate_spec, output_nodes
from ..toolkit.live.case import Live
from ..toolkit.live.eager import clone_inputs, copy_graph
from ..toolkit.live.spec import ReplaySpec
from ..toolkit.live.values import Values, input_bytes
from ..toolkit.verdicts.verdict import Verdict
from .agenda import SearchLimits
from .engine import Engine, Step
from .events import Best, Follow, Happening
from .minified import Interrupted, Minified
from .passes import NAMES, PLAINER, pass_of
from .passes import inputs as stand_ins
from .passes.forms import watched
from .search.edits import drop_outputs, exhaust
from .search.problem import Answer, Candidate, Ruling
from .search.tiers import TIERS, gentle

Predicate = Callable[["fx.GraphModule", Sequence[Any]], Any]


@dataclass
class FxProblem:
    """A graph, the values of one run of it, its atoms, and a predicate that is True where a case fails.

    A case with edits is given to the predicate only where eager runs it, and is invalid where the predicate raises on
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
        answer = self._edited(candidate) if candidate.edits else self._asked(self._case(candidate))
        return replace(answer, seconds=time.perf_counter() - began)

    def _asked(self, case: Live) -> Answer:
        size = (len(case.gm.graph.nodes), input_bytes(case.inputs))
        verdict = Ruling.SAME if self.predicate(case.gm, case.inputs) else Ruling.PASS
        return Answer(verdict, "", *size)

    def _edited(self, candidate: Candidate) -> Answer:
        try:
            case = self._case(candidate)
            watched(case, lambda _, value: value)
        except Exception as error:  # noqa: BLE001  the edit does not fit, or eager refuses the case with it
            return Answer(Ruling.INVALID, detail=str(error))
        size = (len(case.gm.graph.nodes), input_bytes(case.inputs))
        try:
            return self._asked(case)
        except Exception as error:  # noqa: BLE001  the predicate's own error; on a case without edits it propagates
            return Answer(Ruling.INVALID, "", *size, f"the predicate raises {type(error).__name__}: {error}")


def _spec_of(gm: fx.GraphModule) -> ReplaySpec:
    """The spec of a graph that came without one: whether it is from before or after AOTAutograd, and dynamic or not."""
    nodes = list(gm.graph.nodes)
    full = any("example_value" in node.meta for node in nodes)
    return ReplaySpec("dynamo" if full else "inference", dynamic=any(symbols_in(fake_of(node)) for node in nodes))


def loose_outputs(module: fx.GraphModule, atoms: Atoms) -> tuple[list[int], list[int]]:
    """Positions (in the original graph) of a candidate's outputs, and of those that may be dropped: other nodes read
    them, or they are items."""
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

    Exceptions of the predicate propagate, except on cases with edits: such an edit is left out. Raises Interrupted,
    with the best so far, on Ctrl-C.
    """
    problem, whole = FxProblem.of(gm, inputs, predicate), (len(gm.graph.nodes), input_bytes(inputs))
    if not predicate(*problem.original()):
        raise _does_not_fail()
    engine = Engine(problem, budget=SearchLimits(max_time, max_queries), queries=1, tell=tell)

    def minified() -> Minified:
        live = problem.original() if engine.best is None else problem.build(engine.best)
        verdict = Verdict("fails", reason="the predicate is true for it")
        return engine.minified(whole, notes=engine.notes, live=live, verdict=verdict)

    try:
        search(engine, problem, axes=AXES)
    except Interrupted as interrupted:
        interrupted.minified = minified()
        raise
    return minified()


def _does_not_fail() -> UsageError:
    what, why = "the graph does not fail", "the predicate is false for it"
    return UsageError(what, why, "check the predicate and the inputs")


def search(engine: Engine, problem: FxProblem, max_granularity: int | None = None, axes: Sequence[str] = ()) -> None:
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
    if problem.size:
        steps = [*tiers, ("outputs", outputs), *((name, axis(name)) for name in axes)]
        engine.run(steps, Candidate.of(range(problem.size)))


def dump_state(fx_g: fx.GraphModule, inps: Sequence[Any]) -> None:
    """Says on stderr how small the failing case is now."""

    size = f"{counted(len(fx_g.graph.nodes), 'node')}, {counted(len(inps), 'input')}, {input_bytes(inps)} input bytes"
    say(f"still failing: {size}")


def minifier(
    fail_f: fx.GraphModule,
    inps: Sequence[Any],
    module_fails: Callable[[fx.GraphModule, Sequence[Any]], Any],
    dump_state: Callable[[fx.GraphModule, Sequence[Any]], None] = dump_state,
    *,
    save_dir: str | None = None,
    offload_to_disk: bool = False,
    skip_offload: bool = False,
    skip_sanity: bool = False,
    max_granularity: int | None = None,
) -> tuple[fx.GraphModule, list[Any]]:
    """The smallest module and inputs found for which `module_fails(module, inputs)` is still true.

    `fail_f` is a traced graph, `inps` its inputs in order; what comes back is a pair (module, list of inputs).
    `dump_state` is called with the first case and with each smaller one. `offload_to_disk` keeps recorded values in
    files under `save_dir` (`skip_offload`: in memory after all). `skip_sanity` does not check the original.
    `max_granularity`, a power of two, bounds how many nodes one step may drop. Raises UsageError where the original
    does not fail; exceptions of the predicate propagate.

    >>> module, small = minifier(gm, inputs, lambda gm, inputs: "erf" in gm.code)
    >>> [node.name for node in module.graph.nodes if node.op == "call_function"]
    ['erf']
    """
    if max_granularity is not None and (max_granularity < 1 or max_granularity & (max_granularity - 1)):
        raise BadValueError(f"max_granularity is {max_granularity}", "it must be a power of two")
    if offload_to_disk:
        if save_dir is None:
            raise CommandLineError("offload_to_disk needs a save_dir")
        Path(save_dir).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="values-", dir=save_dir if offload_to_disk else None) as folder:
        spill = Path(folder) if offload_to_disk and not skip_offload else None
        problem = FxProblem.of(fail_f, list(inps), module_fails, spill)
        whole, given = problem.original()
        if not skip_sanity and not module_fails(whole, given):
            raise _does_not_fail()
        say(f"minifying {counted(len(whole.graph.nodes), 'node')} in {counted(problem.size, 'atom')}")
        dump_state(*problem.original())

        def show(event: Happening) -> None:
            if isinstance(event, Best) and engine.best is not None:
                dump_state(*problem.build(engine.best))

        engine = Engine(problem, queries=0 if skip_sanity else 1, tell=show)
        search(engine, problem, max_granularity)
        if engine.best is None:
            return problem.original()
        module, left = problem.build(engine.best)
        smaller, fewer, asked = spared(whole, given, module, left, module_fails)
        if smaller is not module:
            dump_state(smaller, fewer)
    size = f"{counted(len(smaller.graph.nodes), 'node')}, {input_bytes(fewer)} input bytes"
    say(f"{size} left after {counted(engine.queries + asked, 'query')}")
    for note in engine.notes:
        say(note)
    return smaller, fewer


__all__ = ["dump_state", "minifier"]


Fails = Callable[[Any, Sequence[Any]], Any]


def spared(
    whole: fx.GraphModule, given: Sequence[Any], module: fx.GraphModule, left: list[Any], fails: Fails
) -> tuple[fx.GraphModule, list[Any], int]:
    """The failing case with fewer input bytes where that is needed and possible, and how often `fails` was asked.

    Cutting a graph between nodes makes an input of each edge that was cut, and these may be larger than what the
    original computed them from. While they are, one input stands in for others that are alike (`passes/inputs.py`). All
    stand-ins are tried at once, then one by one, the last input first, until the case holds no more than the original
    needed.
    """
    enough = needed_bytes(whole, given, module)
    case, asked = Live(module, left), 0
    if input_bytes(left) <= enough:
        return module, left, asked
    edits = [edit for group in stand_ins.propose(case) for edit in group]
    for some in ([edits] if len(edits) > 1 else []) + [[edit] for edit in reversed(edits)]:
        smaller = case
        for edit in reversed(some):
            smaller = stand_ins.apply(smaller, edit)
        asked += 1
        if fails(smaller.gm, smaller.inputs):
            case = smaller
            if len(some) > 1 or input_bytes(case.inputs) <= enough:
                break
    return case.gm, case.inputs, asked


def needed_bytes(whole: fx.GraphModule, given: Sequence[Any], module: fx.GraphModule) -> int:
    """Bytes of the original's inputs that the nodes left depend on."""
    names = {node.name for node in module.graph.nodes if node.op not in ("placeholder", "output")}
    wanted = {node for node in whole.graph.nodes if node.name in names}
    for node in reversed(whole.graph.nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    places = whole.graph.find_nodes(op="placeholder")
    return input_bytes([value for node, value in zip(places, given, strict=True) if node in wanted])
