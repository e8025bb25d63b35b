# pyright: basic
"""Runs each call of what a program gave to torch.compile again from the same start: in eager (twice where Dynamo alone
leaves other bits) and under each rung. The program goes on with its own result; the runs beside it leave no output and
no change.

`Shadow.start` wraps what torch.compile returns. Only the outermost compiled call is looked at: compiled functions that
it calls run as usual. Never raises into the program.

For example: `shadow = Shadow(Path("found"), first=3); shadow.start(); train(); shadow.stop()`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import torch

from ...dumps.lines import append
from ...dumps.output import say
from .. import torch_private as t
from ..isolation.processes import end_openmp_threads
from ..isolation.server import serve
from ..live import torch_state
from ..torch_private.importing import watch
from ..torch_private.unseen import passed_over
from ..verdicts.verdict import fails
from . import aside, comparing
from .aside import Lost, Outside, alone, fork_computes, in_backward, watched_by
from .beside import Beside
from .comparing import Levels
from .reach import Reading, callable_of, own_modules, place_of, reach, user_place
from .records import DEFAULT_CALLS, FILE, LOST, REPLICA, Call, CallRung
from .repro import FunctionCalls, Rungs, as_in_eager, forced, uncounted, without_cuda_graphs
from .start import NotCopied, StartState

LIGHT = 0.1
"""The share of the program's time that copies of state may take before calls that are not scheduled."""
TURN_S = 60.0
"""Seconds that a call waits for another thread's call to finish; after that it is not looked at."""

T = TypeVar("T")
CAPTURED = "calls made while the program captures a CUDA graph were not judged: nothing can run beside them"


class CompiledFunction(Rungs):
    """One function or module that was given to torch.compile. `compiled`: what torch.compile returned."""

    def __init__(
        self, function: Any, context: Any, compiled: Callable[..., Any], made_at: tuple[str, int], kept: FunctionCalls
    ) -> None:
        super().__init__(function, context)
        self.compiled, self.kept = compiled, kept
        self.name, self.file, self.line = place_of(function, made_at)
        self.count = 0
        self.levels: Levels = {}


class Asked(NamedTuple):
    """A call that the program makes, with its arguments."""

    function: CompiledFunction
    number: int
    args: Any
    kwargs: Any

    def made(self) -> Any:
        """Makes the program's own call and returns its result."""
        return self.function.compiled(*self.args, **self.kwargs)

    def start(self) -> StartState | None:
        """A copy of the state that the call begins with; None where it cannot be copied (`_compare` says why)."""
        with contextlib.suppress(Exception):
            reached = reach(self.function.function, self.args, self.kwargs)
            return None if reached.refused else StartState(reached)
        return None


class Shadow:
    """Shadows a program's compiled calls. `first`, `last`: which calls of each function, `last` excluded; `recompiles`:
    later calls that recompile, too; `go_on`: also after a call that departs; `seconds`: time after which no call is
    looked at; `address`: the socket of the process that judges the graphs of a departing call."""

    def __init__(
        self,
        folder: Path,
        *,
        first: int = 0,
        last: int = DEFAULT_CALLS,
        recompiles: bool = True,
        go_on: bool = False,
        seconds: float = math.inf,
        address: str = "",
    ) -> None:
        self.folder, self.first, self.last, self.recompiles, self.go_on = folder, first, last, recompiles, go_on
        self.address, self.keys = address, aside.dispatch_keys()
        self.until, self.began = time.monotonic() + seconds, time.monotonic()
        self.functions: list[CompiledFunction] = []
        self.kept: dict[int, FunctionCalls] = {}
        """Id of a code object or bound function -> the kept calls of all functions that share it."""
        self.pid, self.made, self.unwritten = os.getpid(), 0, ""
        self.ended = self.departed = False
        self.waiting: list[Beside] = []
        """Calls whose backward has begun but not ended."""
        self.light = self.unkept = 0.0
        self.missed = 0
        self.notes: list[str] = []
        self.here = threading.local()
        self._lock = threading.RLock()
        self._put = t.Replaced()

    # what torch.compile returns

    def start(self) -> None:
        """Looks at calls from now on; waits for the program to import Dynamo rather than importing it."""
        module = t.NAMES.whole("given_to_dynamo").rpartition(".")[0]
        if module in sys.modules:
            self._install(None)
        else:
            watch({module: self._install})

    def _install(self, module: Any) -> None:
        if self.ended or self._put.has(owner := t.look_up("given_to_dynamo"), "__call__"):
            return
        original = owner.__call__

        def __call__(context: Any, function: Any) -> Any:
            compiled = original(context, function)
            if forced() and _by_torch(context):
                return as_in_eager(compiled)
            looked_at = callable(context.callback) and not isinstance(function, (type, torch.nn.Module))
            if self.ended or self._busy() or not looked_at:
                return compiled
            return self._wrapped(compiled, function, context)

        self._put.put(owner, "__call__", functools.wraps(original)(__call__))

    def stop(self) -> None:
        """Stops shadowing, writes the last record, and serves the judge of a departing call's graphs."""
        if self.ended or os.getpid() != self.pid:
            return
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)  # last_value: the error that ended the program
        if self.waiting and not isinstance(error, KeyboardInterrupt):
            with t.look_up("inductor_config").patch({"compile_threads": 1}):  # thread pools refuse work at exit
                for beside in [*self.waiting]:
                    beside.after()
        self.ended = True
        self._put.put_back()
        counts: dict[str, int] = {}
        for function in self.functions:
            place = f"{function.name} {function.file}:{function.line}"
            counts[place] = counts.get(place, 0) + function.count
        if self.unkept:
            self.notes.append(f"{int(self.unkept)} calls that recompiled were not kept to be run again")
        modules = {file: name for name, file in own_modules().items()}
        ended = {"raised": comparing.said(error), "raised_in": _raised_in(error)} if error is not None else {}
        most = max((function.count for function in self.functions), default=0)
        totals = {"most": most, "missed": self.missed, "notes": self.notes, "modules": modules}
        self._write({"event": "end", "counts": counts, **totals, **ended})
        if self.unwritten:
            say(f"graphdbg: what was found cannot be kept in {self.folder}: {self.unwritten}")
        elif self.departed and self.address:
            aside.let_go(error)
            self._serve()

    def _serve(self) -> None:
        """Serves the judge of a departing call's graphs from this process, where passes, decompositions and operators
        are as the program set them."""
        if not fork_computes():
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.address)
            torch.set_num_threads(1)
            end_openmp_threads()
            t.look_up("inductor_config").compile_threads = 1  # thread pools refuse work at exit
            with aside.dispatch(self.keys):  # an error of the program's may have left others
                serve(connection)

    def _wrapped(self, compiled: Callable[..., Any], function: Any, context: Any) -> Any:
        inner, owner = callable_of(function)
        home = str(getattr(inner, "__module__", ""))
        if owner is None and home.partition(".")[0] == "torch" and _by_torch(context):
            return compiled  # torch compiles for itself, flex attention say
        try:
            given = getattr(compiled, "_torchdynamo_orig_callable", function)
            key = function if owner is not None else getattr(inner, "__code__", function)
            kept = self.kept.setdefault(id(key), FunctionCalls(given))
            entry = CompiledFunction(given, context, compiled, user_place(), kept)
        except Exception as error:  # noqa: BLE001 - the program goes on
            self.notes.append(f"something given to torch.compile is not looked at ({error})")
            return compiled
        self.functions.append(entry)
        uncounted(self._put)

        @functools.wraps(compiled)
        def ours(*args: Any, **kwargs: Any) -> Any:
            return self._call(entry, args, kwargs)

        if hasattr(compiled, "_torchdynamo_wrapper_id"):
            ours._torchdynamo_wrapper_id = id(ours)  # type: ignore[attr-defined]
        passed_over(ours)
        return ours

    def _busy(self) -> bool:
        return getattr(self.here, "depth", 0) > 0

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Ignores calls on this thread inside the block."""
        self.here.depth = getattr(self.here, "depth", 0) + 1
        try:
            yield
        finally:
            self.here.depth -= 1

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Lets one thread at a time through: torch's stance, standard output and a model's state are shared by all
        threads. Yields whether the turn came in time; the thread that has it may be waiting for this one."""
        ours = not self.over() and self._lock.acquire(timeout=TURN_S)
        try:
            yield ours
        finally:
            if ours:
                self._lock.release()

    # one call

    def _call(self, function: CompiledFunction, args: Any, kwargs: Any) -> Any:
        if self.ended or self._busy() or os.getpid() != self.pid or in_backward():
            return function.compiled(*args, **kwargs)
        if torch_state.is_capturing():
            if CAPTURED not in self.notes:
                self.notes.append(CAPTURED)
            return function.compiled(*args, **kwargs)
        with self.inside(), self.turn() as ours:
            if ours and torch.compiler.is_compiling():  # only now: another thread's compile also sets it
                return function.compiled(*args, **kwargs)
            asked, function.count = Asked(function, function.count, args, kwargs), function.count + 1
            scheduled = self.first <= asked.number < self.last
            if not ours or self.over():
                self.missed += scheduled and time.monotonic() > self.until
                return asked.made()
            return self._beside(asked) if scheduled else self._watched(asked)

    def over(self) -> bool:
        """Whether no further call is looked at."""
        return (self.departed and not self.go_on) or time.monotonic() > self.until

    def _watched(self, asked: Asked) -> Any:
        """Makes a call that is not scheduled, and runs it beside eager if it recompiled."""
        began = time.monotonic()
        start = None
        if self.recompiles and asked.number >= self.last and alone() and self.light < LIGHT * (began - self.began):
            start = asked.start()
        self.light += time.monotonic() - began
        before = torch_state.compiles()
        again = lambda: torch_state.compiles() != before  # noqa: E731
        if start is not None:
            return self._own_first(asked, start, again)
        result = asked.made()
        self.unkept += self.recompiles and again()
        return result

    def _beside(self, asked: Asked) -> Any:
        start = asked.start()
        if start is not None and start.reached.once:
            return self._own_first(asked, start, lambda: True)
        beside = self.guarded(functools.partial(self._compare, asked, start, None))
        start = None  # frees the copies, which can be large
        before = torch_state.compiles()
        result = asked.made()
        compiled = torch_state.compiles() != before
        if beside is not None:
            self.guarded(lambda: beside.own(beside.now(result), compiled=compiled))
            self.guarded(lambda: beside.write_repro({}))
            self.guarded(lambda: beside.watch(result))
        return result

    def _own_first(self, asked: Asked, start: StartState, wanted: Callable[[], bool]) -> Any:
        """Makes the program's own call first, then the runs beside it if `wanted` says so: for calls of which only
        afterwards is known whether they recompile, or whether they read from an iterator or file."""
        beside, reading = None, Reading(start.reached.once)

        def compare(result: Any, returned: bool) -> None:
            nonlocal beside
            start.reached.refused = reading.why()
            with contextlib.suppress(NotCopied):
                after = StartState(start.reached)
                beside = self.guarded(lambda: self._compare(asked, start, result, returned))
                after.put_back()

        try:
            with reading:
                result = asked.made()
        except Exception:
            if wanted():
                compare(None, False)
            raise
        if wanted():
            compare(result, True)
        return result

    def guarded(self, work: Callable[[], T]) -> T | None:
        """Calls `work` and returns its result; an error is noted, not raised into the program, and gives None."""
        try:
            return work()
        except Exception as error:
            self.notes.append(
                f"a call could not be run beside the program's own: {type(error).__name__}: {str(error)[:200]}"
            )
            if os.environ.get("GRAPHDBG_DEBUG"):
                raise
            return None

    def _compare(self, asked: Asked, start: StartState | None, result: Any, compiled: bool = False) -> Beside | None:
        """Runs a call beside the program's own and records it; returns the Beside that also judges its backward, None
        where nothing can run beside it."""
        function, number, args, kwargs = asked
        self.made += 1
        key = f"{self.pid}:{self.made}"
        call = Call(key, function.name, function.file, function.line, number, compiled=compiled)
        call.cuda_graphs = without_cuda_graphs(function.backend) is not function.backend
        call.rank = -1 if alone() else torch.distributed.get_rank()
        began = time.monotonic()
        self.write(call)
        reached = start.reached if start else reach(function.function, args, kwargs)
        call.why = reached.refused or watched_by()
        call.notes += [REPLICA] if reached.replicas else []
        beside: Beside | None = None
        if not call.why:
            try:
                if start is None:
                    start = StartState(reached)
                    if reached.once:  # the program's own call would have to come first
                        raise NotCopied(f"it can reach {reached.once[0][0]}, and was not copied in time")
                beside = Beside(self, asked, call, start)
                mine = beside.now(result) if compiled else {}
                beside.forward()
                if compiled:
                    beside.own(mine)
            except NotCopied as error:
                call.why = str(error)
            except Outside as error:
                call.why = f"it {error}, which cannot be done twice"
            except Lost as lost:
                self.lost(call, function, lost)
                start = beside = None
            finally:
                if start is not None:
                    start.put_back()
            if beside is not None and not call.why:
                self.guarded(beside.keep)
        call.in_flight = ""
        call.seconds["all"] = round(time.monotonic() - began, 3)
        self.write(call)
        if beside is not None and compiled:
            beside.watch(result)
        return beside if not call.why else None

    def lost(self, call: Call, function: CompiledFunction, lost: Lost) -> None:
        """Records in a call that a run of it destroyed the device context: a failure of the rung, or why the call was
        not judged where it was eager."""
        raised = f"raises {comparing.said(lost.error)}"
        if lost.rung == "eager":
            call.why = f"eager {raised}, {LOST}"
            return
        verdict = fails("crash", function.key(lost.rung), f"it {raised}; eager does not")
        call.rows.append(CallRung(lost.rung, verdict, lost.part))
        call.recorded = f"its graphs were not recorded: that ended the device's context, {LOST}"
        call.unsaid, self.departed = "a kernel's error had ended the device's context", True

    def write(self, call: Call) -> None:
        """Appends a record of what is known of a call so far."""
        self._write({"event": "call", **msgspec.to_builtins(call)})

    def begun(self, call: Call, rung: str) -> None:
        """Appends a record before a run that may end the process."""
        self._write({"event": "begun", "key": call.key, "rung": rung, "at": time.time()})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            append(self.folder / FILE, json.dumps(line).encode())
        except OSError as error:
            self.unwritten = error.strerror or str(error)


def _raised_in(error: BaseException) -> str:
    """The key of the call looked at that raised this error; "" where none did."""
    looking = (Shadow._beside.__code__, Shadow._own_first.__code__)
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code in looking)
    beside = next((held for frame in frames if (held := frame.f_locals.get("beside")) is not None), None)
    return beside.call.key if beside is not None else ""


def _inside(folder: Path) -> str:
    """The prefix of the paths of files inside a folder."""
    return f"{folder}{os.sep}"


def _by_torch(context: Any) -> bool:
    """Whether a file of torch's own asks for this compile, other than the files that every compile goes through."""
    root, ours = _inside(Path(torch.__file__).parent), _inside(Path(__file__).parents[2])
    passed = (_inside(Path(inspect.getfile(type(context))).parent), torch.__file__)
    frame: Any = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(root) and not file.startswith(passed):
            return True
        if not file.startswith((root, ours)):
            return False
        frame = frame.f_back
    return False
