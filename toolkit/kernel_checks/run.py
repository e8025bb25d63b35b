# pyright: basic
"""A graph's Triton kernels interpreted and checked, in this process, which a compile may change: a child does it for
commands.

For example:

    report = checked(case.live())
    [(fault.kind, fault.kernel, fault.line, fault.nodes) for fault in report.findings]
    # [('load', 'triton_poi_fused_index_2', 14, ['index', 'add_1'])]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import fx

from ...dumps.wording import counted
from ..judging.judge import judge
from ..judging.missing import missing
from ..live.case import Live
from ..live.eager import clone_inputs, copy_graph
from ..live.entries import shared_fakes
from ..live.execution import execute
from ..live.rung import Compiled
from ..live.spec import ReplaySpec, in_force, no_caches, settings
from ..rungs.triton_interpret import TritonInterpret
from ..triton.interpreting.builder import Builder
from ..triton.interpreting.session import Interpretation
from ..verdicts.outcome import Outcome
from ..verdicts.signature import from_exception
from ..verdicts.verdict import WHOLE, judged, skipped
from .findings import CheckedKernels
from .tracking import checking_builder
from .watching import Checking
from .wrapper import Wrappers

Edit = Callable[[str, str], str]
NO_REUSE = {"inductor": {"allow_buffer_reuse": False}}
"""Settings: a reused buffer would hide that an element was never written. Kernels that mutate a buffer still reuse
it."""


_SHORT_S = 2.0


class CheckedRung(TritonInterpret):
    """Runs the compiled program twice: by the plain interpreter, for its time, then checked."""

    def __init__(self, kernel: str | None, edit: Edit | None, *, plain: bool) -> None:
        self.kernel, self.edit, self.plain = kernel, edit, plain
        self.checking: Checking | None = None
        self.known: Interpretation | None = None
        self.seconds_plain: float | None = None
        self.seconds_checked = 0.0

    def session(self) -> Interpretation:
        assert self.checking is not None
        interpretation = Interpretation(self.checking, edit=self.edit)
        self.known = self.known or interpretation
        return interpretation

    @contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        wrappers, first = Wrappers(), self.checking
        self.checking = checking = Checking(wrappers, self.kernel)
        try:
            with settings(NO_REUSE), wrappers.open(), super().around(gm, spec), checking_builder(checking):
                yield
        finally:
            self.checking = first or checking

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        compiled = super().build(gm, fake_inputs, spec)
        checking = self.checking
        assert checking is not None

        def run(inputs: list[Any]) -> Any:
            if self.plain and self.seconds_plain is None and not self.seconds_checked:
                self._plainly(compiled, inputs, checking)
            began = time.perf_counter()
            outputs = compiled(inputs)
            self.seconds_checked = self.seconds_checked or time.perf_counter() - began
            return outputs

        return run

    def _plainly(self, compiled: Compiled, inputs: list[Any], checking: Checking) -> None:
        """Measures the plain interpreter on copies; None where it stops at a fault."""
        state = torch.get_rng_state()
        try:
            self.seconds_plain = self.timed(compiled, inputs, checking)
            if self.seconds_plain < _SHORT_S:  # the very first run also loads code and fills caches
                self.seconds_plain = self.timed(compiled, inputs, checking)
        except Exception:  # noqa: BLE001  the checked run will report it
            self.seconds_plain = None
        finally:
            torch.set_rng_state(state)

    def timed(self, compiled: Compiled, inputs: list[Any], checking: Checking) -> float:
        """Seconds of a run that is not checked. Raises what it raises."""
        given = clone_inputs(inputs)
        checking.active = False
        began = time.perf_counter()
        try:
            with checking_builder(None, Builder):
                compiled(given)
            return time.perf_counter() - began
        finally:
            checking.active = True
            if self.known is not None:
                self.known.launches = 0


def checked(
    case: Live, *, kernel: str | None = None, edit: Edit | None = None, plain: bool = True, seed: int = 0
) -> CheckedKernels:
    """Compiles, interprets and checks a graph's kernels. `kernel`: only that one; `edit(name, source)`: returns another
    source for a kernel; `plain`: also time the plain interpreter. Results are judged as in `replay`; where they depart,
    the first such kernel is blamed."""
    from .departing import departures, eager_beside

    rung = CheckedRung(kernel, edit, plain=plain)
    outcome = judge(case, rung, "numbers", seed=seed)
    alone = outcome.signature is not None and outcome.signature.stage in ("", "eager", "reference")
    if alone:  # kernels can be checked even where eager fails
        outcome = _unjudged(rung, case, seed, outcome)
    report = CheckedKernels(
        seconds_plain=rung.seconds_plain, seconds_checked=rung.seconds_checked, verdict=outcome.text
    )
    checking = rung.checking
    if checking is None:
        report.cannot = outcome.text
        return report
    report.kernels, report.launches, report.calls = len(checking.kernels), checking.launches, checking.calls
    if _stopped(outcome):
        report.cannot = outcome.text
    all_found = checking.findings()
    eager_beside(checking)
    if not report.cannot and outcome.signature is not None:
        around = partial(TritonInterpret.around, rung, case.gm, case.spec)
        departing = departures(rung.known, checking, outcome.text, around)
        kernels = {finding.kernel for finding in all_found if not finding.note}
        all_found += [finding for finding in departing if finding.kernel not in kernels]
    report.findings = [finding for finding in all_found if not finding.note]
    report.notes = [finding for finding in all_found if finding.note]
    report.unchecked = _unchecked(checking, kernel)
    if alone:
        report.unchecked.append(f"the numbers of the results: {outcome.text}")
    report.names = list(rung.known.kernels) if rung.known is not None else []
    report.wrong = outcome.signature is not None and not report.cannot and not report.findings
    return report


def _unjudged(rung: CheckedRung, case: Live, seed: int, refused: Outcome) -> Outcome:
    """Runs the rung though eager cannot run the graph. The verdict stays the refusal, unless the rung raises."""
    rung.checking = rung.known = None
    gm, spec = case.gm, case.spec
    try:
        with settings(spec.config), no_caches(), in_force(spec), rung.around(gm, spec):
            copy = copy_graph(gm)
            fakes = shared_fakes(copy, case.inputs, spec.dynamic)[0]
            execute(rung.build(copy, fakes, spec), clone_inputs(case.inputs), seed=seed)
    except Exception as error:  # noqa: BLE001  whatever it raises is reported
        if reason := missing(error):
            return Outcome(skipped(reason))
        signature, reason = from_exception(error, "run"), f"{type(error).__name__}: {error}"[:500]
        return Outcome(judged(signature, rung.name, reason=reason, detail=WHOLE), signature)
    return Outcome(refused.verdict)


def _stopped(outcome: Outcome) -> bool:
    """Whether the kernels did not run to their end."""
    return outcome.verdict.skipped or (outcome.signature is not None and outcome.signature.stage != "compare")


def _unchecked(checking: Checking, kernel: str | None) -> list[str]:
    sentences: list[str] = []
    if checking.calls:
        most = ", ".join(name for name, _ in checking.operators.most_common(3))
        sentences.append(f"{counted(checking.calls, 'library call')} ({most}) ran as torch's own on the CPU")
    if kernel is not None:
        sentences.append(f"kernels other than {kernel}")
    return sentences
