"""Runs one graph under one rung in this process and says what went wrong: the body of every isolated query.

Order: eager twice under one seed (the second time with uninitialised memory poisoned: a difference means that no
verdict is possible), float64, the rung, the comparison. Each step is marked, so that a segfault or hang is charged to
it. A graph with random ops is compiled once as recorded, for crashes and metadata, and once with `fallback_random`,
where compiled code draws eager's numbers; Inductor's own random prims are drawn the way its kernels do (`philox`, CPU).
Runs in a child, because the graph may end the process.

>>> judge(Live(gm, inputs), "inductor").text
'ok'
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps import permitted
from ...dumps.errors import LacksName
from ...dumps.torchside.history import computed
from ...dumps.walk import user_frame
from .. import torch_private as t
from ..isolation.child import is_memory_error, mark
from ..live.case import Live
from ..live.eager import (
    GraphRunError,
    Hook,
    clone_inputs,
    copy_graph,
    draws_from_generator,
    draws_unrepeatably,
    eager_draws,
    grows,
    is_uninitialised,
    recomputes_random,
    run_graph,
)
from ..live.entries import patterns_without_device, shared_fakes
from ..live.execution import (
    Attributes,
    Execution,
    Reversed,
    changed_inputs,
    device_lost,
    identical,
    is_unused_state,
    may_write_twice,
    result_names,
    returned,
    same_bits,
    settle,
    tensors_in,
)
from ..live.spec import FULL_STAGES, in_force, no_caches, settings
from ..numerics.comparison import FACTOR, ROUNDING, SIGNED_ZERO, Difference, compare, output_errors
from ..numerics.comparison import NO_REFERENCE as WITHOUT
from ..rungs import CannotRun, Rung
from ..rungs import rung as rung_named
from ..verdicts.mismatches import MetadataMismatch
from ..verdicts.outcome import Outcome
from ..verdicts.signature import RAISED_TOO, Signature, from_exception
from ..verdicts.verdict import NO_REFERENCE, Verdict, Where, cannot_tell, judged, skipped
from ..verdicts.verdict_words import DRAWS
from . import baseline
from .baseline import Baseline, NoReference, reference
from .comparing import Comparing
from .missing import is_same_error, missing, missing_error

CHECKS: dict[str, tuple[str, ...]] = {
    "auto": ("metadata", "nan", "accuracy", "zero", "error"),
    "rounding": ("metadata", "nan", "accuracy", "zero", "error"),
    "accuracy": ("accuracy", "zero"),
    "numbers": ("nan", "accuracy"),
    "nan": ("nan",),
    "metadata": ("metadata",),
    "missing-error": ("error",),
    "crash": (),
    "hang": (),
    "memory": (),
}
"""Check -> what is compared after the run; "error": whether the rung raises where eager does.

A crash, a signal, a hang and running out of memory are noticed under each.
"""


LEAN = ("", "compile", "fakes", "numbers")
""""compile": finds only crashes of the compile. It compiles first; a graph that compiles is not run, and one that does
not counts as a failure only where eager runs it. "fakes": the same, of inputs without values: nothing is run, not in
eager either. "numbers": the float64 reference is computed only where the rung's bits differ from eager's."""

Watch = Callable[[], AbstractContextManager[None]]


def judge(
    case: Live,
    rung: str | Rung,
    check: str = "auto",
    *,
    seed: int = 0,
    keep_outputs: bool = False,
    watch: Watch = nullcontext,
    shared: Path | None = None,
    lean: str = "",
) -> Outcome:
    """Runs a case on clones of its inputs under a rung and compares with eager and float64. The case is not changed.

    `check` is one of CHECKS. `watch` makes a context that the compile as recorded happens in (see `fidelity.Watched`).
    `shared` is a file for eager's and float64's results: read when it is there, else written, for the next rung of this
    graph. `lean` is one of LEAN: an order that finds one kind of failure as surely, and reports less on what does not
    fail.
    """
    used = rung if isinstance(rung, Rung) else rung_named(rung)
    lost: list[str] = []
    try:
        # around the run as well: a backward compiles when it first runs
        with settings(case.spec.config) as lost, no_caches(), in_force(case.spec):
            outcome = _Judgement(case, used, CHECKS[check], seed, watch, shared, lean).outcome(keep_outputs)
    except LacksName as reason:
        outcome = Outcome(skipped(str(reason)))
    outcome.rung = used.name
    outcome.notes = [*lost, *outcome.notes]
    for note in lost:
        if note.startswith(permitted.JUDGED_WITHOUT):
            outcome.verdict = outcome.verdict.said_too(permitted.names_of(note))
    return outcome


@dataclass
class _Judgement:
    """One judgement in progress. `seconds`: of the rung's compile and first run; `step`: the step in progress."""

    case: Live
    rung: Rung
    compared: tuple[str, ...]
    seed: int
    watch: Watch
    shared: Path | None = None
    lean: str = ""
    seconds: float = 0.0
    step: str = ""
    began: float = 0.0

    def __post_init__(self) -> None:
        self.gm, self.inputs, self.spec = self.case.gm, self.case.inputs, self.case.spec
        self.attributes = Attributes(self.gm)
        self.nodes = returned(self.gm)
        self.left_out: set[int] = set()
        self.changed: list[int] = []
        self.computed = False
        self.raised: Signature | None = None
        self.raised_at: Where | None = None

    @property
    def backward(self) -> bool:
        """Whether gradients are part of the result."""
        return self.spec.stage in FULL_STAGES and self.spec.ambient.grad and not self.spec.ambient.inference_mode

    def outcome(self, keep_outputs: bool) -> Outcome:
        """Judges the case and returns the outcome."""
        if reason := self.rung.unavailable(self.spec) or self.rung.cannot_take(self.gm, self.spec):
            return Outcome(skipped(reason))
        random = draws_from_generator(self.gm)
        crash: Outcome | None = None
        if self.lean == "fakes":
            with patterns_without_device() if self._lacks_device() else nullcontext():
                crash = self._compile_only()
            return crash or Outcome(Verdict("ok", reason="it compiles; it cannot be run here"), seconds=self.seconds)
        if self.lean == "compile" and not random:
            crash = self._compile_only()
            if crash is None or crash.ok:
                return crash or Outcome(Verdict("ok", reason="it compiles; it was not run"), seconds=self.seconds)
        base = self._baseline()
        if isinstance(base, Signature):
            return self._beside_an_error(base)
        if crash is not None:
            return crash
        eager, changed, truth = base.eager, self.changed, base.truth
        draws_alike = self.rung.name == "eager" or bool(self.spec.config.get("inductor", {}).get("fallback_random"))
        if isinstance(got := self._tried(), Outcome):
            return got
        twice = random and self.compared and not draws_alike
        again = self._tried(fallback_random=True) if twice else got
        if isinstance(again, Outcome):
            return again
        self._enter("compare")
        if random and recomputes_random(self.gm):
            truth = NoReference("a checkpointed region draws random numbers")
            self.compared = tuple(name for name in self.compared if name == "metadata")
        elif self.rung.compiles_draws and draws_unrepeatably(self.gm):
            truth = NoReference("the kernels draw random numbers that eager cannot repeat on this device")
            self.compared = tuple(name for name in self.compared if name == "metadata")
        wanted, seen, repeated = (run.results(changed) for run in (eager, got, again))
        waits = isinstance(truth, NoReference) and truth.reason == WAITS and "accuracy" in self.compared
        if waits and not (len(wanted) == len(repeated) and all(map(identical, wanted, repeated))):
            truth = self._reference()
            self._enter("compare")
        before, lowered = self._before(), self.case.lowered
        comparing = Comparing(
            self.gm,
            self.nodes,
            self.inputs,
            self.spec,
            self.compared,
            self.left_out,
            changed,
            self._eagerly,
            before,
            lowered,
        )
        difference = comparing.difference(truth, eager, got, wanted, seen, repeated if random else None)
        names = self._names(eager)
        if difference is not None and (unsteady := self._left_open(difference, wanted, names)):
            return Outcome(judged(unsteady, where=self.raised_at), unsteady, seconds=self.seconds)
        outcome = self._concluded(difference, truth, wanted, repeated, names, got if keep_outputs else None)
        nothing = {names[at] for at in comparing.cancelled(wanted)}
        outcome.errors = [error for error in outcome.errors if error.name not in nothing] or outcome.errors
        if difference is None and "metadata" in self.compared:
            outcome.notes += comparing.restrided(wanted, seen, names)
        outcome.nan, outcome.eager_nan = again.nans(changed, names), eager.nans(changed, names)
        drawn = [DRAWS] if twice and outcome.ok else []
        outcome.notes = [*self.rung.notes(self.gm, self.spec), *drawn, *outcome.notes]
        return outcome

    def _compile_only(self) -> Outcome | None:
        """Compiles under the rung; returns the crash or a skip, None where it compiles."""
        tried = self._tried(only_compile=True)
        return tried if isinstance(tried, Outcome) else None

    def _tried(self, **how: bool) -> Execution | Outcome:
        """Runs the rung; returns its results, or the outcome of a crash or a skip."""
        try:
            return self._run_rung(**how)
        except CannotRun as reason:
            return Outcome(skipped(str(reason)))
        except Exception as error:  # noqa: BLE001  whatever the rung raises is the finding
            return self._crashed(error)

    def _lacks_device(self) -> bool:
        """Whether inputs belong on a CUDA device and this machine has none."""
        there = torch.cuda.is_available()
        return not there and any(isinstance(value, torch.Tensor) and value.is_cuda for value in self.inputs)

    def _beside_an_error(self, refusal: Signature) -> Outcome:
        """The outcome where eager raises: a failure if the rung raises nothing, else no verdict."""
        unsteady = refusal.kind == "nondeterministic"
        none = Outcome(judged(refusal, where=self.raised_at) if unsteady else cannot_tell(refusal.text()), refusal)
        if self.raised is None:
            return none
        try:
            self._run_rung()
        except Exception as error:  # noqa: BLE001  the rung raises, as eager does
            if is_same_error(self.raised, error):
                none.signature = msgspec.structs.replace(refusal, detail=RAISED_TOO)
            return none
        reason = f"{self.raised.raw}; {self.rung.name} raises nothing"
        record = judged(self.raised, self.rung.name, reason=reason, where=self.raised_at)
        return Outcome(record, self.raised, seconds=self.seconds)

    def _baseline(self) -> Baseline | Signature:
        """Loads or computes eager's results and the reference; a Signature why no verdict is possible where eager
        fails."""
        known = baseline.load(self.shared) if self.shared is not None and self.shared.exists() else None
        if known is not None:
            self.left_out, self.changed = known.left_out, known.changed
            if known.computed:
                self._as_computed()
            return known
        self._enter("eager")
        eager = self._eager()
        if isinstance(eager, Signature):
            return eager
        base = Baseline(eager, self.changed, self.left_out, computed=self.computed)
        if self.lean and not draws_from_generator(self.gm):
            base.truth = NoReference(WAITS)
        elif "accuracy" in self.compared:
            base.truth = self._reference()
        if self.shared is not None:
            base.save(self.shared)
        return base

    def _execute(self, run: Any, inputs: list[Any] | None = None, gm: fx.GraphModule | None = None) -> Execution:
        """Executes `run` once. Default: on clones of the case's inputs, with the parameters of the case's graph."""
        inputs = clone_inputs(self.inputs) if inputs is None else inputs
        return self.attributes.execute(gm or self.gm, run, inputs, self.seed, self.backward)

    def _eagerly(self, wide: fx.GraphModule, inputs: list[Any], hook: Hook | None = None) -> list[Any]:
        """Runs another form of the graph in eager and returns its results."""
        return self._execute(partial(run_graph, wide, hook=hook), inputs, wide).results(self.changed)

    def _eager(self) -> Execution | Signature:
        """Runs eager twice; returns the first run, or a Signature why no verdict is possible."""
        try:
            first = self._first()
            self.changed = changed = changed_inputs(self._before(), first.inputs)
            if not self.compared:
                return first
            poisoned = self._execute(partial(run_graph, self.gm, poison=True))
        except (GraphRunError, RuntimeError) as error:
            cause = error.__cause__ or error
            if isinstance(cause, torch.AcceleratorError) or device_lost():
                return Signature("error", "eager", type(cause).__name__, raw=_device_lost(error))
            if "error" in self.compared:
                self.raised = missing_error(error, self.gm, self.spec)
                raising = [node for node in self.gm.graph.nodes if node.name == getattr(error, "node", "")]
                self.raised_at = _at(raising[0]) if raising else None
            kind = "memory" if is_memory_error(cause) else "error"
            at = " at " if isinstance(error, GraphRunError) else ": "  # the backward has no node
            return Signature(kind, "eager", type(cause).__name__, raw=f"eager itself fails{at}{error}"[:1000])
        for index, (value, other) in enumerate(zip(first.results(changed), poisoned.results(changed), strict=True)):
            difference = compare(None, [value], [other])
            if difference is not None and (is_unused_state(value) or self._reads_nothing(index, other)):
                self.left_out.add(index)
            elif difference is not None:
                self.raised_at = self._first_unsteady()
                name = self._names(first)[index]
                at = f", first at {self.raised_at.node} {self.raised_at.line}".rstrip() if self.raised_at else ""
                text = f"eager gives different results in two runs with the same seed{at} ({name}: {difference.text})"
                return Signature("nondeterministic", "eager", raw=text)
        return first

    def _before(self) -> list[Any]:
        """Copies of all that a run can write to: the inputs, then the graph's tensors."""
        return [*self.inputs, *self.attributes.before(self.gm)]

    def _reads_nothing(self, place: int, poisoned: Any) -> bool:
        """Whether a result is purely uninitialised memory, as from `empty`: it shows the poison, the same in each run,
        and no other node shares the memory and may have written a part of it."""
        node, alone = self.nodes[place] if place < len(self.nodes) else None, True
        while isinstance(node, fx.Node) and not (is_uninitialised(node) or grows(node)):
            node = node.all_input_nodes[0] if len(node.all_input_nodes) == 1 else None
            alone = node is None or len(node.users) == 1
        if not isinstance(node, fx.Node) or not alone:
            return False
        again = self._execute(partial(run_graph, self.gm, poison=True)).results(self.changed)[place]
        return compare(None, [poisoned], [again]) is None

    def _left_open(self, difference: Difference, wanted: list[Any], names: list[str]) -> Signature | None:
        """A Signature (no verdict) where eager itself differs as soon as several writes to one place happen in another
        order, which torch leaves open; else None."""
        at = difference.output
        if difference.kind not in ("accuracy", "nan") or at < 0 or not may_write_twice(self.gm):
            return None
        with Reversed():
            other = self._execute(partial(run_graph, self.gm)).results(self.changed)
        apart = compare(None, [wanted[at]], [other[at]])
        if apart is None:
            return None
        self.raised_at = self._first_unsteady(Reversed())
        first = f", first at {self.raised_at.node} {self.raised_at.line}".rstrip() if self.raised_at else ""
        text = (
            "eager gives other numbers where several values go to one place and are written in another order, which "
            f"torch leaves open{first} ({names[at]}: {apart.text})"
        )
        return Signature("nondeterministic", "eager", raw=text)

    def _first_unsteady(self, second: AbstractContextManager[Any] | None = None) -> Where | None:
        """The first node whose value differs between two runs with the same seed; the second run is inside the context
        `second`."""
        runs: list[list[Any]] = [[], []]
        for kept, around in zip(runs, (nullcontext(), second or nullcontext()), strict=True):

            def keep(node: fx.Node, value: Any, kept: list[Any] = kept) -> Any:
                kept.append((node, [tensor.detach().clone() for tensor in tensors_in(value)]))
                return value

            with around:
                self._execute(partial(run_graph, self.gm, hook=keep))
        for (node, tensors), (_, other) in zip(*runs, strict=False):
            pairs = [pair for pair in zip(tensors, other, strict=False) if not is_unused_state(pair[0])]
            if not is_uninitialised(node) and not all(starmap(_repeats, pairs)):
                return _at(node)
        return None

    def _first(self) -> Execution:
        run = partial(run_graph, self.gm, hook=_settled)
        try:
            return self._execute(run)
        except GraphRunError as error:
            if "leaf Variable that requires grad" not in str(error):
                raise
            self._as_computed()
            return self._execute(run)

    def _as_computed(self) -> None:
        """Makes inputs that require grad non-leaves, where the record does not say which are: no program can write to a
        leaf."""
        self.computed = True
        tensors = [(at, value) for at, value in enumerate(self.inputs) if isinstance(value, torch.Tensor)]
        plain = [at for at, value in tensors if value.requires_grad and not isinstance(value, torch.nn.Parameter)]
        self.inputs = computed(clone_inputs(self.inputs), plain)

    def _amplified(self, where: Where | None, text: str) -> tuple[Where | None, str]:
        """The operator that amplifies rounding, in place of the result's node, with a sentence about it; unchanged
        where none does."""
        from .amplifying import amplifier

        worst = amplifier(self.gm, self.inputs, self._eagerly)
        if worst is None:
            return where, text
        at = _at(worst.node, where.name if where is not None else "")
        place = f"{at.node}, {at.line}" if at.line else at.node
        return at, f"{text}; a difference of {worst.input:.1g} becomes one of {worst.output:.1g} at {place}"

    def _names(self, eager: Execution) -> list[str]:
        """The names of the results, as shown to the user."""
        return result_names(self.gm, self.inputs, len(eager.gradients), self.changed)

    def _reference(self) -> list[Any] | NoReference:
        self._enter("reference")
        return reference(self.gm, self.inputs, self._eagerly)

    def _run_rung(self, **how: bool) -> Execution:
        """Runs the rung once; where the compiler needs an input's value that it took for dynamic, again with the value
        known, as Dynamo does."""
        try:
            return self._run_once(**how)
        except Exception as error:
            if self.spec.stage not in FULL_STAGES or type(error).__name__ not in _RESTARTS:
                raise
        return self._run_once(known=True, **how)

    def _run_once(self, *, fallback_random: bool = False, only_compile: bool = False, known: bool = False) -> Execution:
        self.step = ""
        gm = copy_graph(self.gm)
        began = self.began = time.perf_counter()
        drawing = eager_draws() if fallback_random else nullcontext()
        with drawing, self.rung.around(self.gm, self.spec), nullcontext() if fallback_random else self.watch():
            self._enter("compile")
            fakes = shared_fakes(gm, self.inputs, self.spec.dynamic, known)[0]
            compiled = self.rung.build(gm, fakes, self.spec)
            if only_compile:
                self.seconds = time.perf_counter() - began
                return Execution([], [], [])
            self._enter("run")
            execution = self._execute(compiled)
        self.seconds = self.seconds or time.perf_counter() - began
        return execution

    def _enter(self, step: str) -> None:
        """Marks the step that a later segfault or hang is charged to."""
        self.step = step
        mark(step)

    def _crashed(self, error: Exception) -> Outcome:
        self.seconds = self.seconds or time.perf_counter() - self.began
        if isinstance(error, MetadataMismatch):
            signature = Signature("metadata", self.step, detail=error.detail, raw=str(error)[:1000])
            reason = " ".join(str(error).splitlines()[:3])
            return Outcome(judged(signature, self.rung.name, reason=reason), signature, seconds=self.seconds)
        memory = is_memory_error(error)
        if not memory and (reason := missing(error)):
            return Outcome(skipped(reason), seconds=self.seconds)
        signature = Signature("memory", self.step) if memory else from_exception(error, self.step)
        behind, where = self._behind(error) if self.step == "compile" and not self.lean else ("", None)
        notes = [behind] if behind else []
        return Outcome(judged(signature, self.rung.name, where=where), signature, seconds=self.seconds, notes=notes)

    def _behind(self, error: Exception) -> tuple[str, Where | None]:
        """The kernel or pass that failed, in words, and its first node. Takes as long as a small compile, so a search
        skips it."""
        from ..compile_fx.errors import explain

        explained = explain(error, None, self.step)
        first = next(iter(explained.nodes), None)
        return explained.behind(), Where(first.node, line=first.line) if first is not None else None

    def _concluded(
        self,
        difference: Difference | None,
        truth: Any,
        wanted: list[Any],
        got: list[Any],
        names: list[str],
        kept: Execution | None,
    ) -> Outcome:
        outcome = Outcome(seconds=self.seconds)
        known = None if isinstance(truth, NoReference) else truth
        if "accuracy" in self.compared:
            outcome.errors = output_errors(known, wanted, got, names)
        if kept is not None:
            outcome.outputs = [*kept.outputs, *kept.gradients]
        if self.left_out:
            places = ", ".join(names[place] for place in sorted(self.left_out))
            outcome.notes.append(f"{places} is uninitialised memory in eager and was not compared")
        if isinstance(truth, NoReference) and truth.reason != WAITS and "accuracy" in self.compared:
            outcome.verdict = cannot_tell(truth.reason, NO_REFERENCE)
        if difference is not None:
            name = names[difference.output] if 0 <= difference.output < len(names) else ""
            text = f"{name}: {difference.text}" if name else difference.text
            kind, detail, size = difference.kind, difference.detail, difference.size
            outcome.signature = Signature(kind, "compare", detail=detail, size=size, raw=text, form=difference.form)
            node = self.nodes[difference.output] if 0 <= difference.output < len(self.nodes) else None
            where = _at(node, name) if isinstance(node, fx.Node) else Where(name=name) if name else None
            if detail == ROUNDING and not self.lean and "error" in self.compared:
                where, text = self._amplified(where, text)
            reason = f"{text}; {convicts}" if (convicts := convicting(difference, known is not None)) else text
            record = judged(outcome.signature, self.rung.name, reason=reason, where=where)
            agree = _same(wanted, got, known) if kind in ("accuracy", "nan") and not self.lean else None
            outcome.verdict = msgspec.structs.replace(record, same=agree)
        return outcome


def _same(eager: list[Any], compiled: list[Any], truth: list[Any] | None) -> bool | None:
    """The decision of PyTorch's minifier about the numbers, at its default tolerances; None where it cannot decide."""
    try:
        return t.same(eager, compiled, truth, log_error=lambda *message: None)
    except Exception:  # noqa: BLE001  it asserts much about its arguments
        return None


def convicting(difference: Difference, reference: bool) -> str:
    """Why the rung's numbers are wrong, in words; "" for rounding, and for differences that need no reason."""
    if difference.kind != "accuracy" or difference.detail == ROUNDING:
        return ""
    if difference.detail == "integers":
        return "judged wrong by exact values" + (" on which eager and float64 agree" if reference else "")
    if difference.detail == SIGNED_ZERO:
        return "judged wrong by the sign of a zero, which rounding does not change"
    if not reference:
        return f"judged wrong by eager: {WITHOUT:.0f} times the tolerance away"
    return (
        f"judged wrong by float64: more than {FACTOR:.0f} times eager's own error, the tolerance, and what rounding "
        "explains"
    )


_RESTARTS = frozenset({"TensorifyScalarRestartAnalysis", "DataDependentOutputException"})
"""Exceptions that compilers raise where they need the value of an input that they took for dynamic: Dynamo then starts
again with the value."""
WAITS = "it was not needed: the numbers are eager's"


def _settled(_: fx.Node, value: Any) -> Any:
    """Waits for the kernels of a node: their error then shows there, and not at a later one."""
    settle()
    return value


def _device_lost(error: Exception) -> str:
    """The reason for a case in which an eager kernel destroyed the device context: any later run would raise the
    same."""
    said = str(error).partition("\n")[0][:600]
    return f"eager itself fails, at {said}; nothing can run on the device after it, so the rung was not run"


def _at(node: fx.Node, name: str = "") -> Where:
    return Where(node.name, line=user_frame(node.meta.get("stack_trace") or "")[0], name=name)


def _repeats(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.shape == other.shape and same_bits(tensor, other)
