# pyright: basic
"""Each call of what a program gave to torch.compile, run again from the same start beside the program's own: by eager, twice,
then under each rung. The program goes on with its own result; nothing of what runs beside is heard or stays.

`Shadow.start` puts our wrapper around what torch.compile returns. A call is looked at from its outside alone: what it
calls that is compiled runs as it comes. After the backward that goes through its results the same is done with it, forward and
backward anew from the same start, one rung after the other, so that no more than one is held. Must never raise into the program.

>>> shadow = Shadow(Path("found"), first=3); shadow.start(); train(); shadow.stop()
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...dumps.lines import append
from ...dumps.torchside.history import leaf_of
from .. import torch_private as t
from ..eager import clone_inputs
from ..execution import settle
from ..isolation.server import serve
from ..recorder import live_torch
from ..torch_private.importing import watch
from ..unseen import passed_over
from ..verdict import OK, Verdict
from . import comparing
from .comparing import Left, Rounding
from .quiet import quiet
from .reach import callable_of, own_file, place_of, reach
from .records import DEFAULT_CALLS, FILE, PROGRAM, Call, Row
from .repro import Kept
from .rungs import Rungs, stance
from .start import ABSENT, NotCopied, Start, leaves_of
from .unsteady import first_difference

SAMPLES = 3
LIGHT = 0.1
"""The share of the program's time that the states before calls that are not scheduled may take."""


_Leaves = list[tuple[str, torch.Tensor]]


class Outside(BaseException):
    """A run beside the program's own was about to do something that cannot be done twice."""


class Function:
    """One thing that was given to torch.compile."""

    def __init__(self, function: Callable[..., Any], context: Any, made_at: tuple[str, int]) -> None:
        self.function = function
        self.rungs, self.kept = Rungs(function, context), Kept(function)
        self.name, self.file, self.line = place_of(function, made_at)
        self.count = self.shadowed = 0


class Shadow:
    """`first`, `last`: the calls of each function, from and to (excluded); `anew`: and each that compiled anew; `go_on`: also
    after a call that departs; `seconds`: for so long; `address`: the socket of whoever judges the graphs of what departs."""

    def __init__(self, folder: Path, *, first: int = 0, last: int = DEFAULT_CALLS, anew: bool = True, go_on: bool = False,
                 seconds: float = math.inf, address: str = "") -> None:  # fmt: skip
        self.folder, self.first, self.last, self.anew, self.go_on = folder, first, last, anew, go_on
        self.address = address
        self.until, self.began = time.monotonic() + seconds, time.monotonic()
        self.functions: list[Function] = []
        self.pid, self.made = os.getpid(), 0
        self.ended = self.departed = False
        self.light = self.unkept = 0.0
        self.notes: list[str] = []
        self.here = threading.local()
        self._lock = threading.RLock()
        self._put = t.Replaced()

    # what torch.compile returns

    def start(self) -> None:
        """From now on; nothing of torch is imported for it."""
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
            made = original(context, function)
            if self.ended or self._busy() or isinstance(function, (type, torch.nn.Module)) or not callable(context.callback):
                return made
            return self._wrapped(made, function, context)

        self._put.put(owner, "__call__", functools.wraps(original)(__call__))

    def stop(self) -> None:
        """Nothing is run beside from now on."""
        if self.ended or os.getpid() != self.pid:
            return
        self.ended = True
        self._put.put_back()
        counts: dict[str, int] = {}
        for one in self.functions:
            place = f"{one.name} {one.file}:{one.line}"
            counts[place] = counts.get(place, 0) + one.count
        if self.unkept:
            self.notes.append(f"{int(self.unkept)} calls that compiled anew were not kept to be run again")
        loaded = list(sys.modules.items())
        modules = {file: name for name, one in loaded if name != "__main__" and (file := own_file(one))}
        self._write({"event": "end", "counts": counts, "notes": self.notes, "modules": modules})
        if self.departed and self.address:
            self._serve()

    def _serve(self) -> None:
        """The graphs of what departs are judged here, where passes, decompositions and operators are as the program made them."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            return  # a fork of this process cannot use the device
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.address)
            torch.set_num_threads(1)
            serve(connection)

    def _wrapped(self, made: Callable[..., Any], function: Any, context: Any) -> Any:
        inner, owner = callable_of(function)
        home = str(getattr(inner, "__module__", ""))
        if owner is None and home.partition(".")[0] == "torch":
            return made  # torch's own use of itself, flex attention say
        try:
            one = Function(getattr(made, "_torchdynamo_orig_callable", function), context, _made_at())
        except Exception as error:  # noqa: BLE001 - the program goes on
            self.notes.append(f"something given to torch.compile is not looked at ({error})")
            return made
        self.functions.append(one)

        @functools.wraps(made)
        def ours(*args: Any, **kwargs: Any) -> Any:
            return self._call(one, made, args, kwargs)

        if hasattr(made, "_torchdynamo_wrapper_id"):
            ours._torchdynamo_wrapper_id = id(ours)  # type: ignore[attr-defined]
        passed_over(ours)
        return ours

    def _busy(self) -> bool:
        return getattr(self.here, "depth", 0) > 0

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        self.here.depth = getattr(self.here, "depth", 0) + 1
        try:
            yield
        finally:
            self.here.depth -= 1

    # one call

    def _call(self, one: Function, made: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.ended or self._busy() or os.getpid() != self.pid or torch.compiler.is_compiling() or _in_backward():
            return made(*args, **kwargs)
        with self._inside():
            number, one.count = one.count, one.count + 1
            if self._over():
                return made(*args, **kwargs)
            if self.first <= number < self.last:
                return self._beside(one, made, number, args, kwargs)
            return self._watched(one, made, number, args, kwargs)

    def _over(self) -> bool:
        return (self.departed and not self.go_on) or time.monotonic() > self.until

    def _watched(self, one: Function, made: Callable[..., Any], number: int, args: Any, kwargs: Any) -> Any:
        """A call that is not scheduled, and is run beside if it compiled anew."""
        began = time.monotonic()
        start = None
        if self.anew and number >= self.last and _alone() and self.light < LIGHT * (began - self.began):
            with contextlib.suppress(Exception):
                reached = reach(one.function, args, kwargs)
                start = None if reached.refused else Start(reached)
        self.light += time.monotonic() - began
        before = live_torch.counter("frames", "total")
        result = made(*args, **kwargs)
        if live_torch.counter("frames", "total") == before:
            return result
        if start is None or not self.anew:
            self.unkept += self.anew
            return result
        with contextlib.suppress(NotCopied):
            after = Start(start.reached)
            self._guarded(lambda: self._compare(one, number, args, kwargs, start, result, compiled=True))
            after.put_back()
        return result

    def _beside(self, one: Function, made: Callable[..., Any], number: int, args: Any, kwargs: Any) -> Any:
        shadowed: list[_Beside] = []
        self._guarded(lambda: shadowed.extend(self._compare(one, number, args, kwargs, None, None)))
        result = made(*args, **kwargs)
        for beside in shadowed:
            self._guarded(lambda beside=beside: beside.own(beside.now(result)))
            self._guarded(lambda beside=beside: beside.watch(result))
        return result

    def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            self.notes.append(f"a call could not be run beside the program's own: {type(error).__name__}: {str(error)[:200]}")
            if os.environ.get("GRAPHDBG_DEBUG"):
                raise

    def _compare(self, one: Function, number: int, args: Any, kwargs: Any, start: Start | None, result: Any,
                 compiled: bool = False) -> list[_Beside]:  # fmt: skip
        with self._lock:
            self.made += 1
            key = f"{self.pid}:{self.made}"
        call = Call(key, one.name, one.file, one.line, number, compiled=compiled)
        began = time.monotonic()
        self.write(call)
        reached = start.reached if start else reach(one.function, args, kwargs)
        call.why = reached.refused
        beside: _Beside | None = None
        if not call.why:
            try:
                start = start or Start(reached)
                beside = _Beside(self, one, call, args, kwargs, start)
                mine = beside.now(result) if compiled else {}
                beside.forward()
                if compiled:
                    beside.own(mine)
            except NotCopied as error:
                call.why = str(error)
            except Outside as error:
                call.why = f"it {error}, which is not done twice"
            finally:
                if start is not None:
                    start.put_back()
            if beside is not None and not call.why:
                self._guarded(beside.keep)
        call.in_flight = ""
        call.seconds["all"] = round(time.monotonic() - began, 3)
        self.write(call)
        if beside is not None and compiled:
            beside.watch(result)
            return []
        return [beside] if beside is not None and not call.why else []

    def write(self, call: Call) -> None:
        """A line of what is known of a call so far."""
        self._write({"event": "call", **msgspec.to_builtins(call)})

    def begun(self, call: Call, rung: str) -> None:
        """A line before something that may end the process."""
        self._write({"event": "begun", "key": call.key, "rung": rung, "at": time.time()})

    def _write(self, line: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            append(self.folder / FILE, json.dumps(line).encode())


class _Beside:
    """One call beside the program's own."""

    def __init__(self, shadow: Shadow, one: Function, call: Call, args: Any, kwargs: Any, start: Start) -> None:
        self.shadow, self.one, self.call = shadow, one, call
        self.start: Any = start
        self.args, self.kwargs = args, kwargs
        self.place = {id(tensor): name for name, tensor in start.reached.tensors}
        self.ambient = live_torch.ambient(seed=False)
        self.given: dict[int, torch.Tensor] = {}
        self.queued = self.drawn = False
        self.outputs = 0
        self.copies: dict[int, torch.Tensor] = {}
        self.compared: Callable[[Left], Row] | None = None
        self.eager: dict[str, Any] = {}
        self.touched: set[Any] = set()
        self.outside: list[str] = []

    def keep(self) -> None:
        """What it begins with, for a program that shows it; and that program, where it departs."""
        with quiet():
            failed = self.call.failed
            self.one.kept.call(self.call.number, self.args, self.kwargs, self.start, self.ambient, self.touched, bool(failed))
        self.start.put_back()
        self._write_repro({})

    def _write_repro(self, given: dict[int, torch.Tensor]) -> None:
        if (failed := self.call.failed) is None or self.call.repro or self.call.unsaid:
            return
        folder = self.shadow.folder / f"repro-{self.call.key.replace(':', '-')}"
        self.call.unsaid = self.one.kept.write(folder, self.call, failed, self.one.rungs, given)
        self.call.repro = "" if self.call.unsaid else str(folder)

    def forward(self) -> None:
        """Each rung, and what it leaves beside what eager leaves."""
        with _collectives() as talked:
            eager, _ = self._run("eager", self.one.rungs.call("eager"), alone=True)
        if talked():
            self.call.why = "it talks to other processes"
            return
        self.eager, self.drawn = eager.values if eager.error is None else {}, self.start.random.moved()
        again, _ = self._run("eager", self.one.rungs.call("eager"))
        outside = self.outside
        self._judge("", eager, again, lambda rung: self._run(rung, self.one.rungs.call(rung))[0])
        if outside and not any(row.verdict.failed for row in self.call.rows):
            self.call.why = f"it changes {', '.join(outside[:4])}, which it is not given and does not return"

    def _judge(self, part: str, eager: Left, again: Left, run: Callable[[str], Left]) -> None:
        loose = comparing.unsteady(eager.values, again.values)
        samples: list[dict[str, Any]] = []

        @functools.cache
        def noise() -> Any:
            for seed in range(SAMPLES):
                with contextlib.suppress(Exception):
                    samples.append(self._rounded(part, seed).values)
            return comparing.noise_of(eager.values, samples)

        first = Row("eager", OK, part, seconds=round(eager.seconds, 4))
        if (eager.error is None) != (again.error is None):
            raised = eager.error or again.error
            first.verdict = Verdict("nondeterministic", reason=f"eager raises {type(raised).__name__} in one of two runs")
        elif loose:
            first.value, first.error = max(loose.items(), key=lambda pair: pair[1])
            if first.error > comparing.UNSTABLE:
                reason = f"eager's {first.value} differs by {first.error:.2g} from run to run"
                first.verdict = Verdict("nondeterministic", reason=f"{reason}{self._why_unsteady(part)}")
        self.call.rows.append(first)
        if not part and eager.error is not None:
            self.call.raises = type(eager.error).__name__
        if eager.text != again.text:
            self.call.notes.append("what it prints differs between two runs of eager")
        compared = lambda rung, got: comparing.judged(rung, self.one.rungs.key(rung), part, eager, got, loose, noise)  # noqa: E731
        if not part:
            self.compared = functools.partial(compared, self.one.rungs.last)
        failed: list[Row] = []
        if first.verdict.verdict == "nondeterministic" and (eager.error is not None or len(loose) == len(eager.values)):
            return
        for rung in self.one.rungs.names:
            if time.monotonic() > self.shadow.until:
                self.call.notes.append(f"the time was over before {rung}")
                break
            got = run(rung)
            row = compared(rung, got)
            self.call.rows.append(row)
            if got.error is None and got.text != eager.text and part == "":
                self.call.notes.append(f"{rung} prints something else than eager")
            failed += [row] if row.verdict.failed else []
            if self.shadow.go_on and rung == self.one.rungs.last and got.error is None:
                row.differences = comparing.differences(eager.values, got.values)
        if failed and not self.call.rows[-1].verdict.failed:  # Dynamo's eager backend draws another dropout in a checkpoint, say
            for row in failed:
                self.call.notes.append(f"{row.rung} by itself departs ({row.verdict.reason}); what the program runs does not")
                row.verdict = Verdict("ok", reason="departs by itself; what the program runs does not")
        elif failed:
            self._departs(part, functools.partial(compared, self.one.rungs.last))
        if self.shadow.go_on:
            with contextlib.suppress(Exception):
                first.differences = comparing.differences(eager.values, self._rounded(part, 0).values)
        self.shadow.write(self.call)

    def _why_unsteady(self, part: str) -> str:
        run: Any = self._gradients if part else self._run
        try:
            found = first_difference(lambda mode: run("eager", *(() if part else (self.one.function,)), mode=mode))
        except Exception:  # noqa: BLE001 - that it does not repeat itself is known all the same
            return ""
        return f": {found}" if found else ""

    def _departs(self, part: str, compared: Callable[[Left], Row]) -> None:
        self.shadow.departed = True
        self.shadow.write(self.call)
        anew = self._record(part)
        if anew is not None:
            self.call.anew = "departs" if compared(anew).verdict.failed else "agrees"

    # the program's own

    def now(self, result: Any) -> dict[str, Any]:
        """What the program's own call has left, of what eager's left: nothing where it drew random numbers."""
        if self.drawn:
            return {}
        return self._left(leaves_of(result, "result"), self.args, self.kwargs, own=True)

    def own(self, values: dict[str, Any]) -> None:
        """That beside what eager left: what was compiled for an earlier call may be taken for this one."""
        eager, self.eager = self.eager, {}
        named = {name: value for name, value in values.items() if name in eager or name.startswith("result")}
        compared, self.compared = self.compared, None
        if self.drawn or compared is None or any(row.verdict.failed for row in self.call.rows):
            return
        if not named or comparing.agree(eager, {**eager, **named}):
            return
        after = Start(self.start.reached)
        try:
            row = compared(Left({name: named.get(name, value) for name, value in eager.items()}))
            if not row.verdict.failed:
                return
            row.rung, row.verdict = PROGRAM, msgspec.structs.replace(row.verdict, layer="dynamo")
            self.call.rows.append(row)
            self._departs("", compared)
            self.shadow.write(self.call)
        finally:
            after.put_back()

    # a run

    def _run(self, rung: str, function: Callable[..., Any], *, alone: bool = False, rounded: int | None = None,
             outputs: list[torch.Tensor] | None = None, mode: Any = None) -> tuple[Left, _Leaves]:  # fmt: skip
        """What one run leaves, from the start, and the leaves to which gradients go."""
        self.shadow.begun(self.call, rung)
        self.start.put_back()
        torch.clear_autocast_cache()
        args, kwargs, leaves = self._arguments()
        error: BaseException | None = None
        result: Any = None
        mode = mode or contextlib.nullcontext()
        if rounded is not None:
            mode = Rounding(rounded)
            for tensor in {id(one): one for one in [*(one for _, one in leaves), *self._state()]}.values():
                if comparing.is_float(tensor) and not tensor.is_complex():
                    comparing.move(tensor, mode.generator)
        began = time.perf_counter()
        with quiet() as heard, stance(rung == "eager"), _own_hooks(), _no_side_effects(alone), _counters(), self._modes():
            try:
                with mode:
                    result = function(*args, **kwargs)
                settle()
            except Exception as raised:  # noqa: BLE001 - it is compared
                error = raised
        seconds = time.perf_counter() - began
        torch.clear_autocast_cache()
        found = leaves_of(result, "result")
        if outputs is not None:
            outputs += [one for _, one in found if isinstance(one, torch.Tensor) and one.requires_grad]
        values = {} if outputs is not None else self._left(found, args, kwargs)
        text = heard.getvalue() if rung != "eager" or error is None else ""
        return Left(values, error, text, seconds), leaves

    @contextlib.contextmanager
    def _modes(self) -> Iterator[None]:
        """Grad mode and autocast as they were when the program made the call: a backward has its own."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.ambient.grad))
            for device, dtype in self.ambient.autocast.items():
                stack.enter_context(torch.autocast(device, getattr(torch, dtype), cache_enabled=self.ambient.autocast_cache))
            yield

    def _state(self) -> list[torch.Tensor]:
        return [tensor for _, tensor in self.start.reached.tensors if not tensor.is_inference()]

    def _arguments(self) -> tuple[Any, Any, list[tuple[str, torch.Tensor]]]:
        """The arguments, those that came out of other operations as copies that came out of leaves, and all leaves."""
        whole = (self.args, self.kwargs)
        flat = [one for one in t.tree_leaves(whole) if isinstance(one, torch.Tensor) and not one.is_leaf]
        unique = list({id(one): one for one in flat}.values())
        copies = dict(zip(map(id, unique), clone_inputs(unique), strict=True))
        for one in unique:
            copies[id(one)].__dict__.update({key: value for key, value in one.__dict__.items() if "hook" not in key})
        args, kwargs = t.tree_map(lambda one: copies.get(id(one), one) if isinstance(one, torch.Tensor) else one, whole)
        leaves: Any = [(self.place[id(one)], leaf_of(copies[id(one)])) for one in unique]
        leaves += [(name, one) for name, one in self.start.reached.tensors if one.is_leaf and one.requires_grad]
        self.copies = copies
        return args, kwargs, leaves

    def _left(self, found: list[tuple[str, Any]], args: Any, kwargs: Any, own: bool = False) -> dict[str, Any]:
        values = {name: comparing.kept(value) for name, value in found}
        tensors = [(name, value) for name, value in found if isinstance(value, torch.Tensor)]
        values |= {f"{name}{comparing.REQUIRES}": True for name, one in tensors if one.requires_grad}
        names = {id(value): name for name, value in tensors}
        values.update({f"{name}, written": comparing.kept(one) for name, one in self.start.written() if id(one) not in names})
        given = {id(one): one for one in t.tree_leaves((args, kwargs))} if own else {}
        for one, copy in self.copies.items():
            copy = given.get(one, copy)
            values[f"{self.place[one]}, as it is afterwards"] = comparing.kept(copy)
        values.update({name: comparing.kept(one) for name, one in self.start.gradients()})
        self.touched |= {id(one) for _, one in self.start.written()}
        changed = self.start.changed()
        self.touched |= {box.owner[1] if box.kind == "global" else id(box.owner) for box, _, _ in changed}
        values.update({name: "nothing" if one is ABSENT else comparing.kept(one) for _, name, one in changed})
        self.outside = list(dict.fromkeys(box.name for box, _, _ in changed if box.outside))
        return values

    def _rounded(self, part: str, seed: int) -> Left:
        if part:
            return self._gradients("eager", seed)
        return self._run("eager", self.one.rungs.call("eager"), rounded=seed)[0]

    # its backward

    def watch(self, result: Any) -> None:
        """After the next backward that goes through the result, the same with it."""
        roots = [one for _, one in leaves_of(result) if isinstance(one, torch.Tensor) and one.requires_grad]
        if not roots or self.call.why or (self.shadow.departed and not self.shadow.go_on):
            return
        history = [name for name, one in self.start.reached.tensors if one.requires_grad and not one.is_leaf]
        history = [name for name in history if name not in {self.place[one] for one in getattr(self, "copies", {})}]
        if history:
            self.call.notes.append(f"gradients are not compared: {history[0]} came out of other operations")
            return
        if live_torch.loaded("compiled_autograd_enabled"):
            self.call.notes.append("gradients are not compared under compiled autograd")
            return
        self.outputs = len(roots)
        for at, root in enumerate(roots):
            root.register_hook(functools.partial(self._arrived, at))

    def _arrived(self, at: int, gradient: torch.Tensor) -> None:
        if self.queued is None or self.shadow.ended or self.shadow._over():
            return
        self.given[at] = gradient.detach().clone()
        if not self.queued:
            with contextlib.suppress(Exception):
                t.look_up("autograd_engine").queue_callback(self._after)
                self.queued = True

    def _after(self) -> None:
        self.queued = None
        with self.shadow._inside():
            self.shadow._guarded(self._backward)
        self.given.clear()

    def _backward(self) -> None:
        now = Start(self.start.reached)
        began = time.monotonic()
        try:
            eager, again = self._gradients("eager"), self._gradients("eager")
            if eager.error is None:
                self._judge("backward", eager, again, self._gradients)
            else:
                self.call.notes.append(f"gradients are not compared: eager raises {comparing.said(eager.error)}")
        finally:
            now.put_back()
            self.shadow._guarded(lambda: self._write_repro(self.given))
            self.start = None  # type: ignore[assignment]
        self.call.in_flight = ""
        self.call.seconds["backward"] = round(time.monotonic() - began, 3)
        self.shadow.write(self.call)

    def _gradients(self, rung: str, rounded: int | None = None, function: Callable[..., Any] | None = None,
                   mode: Any = None) -> Left:  # fmt: skip
        """The gradients of all leaves under a rung, from the start and with what arrived at the results."""
        outputs: list[torch.Tensor] = []
        left, leaves = self._run(rung, function or self.one.rungs.call(rung), outputs=outputs, rounded=rounded, mode=mode)
        if left.error is not None or len(outputs) != self.outputs:
            other = RuntimeError("another number of results requires grad")
            return left if left.error is not None else left._replace(error=other)
        self.shadow.begun(self.call, rung)
        began = time.perf_counter()
        unique = list({id(one): (name, one) for name, one in leaves}.values())
        with quiet(), stance(rung == "eager"), _counters():
            try:
                with Rounding(rounded) if rounded is not None else mode or contextlib.nullcontext():
                    roots = [outputs[at] for at in self.given]
                    found = torch.autograd.grad(roots, [one for _, one in unique], list(self.given.values()), allow_unused=True)
                settle()
            except Exception as error:  # noqa: BLE001 - it is compared
                return left._replace(error=error)
        values = {
            f"gradient of {name}": comparing.kept(torch.zeros_like(one) if gradient is None else gradient)
            for (name, one), gradient in zip(unique, found, strict=True)
        }
        return Left(values, None, "", left.seconds + time.perf_counter() - began)

    # what departs

    def _record(self, part: str) -> Left | None:
        """The graphs of the call, compiled once more from the start, with what goes in; what that run leaves."""
        from ..recorder.starting import record

        path = self.shadow.folder / f"run-{self.call.key.replace(':', '-')}"
        fresh = self.one.rungs.fresh(self.one.rungs.last)
        try:
            with quiet(), record(path, inputs="first"):
                last = self.one.rungs.last
                left = self._gradients(last, None, fresh) if part else self._run(last, fresh)[0]
            self.call.run = str(path)
            return left
        except Exception as error:  # noqa: BLE001 - what departs is known all the same
            self.call.recorded = f"its graphs could not be recorded: {type(error).__name__}: {str(error)[:160]}"
            return None


@contextlib.contextmanager
def _own_hooks() -> Iterator[None]:
    """What is saved for a backward is not handed to the program's own hooks (a checkpoint counts it)."""
    if t.look_up("top_saved_tensors_hooks")(False) is None:
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one):
        yield


_watching = threading.local()
_audited = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not getattr(_watching, "on", False):
        return
    if event == "open":
        path, mode, flags = args
        by_flags = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else by_flags
        if writes and not str(path).endswith((".pyc", os.devnull)) and ".pyc." not in str(path):
            raise Outside(f"writes to {path}")
    elif event in ("socket.connect", "subprocess.Popen", "os.system"):
        raise Outside("connects to something" if event == "socket.connect" else "starts a process")


@contextlib.contextmanager
def _no_side_effects(asked: bool) -> Iterator[None]:
    """Writing a file, connecting and starting a process raise Outside in this thread, where asked."""
    global _audited
    if asked and not _audited:
        sys.addaudithook(_audit)
        _audited = True
    _watching.on = asked
    try:
        yield
    finally:
        _watching.on = False


@contextlib.contextmanager
def _counters() -> Iterator[None]:
    """What Dynamo counts is what it was."""
    counters = live_torch.loaded("counters")
    before = {group: dict(held) for group, held in counters.items()} if counters is not None else {}
    try:
        yield
    finally:
        if counters is not None:
            for group in list(counters):
                counters[group].clear()
                counters[group].update(before.get(group, {}))


def _alone() -> bool:
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


@contextlib.contextmanager
def _collectives() -> Iterator[Callable[[], bool]]:
    """Whether the default process group was asked for something meanwhile."""
    count = lambda: 0 if _alone() else t.look_up("group_sequence_number")(torch.distributed.group.WORLD)  # noqa: E731
    before = count()
    yield lambda: count() != before


def _in_backward() -> bool:
    return t.look_up("current_graph_task_id")() != -1


def _made_at() -> tuple[str, int]:
    frame = sys._getframe(2)
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
