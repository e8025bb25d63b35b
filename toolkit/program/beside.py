# pyright: basic
"""Runs one call again beside the program's own: under each rung from the same start, comparing what it leaves with what
eager leaves; then the same for the backward that goes through the call's results.

For the backward, each rung runs forward and backward again, one rung after the other, so that only one set of saved
tensors is held. The program's state is restored afterwards.

For example:

    beside = Beside(shadow, asked, call, start)
    beside.forward(); result = compiled(*args, **kwargs); beside.own(beside.now(result)); beside.watch(result)
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.nn.parallel import DistributedDataParallel

from ...dumps.torchside.history import leaf_of
from ...dumps.torchside.values import storage_key
from ...dumps.wording import listed
from .. import torch_private as t
from ..live import torch_state
from ..live.eager import clone_inputs
from ..live.execution import same_bits, settle
from ..live.spec import modes
from ..numerics.comparison import significant_strides
from ..verdicts.mismatches import NodeMismatch
from ..verdicts.verdict import OK, Verdict, cannot_tell
from . import aside, comparing
from .comparing import Left, Narrow, Rounding
from .operators import POISONS, Poison, WaitForDevice, Watching, draws, first_difference
from .records import AS_COMPILED, DRAWN, FILTERED, FROZEN, NO_GRAPH, PROGRAM, Call, CallRung, trace_of
from .repro import stance
from .start import ABSENT, PYTHON, StartState, counts, leaves_of

if TYPE_CHECKING:
    from .shadowing import Asked, Shadow


TRIES, SURE = 10, 4
"""Before a rung is accused, eager runs again at most TRIES times, until the rung has repeated its result SURE times."""
_UNWRITTEN = (
    ": it depends on memory that nothing wrote, that of torch.empty say, of which a kernel of the program's own may "
    "leave a part as it is; torch.utils.deterministic.fill_uninitialized_memory shows it"
)


_FIRST = (
    ": the runs after the first agree, so it may be what is set up in the first: triton.autotune, say, runs a kernel "
    "many times to choose (name what it adds to in reset_to_zero, what else it writes in restore_value)"
)
_UNWAITED = (
    ": it repeats itself where the device is waited for after each operation, so something is read before it is there: "
    "on another stream (wait_stream), or after a copy with non_blocking=True (synchronize)"
)


_Leaves = list[tuple[str, torch.Tensor]]


def _on_device(part: str) -> Callable[..., Any]:
    """Decorates a run under a rung: it raises `Lost` where the run destroys the device context."""

    def made(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def ours(self: Beside, rung: str, *args: Any, **how: Any) -> Any:
            try:
                left = run(self, rung, *args, **how)
                settle()
            except torch.AcceleratorError as error:
                raise aside.Lost(part, rung, error) from error
            error = (left if isinstance(left, Left) else left[0]).error
            handled = sys.exc_info()[1]  # an exception that the program itself is handling
            while error is not None and error is not handled:  # its frames hold the run's tensors
                traceback.clear_frames(error.__traceback__)
                error = error.__cause__ or error.__context__
            return left

        return ours

    return made


def _memory(tensor: torch.Tensor) -> int:
    """What tells the memory of a plain tensor from that of others; 0 for other tensors, and where there is none."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return storage_key(tensor) if plain and tensor.numel() and not tensor.is_meta else 0


def _broadcasts(replica: DistributedDataParallel) -> bool:
    return replica.broadcast_buffers and any(True for _ in replica.module.buffers())


class Beside:
    """One call of the program, and the runs beside it."""

    def __init__(self, shadow: Shadow, asked: Asked, call: Call, start: StartState) -> None:
        self.shadow, self.asked, self.function, self.call = shadow, asked, asked.function, call
        self.start: Any = start
        self.place = {id(tensor): name for name, tensor in start.reached.tensors}
        self.ambient = torch_state.ambient(seed=False)
        self.given: dict[int, torch.Tensor] = {}
        self.theirs: dict[int, tuple[str, weakref.ref[torch.Tensor]]] = {}
        """The name of each result and the gradient that arrived at it, which lives on where the program holds it."""
        self.queued = self.drawn = self.spoilt = self.plain = False
        self.as_compiled = False
        """Whether eager runs take the branch of compiled code, as if `torch.compiler.is_compiling()`."""
        self.poisoned: dict[str, bool] = {}
        """Part -> whether eager's results were seen to depend on uninitialised memory."""
        self.outputs = 0
        self.copies: dict[int, torch.Tensor] = {}
        self.ends: dict[str, Any] = {}
        """Rung -> the states of the random generators after its last run."""
        self.compared: Callable[[Left], CallRung] | None = None
        self.eager: dict[str, Any] = {}
        self.touched: set[Any] = set()
        self.outside: list[str] = []
        self.raised = False
        """Whether a rung raised an exception."""

    def keep(self) -> None:
        """Keeps the call's inputs and state for a program that reproduces the failure, and writes that program where
        the call departs."""
        with aside.quiet():
            self.function.kept.call(self.asked, self.start, self.ambient, self.touched, bool(self.call.failed))
        self.start.put_back()
        self.write_repro({})

    def write_repro(self, given: dict[int, torch.Tensor]) -> None:
        """Writes a program that reproduces the departure, where the call departs and no program was written yet.
        `given`: the gradients that arrived at the call's results, by position."""
        if (failed := self.call.failed) is None or self.call.repro or self.call.unsaid:
            return
        folder = self.shadow.folder / f"repro-{self.call.key.replace(':', '-')}"
        self.call.unsaid = self.function.kept.write(folder, self.call, failed, self.function, given, self.plain)
        self.call.repro = str(folder) if folder.exists() else ""
        self.shadow.write(self.call)

    def forward(self) -> None:
        """Runs the call under each rung and compares the results with eager's."""
        before = aside.collectives()
        eager, _ = self._run("eager", alone=True)
        if aside.collectives() != before:
            self.call.why = "it talks to other processes"
            return
        self.eager, self.drawn = eager.values if eager.error is None else {}, self.start.random.moved()
        if self.drawn and not t.inductor_config.fallback_random:
            self.call.notes.append(DRAWN)
        self.call.notes += [f"its guard_filter_fn{FILTERED}"] if self.function.filtered else []
        if getattr(t.optional("eval_frame_stance"), "skip_guard_eval_unsafe", False):
            self.call.notes.append(f"the stance skip_guard_eval_unsafe{FILTERED}")
        freezing = getattr(self.function.backend, "config", {}).get("freezing", t.inductor_config.freezing)
        self.call.notes += [FROZEN] if freezing and not self.ambient.grad else []
        outside = self.outside
        self._judge("", eager)
        if not self.function.graphs and not self.raised:
            self.call.notes.append(f"{NO_GRAPH} (TORCH_LOGS=graph_breaks says why)")
        if outside and not any(row.verdict.failed for row in self.call.rows):
            self.call.why = f"it changes {', '.join(outside[:4])} (neither arguments nor results of the call)"

    def _judge(self, part: str, eager: Left, other: Left | None = None, known: Any = None) -> None:
        """Judges each rung of a part. Where Dynamo alone (which runs eager's operators) leaves the same bits as eager,
        eager counts as repeatable until a rung departs. `other`: an eager run seen to differ in an earlier attempt;
        `known`: value -> by how much earlier attempts saw eager differ."""
        run, note = functools.partial(self._left_by, part), self.call.notes.append
        self.call.rows = [row for row in self.call.rows if row.part != part]  # of an attempt beside an unstable eager
        begun = run(self.function.names[0])
        same = eager.error is begun.error is None and eager.text == begun.text
        same = same and comparing.agree(eager.values, begun.values)
        again = other or (begun if same else run("eager"))
        if self._is_spoilt(part, eager, begun, again):
            self.spoilt, again = True, eager
            note("the compile that failed left torch in a state in which eager fails, too")
        loose = {} if same and not other else comparing.unsteady(eager.values, again.values)
        loose |= {name: max(far, loose.get(name, 0.0)) for name, far in (known or {}).items()}
        sample = functools.cache(lambda seed: run("eager", rounded=seed))

        @functools.cache
        def noise(count: int) -> dict[str, Any]:
            samples = [sample(seed) for seed in range(count)]
            if all(left.error is not None for left in samples):
                note(f"what rounding may do is not known: a run for it raises {comparing.said(samples[0].error)}")
            rounding = comparing.noise_of(eager.values, [left.values for left in samples if left.error is None])
            self.function.levels.update(comparing.levels_of(part, eager.values, rounding))
            return rounding

        if other is None and max(loose.values(), default=0.0) > comparing.UNSTABLE:
            noise(1)  # what rounding moves much further than eager's own kernels do, as sums in no fixed order
            levels = self.function.levels
            loose = {name: far for name, far in loose.items() if far > comparing.least(levels, part, name)}
        first = CallRung("eager", OK, part, seconds=round(eager.seconds, 4))
        self._repeats(first, eager, again, loose)
        self.call.rows.append(first)
        if not part and eager.error is not None:
            self.call.raises, self.call.said = type(eager.error).__name__, comparing.said(eager.error)
        floats = {name: value for name, value in eager.values.items() if comparing.is_float(value)}
        self.call.nan = self.call.nan or next((name for name, value in floats.items() if value.isnan().any()), "")
        if eager.text != again.text:
            note("what it prints differs between two runs of eager")

        def compared(got: Left, rung: str = self.function.last) -> CallRung:
            key = self.function.key(rung)
            levels = self.function.levels
            return comparing.judged(rung, key, part, eager, got, loose, noise, levels, alone)

        @functools.cache
        def alone() -> dict[str, Any]:
            return run("eager", mode=Narrow()).values

        if not part:
            self.compared = compared
        failed: list[CallRung] = []
        if first.verdict.verdict == "nondeterministic" and (eager.error or again.error) is not None:
            return
        for rung in self.function.names:
            if time.monotonic() > self.shadow.until:
                note(f"the time was over before {rung}")
                break
            got = begun if rung == self.function.names[0] else run(rung)
            row = compared(got, rung)
            if (unlike := self._unlike(row, eager, got)) is not None:
                self.function.levels.clear()  # the levels may come from such an unrepeatable run
                self._judge(part, eager, unlike, loose)
                return
            if row.verdict.failed and got.error is not None and not part and self._of_backward(got.error):
                row.verdict = Verdict("ok", reason=f"eager raises {type(got.error).__name__} too, in its backward")
                note(f"{rung} raises what eager raises in its backward")
            self.call.rows.append(row)
            self.raised |= got.error is not None
            if got.error is None and got.text != eager.text and part == "":
                note(f"{rung} prints other text than eager")
            failed += [row] if row.verdict.failed else []
            if not failed and (moved := got.restrided(eager)) and moved not in "".join(self.call.notes):
                note(f"from {rung} on {moved}")
            if self.shadow.go_on and rung == self.function.last and got.error is None:
                row.differences = comparing.differences(eager.values, got.values)
        if failed and (rung := failed[0].rung) == self.function.names[0] and not (self.as_compiled or self.spoilt):
            self.as_compiled = True
            other = run("eager")
            row = comparing.judged(rung, "dynamo", part, other, begun, {}, noise, self.function.levels)
            if not row.verdict.failed:
                note(AS_COMPILED)
                self.eager = self.eager if part else other.values
                self._judge(part, other)
                return
            self.as_compiled = False
        if not failed and first.verdict.verdict == "nondeterministic" and len(loose) == len(eager.values):
            self.call.rows = [row for row in self.call.rows if row.part != part or row is first]  # they prove nothing
        if self._accused(part, failed):
            self._departs(part, compared)
        if self.shadow.go_on:
            with contextlib.suppress(Exception):
                first.differences = comparing.differences(eager.values, run("eager", rounded=0).values)
        self.shadow.write(self.call)

    def _accused(self, part: str, failed: list[CallRung]) -> list[CallRung]:
        """Returns the departing rungs that show a fault in what the program runs. A departure of the others becomes a
        note and counts as ok, or as cannot_tell where the rung draws other random numbers."""
        own = self.call.rows[-1].verdict
        for row in failed:  # Dynamo's eager backend draws another dropout in a checkpoint, say
            raises = own.failed and row.verdict.kind == "crash" and own.kind != "crash"
            if raises or not own.failed:
                but = "the program's compiled code does not"
                differs = "raises something" if raises else "differs from eager"
                self.call.notes.append(f"{row.rung} alone {differs} ({row.verdict.reason}); {but}")
                row.verdict = Verdict("ok", reason=f"this rung alone differs; {but}")
        failed = [row for row in failed if row.verdict.failed]
        if not failed or not self.drawn or not self._draws_otherwise(failed):
            return failed
        names = ""
        with contextlib.suppress(Exception):  # the cause is known without the names
            names = listed(draws(lambda mode: self._left_by(part, "eager", mode=mode)), 3)
        drawn = f"it draws other random numbers than eager, whose are from {names or 'other kernels'}"
        self.call.why = f"{drawn}; without those draws (dropout at 0, say) it can be judged"
        for row in failed:
            row.verdict = cannot_tell(self.call.why)
        return []

    def _draws_otherwise(self, failed: list[CallRung]) -> bool:
        """Whether all these rungs depart in numbers alone, and each draws random numbers but leaves the generators in
        other states than eager: its kernels draw other numbers, which is no fault."""
        numbers = all(row.verdict.kind in ("wrong_numbers", "nan") for row in failed)
        eager, ends = self.ends["eager"], [self.ends[row.rung] for row in failed]
        return numbers and all(eager.unlike(end) and self.start.random.unlike(end) for end in ends)

    def _is_spoilt(self, part: str, eager: Left, begun: Left, again: Left) -> bool:
        """Whether eager passed before a compile that failed, and raises another error in each run since: a failed
        Dynamo trace of `torch.func` leaves its levels on the stack."""
        if eager.error is not None or begun.error is None or again.error is None:
            return False
        errors = [again.error, *(self._left_by(part, "eager").error for _ in range(2))]
        return all(error is not None and comparing.said(error) != comparing.said(begun.error) for error in errors)

    def _repeats(self, first: CallRung, eager: Left, again: Left, loose: dict[str, float]) -> None:
        """Sets eager's own verdict in `first`: nondeterministic where two eager runs differ too far."""
        if (eager.error is None) != (again.error is None):
            raised = type(eager.error or again.error).__name__
            first.verdict = Verdict("nondeterministic", reason=f"eager raises {raised} in one of two runs")
        elif loose:
            first.value, first.error = max(loose.items(), key=lambda pair: pair[1])
            if first.error > comparing.UNSTABLE:
                reason = comparing.unrepeated(first.value, first.error, again.values)
                reason += _UNWRITTEN if self.poisoned.get(first.part) else self._why_unsteady(first.part, first.error)
                first.verdict = Verdict("nondeterministic", reason=reason)

    def _unlike(self, row: CallRung, eager: Left, got: Left) -> Left | None:
        """Reruns eager, and returns the first run that differs from `eager` in the value for which the rung is accused
        (or which rounding is said to move far); first tried with uninitialised memory filled with other bytes. None
        where eager repeats itself until the rung has repeated its own result SURE times, or the tries or the time are
        used up."""
        far = row.verdict.verdict == "rounding" and (row.error or 0.0) > comparing.UNSTABLE
        same, tries = 0, TRIES if (row.verdict.failed or far) and not self.spoilt else 0
        distance = lambda left: comparing.unsteady(eager.values, left.values).get(row.value, 0.0)  # noqa: E731
        least = max(comparing.UNSTABLE, comparing.least(self.function.levels, row.part, row.value))
        most = comparing.MOST if row.verdict.kind == "metadata" else least
        if tries and row.part not in self.poisoned:
            self.poisoned[row.part], least = False, min(most, (row.error or most) / 4)
            for byte in POISONS:
                filled = self._left_by(row.part, "eager", mode=Poison(byte))
                if (moved := distance(filled)) > least:
                    again = max((self._left_by(row.part, "eager") for _ in range(2)), key=distance)
                    self.poisoned[row.part] = moved > 4 * distance(again)  # else eager may differ even without the fill
                    if self.poisoned[row.part] or distance(again) > most:
                        return filled if self.poisoned[row.part] else again
        while tries and same < SURE and time.monotonic() < self.shadow.until:
            again, tries = self._left_by(row.part, "eager"), tries - 1
            if distance(again) > most or (again.error is None) != (eager.error is None):
                return again
            other = got if got.error is not None else self._left_by(row.part, row.rung)
            same += comparing.unsteady(got.values, other.values).get(row.value, 0.0) <= most
        return None

    def _why_unsteady(self, part: str, far: float) -> str:
        """Explains why eager runs differ. `far`: by how much they do; what is seen in two runs that differ by much less
        is not the cause."""
        seen: list[Left] = []
        try:
            difference = first_difference(lambda mode: seen.append(self._left_by(part, "eager", mode=mode)))
        except Exception:  # noqa: BLE001 - eager is known to be unrepeatable without the reason
            return ""
        apart = max(comparing.unsteady(seen[0].values, seen[1].values).values(), default=0.0)
        named = f": {difference}" if difference else ""
        return named if named and apart > far / 100 else self._why_as_a_whole(part) or named

    def _why_as_a_whole(self, part: str) -> str:
        """Explains why eager runs differ where no single operation was seen to: tries what removes or causes the
        difference."""
        measured = functools.partial(self._left_by, part, "eager")
        first = measured().values
        apart = lambda left: max(comparing.unsteady(first, left.values).values(), default=0.0)  # noqa: E731
        own = max(apart(measured()) for _ in range(3))
        if any(apart(measured(mode=Poison(byte))) > max(4 * own, comparing.UNSTABLE) for byte in POISONS):
            return _UNWRITTEN
        if not own:
            return "" if self.call.number else _FIRST
        waited = [measured(mode=WaitForDevice()) for _ in range(4)]
        agree = all(comparing.agree(waited[0].values, left.values) for left in waited[1:])
        return _UNWAITED if agree and torch.cuda.is_available() else ""

    def _of_backward(self, error: BaseException) -> bool:
        """Whether eager's backward from all results raises the same error, up to tensor names: AOTAutograd traces the
        backward during the call."""
        outputs: list[torch.Tensor] = []
        self._run("eager", outputs=outputs)
        self.outputs, self.given = len(outputs), {at: torch.ones_like(tensor) for at, tensor in enumerate(outputs)}
        eager = self._gradients("eager").error if outputs else None
        self.given = {}
        text = str(eager).partition("\n")[0].partition(": [")[0]
        return eager is not None and bool(text) and text in str(error)

    def _departs(self, part: str, compared: Callable[[Left], CallRung]) -> None:
        self.shadow.departed = True
        self.call.operator = self._operator(part)
        self.shadow.write(self.call)
        fresh = self._record(part)
        if fresh is not None:
            self.call.fresh = "departs" if compared(fresh).verdict.failed else "agrees"

    def _operator(self, part: str) -> NodeMismatch | None:
        watching = Watching()
        self._left_by(part, "eager", mode=watching)
        if watching.found is None and watching.unasked and (row := self.call.failed) is not None:
            return watching.unasked if watching.unasked.own[0].got[:40] in row.verdict.reason else None
        return watching.found

    # the program's own

    def now(self, result: Any) -> dict[str, Any]:
        """The values that the program's own call left, named as eager's; empty where other processes took part."""
        replicas = self.start.reached.replicas
        if (replicas and self.start.reached.backward) or any(map(_broadcasts, replicas)):
            return {}
        return self._left(leaves_of(result, "result"), self.asked.args, self.asked.kwargs, own=True)

    def own(self, values: dict[str, Any], *, compiled: bool = False) -> None:
        """Compares the program's own call with eager: it may have used code compiled for an earlier call, or its own
        random numbers of torch or NumPy, where the dtypes alone are compared. `compiled`: whether this call was seen to
        compile."""
        eager, self.eager = self.eager, {}
        named = {name: value for name, value in values.items() if name in eager or comparing.SHARES in name}
        judged, self.compared = self.compared, None
        failed = [row for row in self.call.rows if row.verdict.failed]
        for row in failed:  # a rung draws random numbers as eager does
            if values and row.verdict.reason.endswith(comparing.NOT_EAGER):
                reason = f"{row.verdict.reason}, nor does the program's own call"
                row.verdict = msgspec.structs.replace(row.verdict, reason=reason)
                self.shadow.write(self.call)
        if judged is None or failed:
            return

        drawn = self.start.random.unlike(self.ends["eager"], besides=(PYTHON,))

        def compared(got: Left) -> CallRung:
            return judged(got._replace(values=comparing.in_dtypes(eager, got.values)) if drawn else got)

        left = {**eager, **(comparing.in_dtypes(eager, named) if drawn else named)}
        if not named or (len(left) == len(eager) and comparing.agree(eager, left)):
            return
        after = StartState(self.start.reached)
        try:
            row = compared(Left(left))
            if not row.verdict.failed:
                return
            begun = Left(eager)
            if (unlike := self._unlike(row, begun, Left(named))) is not None:
                self._repeats(self.call.rows[0], begun, unlike, comparing.unsteady(eager, unlike.values))
                self.shadow.write(self.call)
                return
            self.call.compiled |= compiled
            layer = row.verdict.layer if self.call.first else "dynamo"
            row.rung, row.verdict = PROGRAM, msgspec.structs.replace(row.verdict, layer=layer)
            self.call.rows.append(row)
            self.plain = True  # no number that is compared is drawn, so the program's own way to draw is right, too
            self._departs("", compared)
            if self.call.fresh == "departs":  # where it draws in eager's way it does not
                row.rung = self.function.last
                self.call.rows = [other for other in self.call.rows if other is row or other.rung != row.rung]
            self.shadow.write(self.call)
        finally:
            after.put_back()

    # a run

    def _left_by(self, part: str, rung: str, **how: Any) -> Left:
        """Runs the call, or for the part "backward" its backward, and returns what it leaves. `how`: see `_run`."""
        return self._gradients(rung, **how) if part else self._run(rung, **how)[0]

    @_on_device("")
    def _run(
        self,
        rung: str,
        function: Callable[..., Any] | None = None,
        *,
        alone: bool = False,
        rounded: int | None = None,
        outputs: list[torch.Tensor] | None = None,
        mode: Any = None,
    ) -> tuple[Left, _Leaves]:
        """Runs the call once from its start; returns what it leaves, and the leaf tensors that gradients go to.
        `function`: runs in place of the rung's function; `rounded`: seed with which inputs and results are rounded at
        random; `outputs`: a list to extend with the results that require grad, in which case no values are kept;
        `mode`: a dispatch mode."""
        function = function or self.function.call(rung)
        self.shadow.begun(self.call, rung)
        self.start.put_back()
        settings = torch_state.ambient(seed=False)
        torch.clear_autocast_cache()
        args, kwargs, leaves = self._arguments()
        error: BaseException | None = None
        result: Any = None
        mode = mode or contextlib.nullcontext()
        if rounded is not None:
            mode = self._rounding(rounded)
            state = [tensor for _, tensor in self.start.reached.tensors if not tensor.is_inference()]
            for tensor in {id(leaf): leaf for leaf in [*(leaf for _, leaf in leaves), *state]}.values():
                mode.move(tensor, given=True)
        began = time.perf_counter()
        hidden, ours = self._unseen(rung), aside.own_hooks()
        with hidden as heard, ours, aside.no_side_effects(alone), modes(self.ambient), aside.dispatch():
            try:
                with mode:
                    result = function(*args, **kwargs)
                settle()
            except Exception as raised:  # noqa: BLE001 - errors are compared, too
                error = raised
                aside.let_go(raised)
        seconds = time.perf_counter() - began
        torch.clear_autocast_cache()
        self.ends[rung] = self.start.random.now()
        named = leaves_of(result, "result")
        if outputs is not None:
            outputs += [output for _, output in named if isinstance(output, torch.Tensor) and output.requires_grad]
        values = {} if outputs is not None else self._left(named, args, kwargs)
        torch_state.put_settings(settings)
        text = heard.getvalue() if rung != "eager" or error is None else ""
        plain = {name: value for name, value in named if type(value) is torch.Tensor and value.layout == torch.strided}
        strides = {name: (significant_strides(tensor), tensor.stride()) for name, tensor in plain.items()}
        return Left(values, error, text, seconds, strides), leaves

    def _rounding(self, seed: int) -> Rounding:
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        return Rounding(seed, on_gpu and self.ambient.tf32)

    @contextlib.contextmanager
    def _unseen(self, rung: str) -> Iterator[io.StringIO]:
        """Hides a rung's run: output, counters and settings of torch are as before afterwards. Yields what the run
        printed."""
        replicas = aside.replicas_alone() if self.start.reached.replicas else contextlib.nullcontext()
        as_compiled = self.as_compiled and rung == "eager"
        path = t.swapped("is_compiling_flag", True) if as_compiled else contextlib.nullcontext()
        trace = aside.traced(trace_of(self.shadow.folder, self.call.pid))
        with trace, aside.quiet() as heard, stance(rung == "eager", self.plain), aside.counters(), replicas, path:
            yield heard

    def _arguments(self) -> tuple[Any, Any, list[tuple[str, torch.Tensor]]]:
        """Returns args, kwargs and all leaf tensors. An argument that is not a leaf is replaced by a copy computed from
        a leaf of its own."""
        whole = (self.asked.args, self.asked.kwargs)
        flat = [tensor for tensor in t.tree_leaves(whole) if isinstance(tensor, torch.Tensor) and not tensor.is_leaf]
        unique = list({id(tensor): tensor for tensor in flat}.values())
        copies = dict(zip(map(id, unique), clone_inputs(unique), strict=True))
        for tensor in unique:
            attributes = {key: value for key, value in tensor.__dict__.items() if "hook" not in key}
            copies[id(tensor)].__dict__.update(attributes)
        args, kwargs = t.tree_map(lambda value: copies.get(id(value), value), whole)
        leaves: Any = [(self.place[id(tensor)], leaf_of(copies[id(tensor)])) for tensor in unique]
        leaves += [
            (name, tensor) for name, tensor in self.start.reached.tensors if tensor.is_leaf and tensor.requires_grad
        ]
        self.copies = copies
        return args, kwargs, leaves

    def _left(self, named: list[tuple[str, Any]], args: Any, kwargs: Any, own: bool = False) -> dict[str, Any]:
        values = {name: comparing.kept(value) for name, value in named}
        tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
        values |= {f"{name}{comparing.REQUIRES}": True for name, tensor in tensors if tensor.requires_grad}
        written, gradients = self.start.written()
        in_place = [(name, tensor) for name, tensor in written if not counts(name, tensor)]
        values.update({f"{name}{comparing.WRITTEN}": comparing.kept(tensor) for name, tensor in in_place})
        given = {id(value): value for value in t.tree_leaves((args, kwargs))} if own else {}
        copies = {self.place[key]: given.get(key, copy) for key, copy in self.copies.items()}
        values.update({f"{name}, as it is afterwards": comparing.kept(copy) for name, copy in copies.items()})
        held = {_memory(tensor): name for name, tensor in [*self.start.reached.tensors, *copies.items()]} | {0: ""}
        shared = [(name, other) for name, tensor in tensors if (other := held.get(_memory(tensor)))]
        values |= {f"{name}{comparing.SHARES}{other}": True for name, other in shared}
        values.update({name: comparing.kept(gradient) for name, gradient in gradients})
        self.touched |= {id(tensor) for _, tensor in written}
        changed = self.start.changed()
        self.touched |= {box.owner[1] if box.kind == "global" else id(box.owner) for box, _, _ in changed}
        parts = {name: after for _, name, after in changed}
        counted = {name: value.cpu() for name, value in [*written, *parts.items()] if counts(name, value)}
        parts = {name: after for name, after in parts.items() if name not in counted} | dict(sorted(counted.items()))
        values.update({name: "nothing" if after is ABSENT else comparing.kept(after) for name, after in parts.items()})
        values |= self.start.switched()
        self.outside = list(dict.fromkeys(box.name for box, _, _ in changed if box.outside))
        return values

    # its backward

    def watch(self, result: Any) -> None:
        """Registers hooks on the results, so that the next backward through them is judged, too."""
        named = [(name, leaf) for name, leaf in leaves_of(result, "result") if isinstance(leaf, torch.Tensor)]
        roots = [(name, tensor) for name, tensor in named if tensor.requires_grad]
        if not roots or self.call.why or (self.shadow.departed and not self.shadow.go_on):
            return
        history = [name for name, tensor in self.start.reached.tensors if tensor.requires_grad and not tensor.is_leaf]
        history = [name for name in history if name not in {self.place[key] for key in self.copies}]
        if history:
            self.call.notes.append(f"gradients are not compared: {history[0]} came out of other operations")
            return
        if torch_state.loaded("compiled_autograd_enabled"):
            self.call.notes.append("gradients are not compared under compiled autograd")
            return
        self.outputs = len(roots)
        for at, (name, root) in enumerate(roots):
            root.register_hook(functools.partial(self._arrived, at, name))

    def _arrived(self, at: int, name: str, gradient: torch.Tensor | None) -> None:
        """Records the gradient that arrived at result number `at`; None where the loss does not use that result."""
        if gradient is None or self.queued is None or self.shadow.ended or self.shadow.over() or aside.watched_by():
            return
        self.given[at], self.theirs[at] = gradient.detach().clone(), (name, weakref.ref(gradient))
        if not self.queued:
            with contextlib.suppress(Exception):
                t.look_up("autograd_engine").queue_callback(self.after)
                self.queued = True
                self.shadow.waiting.append(self)

    def after(self) -> None:
        """Judges the backward once the program's own backward is over, even where that raised."""
        self.shadow.waiting.remove(self)
        self.queued = None
        with self.shadow.inside(), self.shadow.turn() as ours:
            self.shadow.guarded(self._backward) if ours else None
        self.given.clear()
        self.theirs.clear()

    def _backward(self) -> None:
        now: Any = StartState(self.start.reached)
        began = time.monotonic()
        try:
            eager = self._gradients("eager")
            if eager.error is None:
                self._judge("backward", eager)
            else:
                self.call.notes.append(f"gradients are not compared: eager raises {comparing.said(eager.error)}")
        except aside.Lost as lost:
            self.shadow.lost(self.call, self.function, lost)
            now = None
        finally:
            if now is not None:
                now.put_back()
            self.shadow.guarded(lambda: self.write_repro(self.given))
            self.start = None  # type: ignore[assignment]
        self.call.in_flight = ""
        self.call.seconds["backward"] = round(time.monotonic() - began, 3)
        self.shadow.write(self.call)

    @_on_device("backward")
    def _gradients(
        self, rung: str, rounded: int | None = None, function: Callable[..., Any] | None = None, mode: Any = None
    ) -> Left:
        """Runs forward and backward under a rung, from the start and with the gradients that arrived at the results;
        returns the gradients of all leaves."""
        outputs: list[torch.Tensor] = []
        left, leaves = self._run(rung, function, outputs=outputs, rounded=rounded, mode=mode)
        if left.error is not None:
            return left
        lost = len(outputs) != self.outputs
        if lost:
            counts = f"results that require grad under {rung}: {len(outputs)}, in eager: {self.outputs}"
            self.call.notes.append(f"{counts}; its gradients count as 0")
        self.shadow.begun(self.call, rung)
        began = time.perf_counter()
        unique = list({id(leaf): (name, leaf) for name, leaf in leaves}.values())
        hooks = aside.no_hooks([leaf for _, leaf in unique])
        with self._unseen(rung), hooks:
            try:
                with self._rounding(rounded) if rounded is not None else mode or contextlib.nullcontext():
                    given = [gradient.clone() for gradient in self.given.values()]  # a backward may write into them
                    gradients = [None] * len(unique) if lost else self._backpropagated(outputs, unique, given)
                settle()
            except Exception as error:  # noqa: BLE001 - errors are compared, too
                return left._replace(error=error)
        values = {
            f"gradient of {name}": comparing.kept(torch.zeros_like(leaf) if gradient is None else gradient)
            for (name, leaf), gradient in zip(unique, gradients, strict=True)
        }
        for (at, before), after in zip(self.given.items(), given, strict=True):
            name, theirs = self.theirs.get(at, ("", lambda: None))
            if theirs() is not None and not same_bits(before, after):
                values[f"the gradient given to {name}{comparing.WRITTEN}"] = comparing.kept(after)
        return Left(values, None, "", left.seconds + time.perf_counter() - began)

    def _backpropagated(
        self, outputs: list[torch.Tensor], leaves: Sequence[tuple[str, torch.Tensor]], given: list[torch.Tensor]
    ) -> Sequence[Any]:
        roots = [outputs[at] for at in self.given]
        return torch.autograd.grad(roots, [leaf for _, leaf in leaves], given, allow_unused=True)

    # what departs

    def _record(self, part: str) -> Left | None:
        """Compiles the call once more from its start and records its graphs with their inputs; returns what that run
        leaves, None where recording failed."""
        from ..recorder.starting import record

        path = self.shadow.folder / f"run-{self.call.key.replace(':', '-')}"
        last = self.function.last
        fresh = self.function.fresh(last)
        try:
            with aside.quiet(), record(path, inputs="first"):
                left = self._left_by(part, last, function=fresh)
            self.call.run = str(path)
            return left
        except Exception as error:  # noqa: BLE001 - the departure is known without the graphs
            self.call.recorded = f"its graphs could not be recorded: {type(error).__name__}: {str(error)[:160]}"
            return None
