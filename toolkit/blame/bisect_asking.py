"""Asks the fork server for the probes of one bisect, keeps their list, and knows what the failure to look for is.

Also: the settings that bisect tries, best work-around first, with what it means when one of them makes the failure go
away.

Does not decide what to try next. Every probe has the same graph, inputs and seed; eager's results and the float64
reference are computed once and kept in a file of the server.

For example:

    asking.reproduce()
    asking.probe(Trial("pass off", [Off("post_grad_passes", off=["forward:remove_noop_ops#0"])]))  # -> 'gone'
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...dumps.errors import EnvironmentLackError
from ..isolation import ForkServer, ask
from ..live.rung import Around, Compiled, Rung
from ..live.spec import FULL_STAGES, default_of, setting
from ..replaying.replay import How, outcome_of
from ..verdicts.outcome import Outcome
from ..verdicts.signature import RAISED_TOO, Signature, how_ended
from ..verdicts.verdict_words import PROBES, headline
from .bisect_records import Application, Bisection, Clock, Effect, Trial, TrialResult

if TYPE_CHECKING:
    from torch import fx

    from ...dumps.store import SavedGraph
    from ..live.spec import ReplaySpec


class Setting(NamedTuple):
    """One setting with the value to try, and the part of the compiler that it changes."""

    room: str
    name: str
    value: Any
    means: str = ""

    def text(self) -> str:
        """The setting as a line of Python."""
        return f"torch.{'_' + self.room}.config.{self.name} = {self.value!r}"


_MEANS = {
    "fallback_random": "Inductor's own random numbers, which differ from eager's by design",
    "emulate_precision_casts": "intermediate values that stay in float32 where eager rounds each to the low precision",
    "layout_optimization": "the choice of channels-last layouts",
    "comprehensive_padding": "the padding of strides",
    "cse": "AOTAutograd's common subexpression elimination",
}

_MORE: tuple[tuple[str, Any, str], ...] = (
    ("eager_numerics.division_rounding", True, "divisions that are rounded differently from eager's"),
    ("eager_numerics.disable_ftz", True, "subnormal numbers that are flushed to zero"),
    ("eager_numerics.use_pytorch_libdevice", True, "another libdevice than PyTorch's own kernels use"),
    ("cpp.simdlen", 0, "the vectorised form of the generated C++"),
    ("cpp.enable_loop_tail_vec", False, "the masked vector code of loop tails"),
    ("cpp.enable_tiling_heuristics", False, "the choice of tiles for vectorised loops"),
    ("cpp.enable_floating_point_contract_flag", "off", "fused multiply-add by the C++ compiler"),
    ("cpp.enable_unsafe_math_opt_flag", False, "unsafe math optimisations of the C++ compiler"),
    ("cpp.use_decompose_tanh", True, "the vector library's tanh"),
    ("cpp.fallback_scatter_reduce_sum", True, "Inductor's scatter_reduce on the CPU"),
    ("cpp.dynamic_threads", True, "the number of threads compiled into the code"),
    ("cpp.enable_grouped_gemm_template", False, "the grouped matrix multiplication template"),
    ("cpp.enable_concat_linear", False, "linear layers joined into one"),
    ("cpp.weight_prepack", False, "prepacked weights"),
    ("epilogue_fusion", False, "fusion into the end of matrix multiplications"),
    ("prologue_fusion", False, "fusion into the start of matrix multiplications"),
    ("max_fusion_size", 1, "fusion of kernels"),
    ("loop_ordering_after_fusion", False, "the reordering of loops to fuse more"),
    ("loop_index_inversion_in_fusion", False, "the inversion of loop indices to fuse more"),
    ("pick_loop_orders", False, "the choice of loop orders"),
    ("combo_kernels", False, "kernels joined side by side"),
    ("split_reductions", False, "reductions in several steps"),
    ("unroll_reductions_threshold", 1, "small reductions that are unrolled"),
    ("online_softmax", False, "softmax in one pass"),
    ("inplace_buffers", False, "buffers written in place"),
    ("allow_buffer_reuse", False, "the reuse of buffers"),
    ("inplace_padding", False, "padding in place"),
    ("memory_planning", False, "memory planning"),
    ("reorder_for_peak_memory", False, "kernels reordered for less memory"),
    ("shape_padding", False, "padded matrix multiplications"),
    ("optimize_scatter_upon_const_tensor", False, "the rewrite of scatters onto constants"),
    ("keep_output_stride", True, "outputs with other strides than eager's"),
    ("max_autotune", False, "kernels chosen by measuring"),
    ("max_autotune_gemm", False, "matrix multiplications chosen by measuring"),
    ("coordinate_descent_tuning", False, "tuning of kernels by measuring"),
    ("triton.persistent_reductions", False, "persistent reductions"),
    ("triton.cooperative_reductions", False, "cooperative reductions"),
    ("triton.multi_kernel", 0, "several versions of one kernel"),
    ("triton.cudagraphs", False, "CUDA graphs"),
    ("triton.cudagraph_trees", False, "the tree of CUDA graphs"),
    ("use_fast_math", False, "fast math in Triton"),
    ("assume_aligned_inputs", False, "the assumption that inputs are aligned"),
    ("freezing", False, "frozen weights"),
    ("joint_graph_constant_folding", False, "constant folding in the joint graph"),
    ("reorder_for_locality", False, "nodes moved towards their uses"),
    ("pattern_matcher", False, "Inductor's pattern matcher as a whole"),
    ("use_pre_grad_passes", False, "Inductor's pre-grad passes as a whole"),
    ("use_joint_graph_passes", False, "Inductor's joint passes as a whole"),
    ("cpp_wrapper", False, "the C++ wrapper"),
)
"""More settings of Inductor to try, after those of torch's bisector: name, value, what it changes."""


Narrate = Callable[[str], None]


def to_try(of_torch: Sequence[tuple[str, str, Any]]) -> list[Setting]:
    """The settings to try: those of torch's bisector, then those of this module. `parts` keeps those that this torch
    has."""
    own = [Setting(room, name, value, _MEANS.get(name, "")) for room, name, value in of_torch]
    known = {setting.name for setting in own if setting.room == "inductor"}
    return [*own, *(Setting("inductor", *row) for row in _MORE if row[0] not in known)]


class Parts(msgspec.Struct):
    """What bisect can change in this torch's compiler for one graph. `settings`: those to try that this torch has and
    that have another value now (recorded, else torch's); `own`: the run's own settings that shape what a graph compiles
    to, each with the Python line that resets it; `subsystems`: those whose applications can be switched off one by one,
    in order of compilation.
    """

    settings: list[Setting]
    own: dict[str, str]
    subsystems: list[str]


def parts(payload: dict[str, Any]) -> dict[str, Any]:
    """Runs in a child: returns the Parts for the recorded settings, as plain values."""
    from ...dumps.permitted import of_the_process
    from ...dumps.program.entering import SET_BY_TORCH
    from . import switching

    config = payload["config"]
    usable: list[Setting] = []
    for candidate in to_try(switching.config_changes()):
        has, now = setting(candidate.room, candidate.name)
        if has and config.get(candidate.room, {}).get(candidate.name, now) != candidate.value:
            usable.append(candidate)
    rows = [(room, name, *default_of(room, name)) for room, names in config.items() for name in names]
    own = {
        f"{room}.{name}": Setting(room, name, default).text()
        for room, name, has, default in rows
        if has and name not in SET_BY_TORCH.get(room, ()) and not of_the_process(name)
    }
    return msgspec.to_builtins(Parts(usable, own, switching.subsystems()))


TASK, PARTS = f"{__name__}:task", f"{__name__}:parts"

_OF_INDUCTOR = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """Runs in a child: loads the graph, applies the trial's changes and judges it; returns an Outcome as plain
    values."""
    from ..isolation.child import mark, report
    from ..judging.judge import judge
    from ..live.case import Case
    from ..rungs import rung
    from . import switching
    from .uncompiled import Uncompiled

    mark("load")
    trial = msgspec.convert(payload["trial"], Trial)
    for op in trial.fall_back:
        switching.fall_back(op)
    for op in trial.undecomposed:
        switching.without_decomposition(op)
    case = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    config = {room: dict(values) for room, values in case.spec.config.items()}
    for room, values in trial.settings.items():
        config.setdefault(room, {}).update(values)
    for name in trial.defaults:
        room, _, name = name.partition(".")
        config.setdefault(room, {})[name] = default_of(room, name)[1]
    case = dataclasses.replace(case, spec=msgspec.structs.replace(case.spec, config=config))
    inner = Uncompiled(rung(trial.rung), trial.uncompiled) if trial.uncompiled else rung(trial.rung)
    with tempfile.TemporaryDirectory() as folder:
        asked = _TrialSwitch(trial, report)
        with switching.asking(asked, folder):
            counted, shared = _Counted(inner, asked.begin), Path(payload["shared"])
            outcome = judge(case, counted, payload["check"], seed=payload["seed"], shared=shared)
    outcome.notes = [*case.notes, *outcome.notes]
    outcome.outputs = None
    return msgspec.to_builtins(outcome)


class _Counted(Around):
    """A rung that resets the counts of applications before each compile: a graph that draws random numbers is compiled
    twice."""

    def __init__(self, inner: Rung, begin: Callable[[], None]) -> None:
        super().__init__(inner)
        self.begin = begin

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        self.begin()
        return self.inner.build(gm, fake_inputs, spec)


class _TrialSwitch:
    """Decides by the trial whether an application is switched off, and reports each application once."""

    def __init__(self, trial: Trial, report: Callable[[Application], object]) -> None:
        self.report = report
        self.rules = {rule.subsystem: rule for rule in trial.off}
        self.known: set[tuple[str, str]] = set()
        self.begin()

    def begin(self) -> None:
        """Starts the counts of a new compile."""
        self.seen: Counter[str] = Counter()
        self.under_required = False

    def __call__(self, asked: Application) -> bool:
        from . import switching

        named = asked.label or asked.name if asked.subsystem == "lowerings" else asked.name
        stem = f"{asked.half}:{named}"
        key = f"{stem}#{self.seen[f'{asked.subsystem} {stem}']}"
        index = self.seen[asked.subsystem]
        self.seen.update([f"{asked.subsystem} {stem}", asked.subsystem])
        required = asked.subsystem in _OF_INDUCTOR and switching.required(asked.name)
        if asked.subsystem in _OF_INDUCTOR:
            self.under_required = required
        elif asked.subsystem == switching.PATTERNS:  # matches inside a required pass are required too
            required = self.under_required or switching.required(asked.name)
        elif asked.subsystem == "lowerings":
            required = asked.name.startswith("prims.inductor_")  # eager would draw other random numbers
        if (asked.subsystem, key) not in self.known:
            self.known.add((asked.subsystem, key))
            self.report(msgspec.structs.replace(asked, key=key, index=index, required=required))
        if required or asked.subsystem not in self.rules:
            return False
        rule = self.rules[asked.subsystem]
        if rule.keep is not None:
            return key not in rule.keep
        return key in rule.off or asked.name in rule.names


TASKS = (TASK, f"{__package__}.switching")
"""What a server should import once for a bisect."""

_LIKE, _SMALLER = 10.0, 1e3
"""Two errors of an output are the same if the new one is at most ten times the old one and at least a thousandth of
it."""


class BisectQuestions:
    """Makes the probes of one bisect and keeps them in its `result`. `reason` says why the last `probe_rung` was not
    made."""

    def __init__(
        self, saved: SavedGraph, server: ForkServer, rung: str, narrate: Narrate, how: How, check: str, clock: Clock
    ) -> None:
        self.saved, self.rung, self.reason = saved, rung, ""
        self.result = Bisection(saved.id, saved.stage, rung)
        self.server, self.narrate, self.how, self.check, self.clock = server, narrate, how, check, clock
        self._shared = server.scratch_file(".baseline")
        self._payload = {**how.payload(saved), "check": check, "shared": str(self._shared)}
        self._wanted: Signature | None = None
        self._errors: dict[str, float] = {}
        self._known: dict[bytes, Effect] = {}
        self.log: list[Application] = []

    def reproduce(self) -> None:
        """Judges the graph as it is, and lists everything that its compile applies."""
        began = time.monotonic()
        outcome, self.log = self._judged(Trial("as it is"))
        self.result.notes = [*outcome.notes]
        self.result.failure = headline(outcome.verdict)
        self.result.reproduced, self.result.verdict = outcome.verdict.sought(self.check), outcome.verdict
        self._wanted = outcome.signature
        self._errors = {error.name: error.rung for error in outcome.errors if error.rung is not None}
        self.narrate(f"as it is: {self.result.failure} ({time.monotonic() - began:.1f} s)")

    @cached_property
    def parts(self) -> Parts:
        """What can be changed in the compile of the graph. Raises EnvironmentLackError where the child that lists it
        fails."""
        payload = {"imports": self._payload["imports"], "config": self.saved.record.config}
        answer = ask(PARTS, payload, self.how.limit_s, server=self.server).end()
        if answer.status != "done":
            raise EnvironmentLackError("cannot list the settings of torch", how_ended(answer), "give it more --limit")
        parts = msgspec.convert(answer.value, Parts)
        if self.saved.stage not in FULL_STAGES | {"joint", "inference"}:  # random ops are Inductor's own by then
            parts.settings = [setting for setting in parts.settings if setting.name != "fallback_random"]
        return parts

    def applications(self, subsystem: str) -> list[Application]:
        """What the graph's own compile applied in a subsystem, in order."""
        return [application for application in self.log if application.subsystem == subsystem]

    def probe(self, trial: Trial) -> Effect:
        """Makes one probe; the same trial is not made twice. Raises OutOfTime."""
        key = msgspec.json.encode(msgspec.structs.replace(trial, what=""))
        if key in self._known:
            return self._known[key]
        began = time.monotonic()
        outcome = self._in_time(trial)
        seconds = time.monotonic() - began
        verdict, text = self._noted(trial, outcome, seconds)
        seen = f" ({text[:90]})" if verdict == "other" else ""
        self.narrate(f"{trial.what}: {PROBES[verdict][0]}{seen} ({seconds:.1f} s)")
        self._known[key] = verdict
        return verdict

    def probe_rung(self, rung: str) -> Effect | None:
        """Judges the graph under another rung; None, with a `reason`, where that rung cannot run."""
        trial = Trial(f"rung {rung}", rung=rung)
        outcome = self._in_time(trial)
        self.reason = outcome.text if outcome.verdict.skipped else ""
        if self.reason:
            return None
        verdict, text = self._noted(trial, outcome, outcome.seconds)
        self.narrate(f"{trial.what}: {verdict}{': ' + text if text else ''}")
        return verdict

    def close(self) -> None:
        """Removes the shared file."""
        self._shared.unlink(missing_ok=True)

    def _in_time(self, trial: Trial) -> Outcome:
        self.clock.check()
        return self._judged(trial)[0]

    def _noted(self, trial: Trial, outcome: Outcome, seconds: float) -> tuple[Effect, str]:
        """Appends a probe to the result; returns its effect, and its failure in words."""
        verdict: Effect = "other"
        signature, text = outcome.signature, outcome.text
        wants_error = self._wanted is not None and self._wanted.kind == "missing_error"
        raises = wants_error and signature is not None and signature.detail == RAISED_TOO
        if raises or (outcome.ok and not outcome.verdict.sought(self.check)):
            verdict, text = "gone", ""
        elif signature is not None:
            text = signature.text()
            if self._wanted is not None and same_failure(self._wanted, self._errors, signature):
                verdict = "same"
        self.result.probes.append(TrialResult(trial.what, verdict, text, round(seconds, 3), trial.off, trial.settings))
        return verdict, text

    def _judged(self, trial: Trial) -> tuple[Outcome, list[Application]]:
        trial = msgspec.structs.replace(trial, rung=trial.rung or self.rung)
        payload = {**self._payload, "trial": msgspec.to_builtins(trial)}
        asked = ask(TASK, payload, self.how.limit_s, server=self.server)
        log = msgspec.convert(list(asked), list[Application])
        return outcome_of(asked.end(), trial.rung), log


def same_failure(wanted: Signature, errors: Mapping[str, float], now: Signature) -> bool:
    """Whether a probe fails in the same way as the unchanged graph. `errors`: the errors of that graph's outputs, by
    name.

    A signature names only the first wrong output. A probe that names a later one is the same failure too, if that
    output was about as wrong before.
    """
    if wanted.same_as(now):
        return True
    if now.size is None or (now.kind, wanted.kind) != ("accuracy", "accuracy"):
        return False
    before = next((error for name, error in errors.items() if now.raw.startswith(f"{name}: ")), 0.0)
    return now.size / _LIKE <= before <= now.size * _SMALLER
