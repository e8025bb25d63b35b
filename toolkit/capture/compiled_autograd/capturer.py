# pyright: basic
"""Backwards of a running script, recorded one by one: every top-level `backward()` or `autograd.grad()`.

Also: switching compiled autograd on and off for a block, and putting torch's state back.

A backward that is new (another structure, other sizes) is captured by torch's compiled autograd, whose graph is
inspected and not run; then the eager engine runs the backward as usual, under a tape. So gradients, hooks, callbacks
and the order of additions are the eager engine's own; a run of the captured graph would change that order. All other
backwards just run.

>>> with capturing() as captures:
...     model(x).sum().backward()
>>> [item.role for item in captures[0].inputs_described]
['tangent', 'saved', 'saved', 'saved']
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ....dumps.errors import NoGraphError
from ....dumps.schema import InputRecord
from ....dumps.wording import raised_line
from ... import torch_private as t
from ...torch_private.unseen import alone, seen, unseen
from .passes import CaptureRecord, TapePassReport, watched
from .places import BackwardNames, HookCalls, TapePlaces, agrees, forward_of, roots_of, shape_of, walk
from .symbols import with_symbols
from .tape import Tape


@contextmanager
def enable(
    compiler_fn: Callable[[Any], Callable[..., Any]], *, dynamic: bool = True, instance: Any = None
) -> Iterator[None]:
    """Captures every backward in the block as a graph and calls `compiler_fn(graph)`, which returns the function to
    run.

    The graph takes (inputs, sizes, scalars, hooks, packed data), five lists. `dynamic`: a size that changes becomes a
    symbol. `instance` is the class of the capturing object, torch's AutogradCompilerInstance or one derived from it.
    Under the stance "force_eager" nothing is captured, as torch has it.
    """
    if t.eval_frame_stance.stance == "force_eager":
        with t.replaced(t.compiled_autograd, "compiled_autograd_enabled_force_eager", True):
            yield
        return
    if torch.cuda.is_available():
        t.look_up("cudagraph_trees")  # a capture uses this module, which may not be imported yet
    factory = functools.partial(instance or t.AutogradCompilerInstance, compiler_fn)
    with _state(factory, dynamic, on=True), torch.autograd.set_multithreading_enabled(False):
        yield


@contextmanager
def disable() -> Iterator[None]:
    """Runs the backwards in the block in eager."""
    with _state(None, False, on=False):
        yield


def reset() -> None:
    """Restores the state of a new process: nothing set, torch's cache of captured graphs empty, ids from 0.

    Raises RuntimeError while a captured backward runs.
    """
    if t.in_compiled_autograd_region:
        raise RuntimeError("compiled autograd cannot be reset while a captured backward runs")
    t.compiled_autograd.reset()


@contextmanager
def _state(compiler: Any, dynamic: bool, *, on: bool) -> Iterator[None]:
    stock = t.compiled_autograd
    with (
        t.replaced(stock, "compiled_autograd_enabled", on),
        t.replaced(stock, "active_disable_ctx", not on),
        t.replaced(stock, "depth", stock.depth + on),
    ):
        before = t.set_autograd_compiler(compiler, dynamic)
        try:
            yield
        finally:
            t.set_autograd_compiler(*before)


MAX_SIZES = 4
"""How many backwards of one structure are recorded, each with other sizes."""


@dataclass
class Backward:
    """One recorded backward. `module` is a flat ATen graph; `values` are its inputs before it ran, in placeholder
    order, None where they were not kept; `outputs` names each output ("weight.grad", "output[0]").

    `captured` is torch's own graph after the passes, or None, and `uncaptured` why; `nodes` are the autograd nodes by
    number, `forward` the forward as they record it (`places.forward_of`); `reason` says why it was recorded again;
    `fixed` counts numbers that were read from tensors, `hooks` are those that ran, also those that ran no operator;
    `shared` names inputs that share memory which is written to (a replay keeps them apart); `error` is what the
    backward raised.
    """

    number: int
    module: torch.fx.GraphModule
    inputs_described: list[InputRecord]
    values: list[Any]
    outputs: list[str]
    nodes: dict[int, str]
    forward: list[tuple[str, int, list[int], list[int]]]
    passes: list[TapePassReport]
    captured: torch.fx.GraphModule | None
    uncaptured: str = ""
    reason: str = ""
    fixed: int = 0
    shared: list[str] = field(default_factory=list[str])
    hooks: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    error: BaseException | None = field(default=None, repr=False)

    def save(self, path: str | Path) -> Path:
        """Writes a case folder. Raises UsageError where `path` exists or the values were not kept."""
        from ....dumps.live import save_graph
        from ....dumps.torchside.encode import CARRY

        if any(value is None for value in self.values):
            raise NoGraphError(f"cannot write {path}", "the inputs were not kept", "capture with keep=True")
        self.module.meta[CARRY] = {"inputs": self.inputs_described}
        return save_graph(self.module, self.values, path, stage="compiled_autograd")


class _LookedAt(Exception):
    """Ends a capture before its graph runs."""


@dataclass
class _Look:
    """The result of a capture: torch's graph, or why there is none; `done`: the backward ran after all."""

    graph: torch.fx.GraphModule | None = None
    record: CaptureRecord = field(default_factory=CaptureRecord)
    why_not: str = ""
    done: bool = False
    result: Any = None


@dataclass
class _New:
    """A backward to record: its autograd nodes in order, why it is recorded again, and the key that it shares with
    backwards which differ in sizes alone."""

    order: list[Any]
    reason: str
    alike: Any


@dataclass
class _TapedRun:
    """One taped run: torch's number, what was known before, what it returned or raised."""

    number: int
    new: _New
    returned: Any
    error: BaseException | None
    hooks: list[dict[str, str]]


class _BusyFlag(threading.local):
    busy = False


class Capturer:
    """Records backwards. `begun(number, captured)` is called before a new backward runs, `on_backward(backward)` after
    it ran, `kept(name, value)` with each input before anything writes to it. `skip` names passes to leave out.
    """

    def __init__(
        self,
        on_backward: Callable[[Backward], None],
        *,
        begun: Callable[[int, Any], None] = lambda number, captured: None,
        kept: Callable[[str, torch.Tensor], None] = lambda name, value: None,
        skip: Collection[str] = (),
    ) -> None:
        self.on_backward, self.begun, self.kept = on_backward, begun, kept
        self.left_out: Counter[str] = Counter()
        self.seen: dict[Any, list[Any]] = {}
        self._last: dict[Any, torch.fx.GraphModule] = {}
        """The last recorded graph of each structure, parameters and dtypes; together with a graph of other sizes it may
        become one with symbols."""
        self._symbolic: set[Any] = set()
        self.quiet = 0
        """Backwards since the last new one."""
        self._instance = watched(functools.partial(setattr, self, "_record"), skip)
        self._record, self._graph = CaptureRecord(), None
        self._gate = threading.Lock()
        self._running = 0
        self._here = _BusyFlag()
        self._count = 0

    def backward(self, original: Callable[..., Any], t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a backward, and records it where it is new; returns the result of the engine call `original(t_outputs,
        ...)`."""
        if self._here.busy or _is_traced(t_outputs):  # a hook's belongs to the one around it; a tracer's is no run
            return original(t_outputs, *args, **kwargs)
        self._here.busy = True
        with self._gate:
            self._running += 1
        try:
            with self._gate:  # a capture in another thread would capture this one too
                new = self._new(t_outputs, alone=self._running == 1)
                look = self._look(original, t_outputs, args, kwargs) if new else None
            if new is None or look is None:
                self.quiet += 1
                return original(t_outputs, *args, **kwargs)
            self.quiet = 0
            if look.done:
                self.left_out["torch ran a version that was compiled earlier"] += 1
                return look.result
            return self._taped(original, new, look, t_outputs, args, kwargs)
        finally:
            self._here.busy = False
            with self._gate:
                self._running -= 1

    def _new(self, t_outputs: Sequence[Any], *, alone: bool) -> _New | None:
        """The backward to record; None where it is known already or cannot be recorded, which `left_out` counts by
        reason."""
        if t.in_compiled_autograd_region or t.compiled_autograd_enabled:
            return self._leave("the script turns compiled autograd on itself")
        try:
            order = walk(roots_of(t_outputs))
            if reason := _not_to_be_watched(order[1:]):
                return self._leave(reason)
            structure, sizes = shape_of(order)
        except Exception as error:  # noqa: BLE001 - must not break the script; reported at the end
            return self._leave(f"its autograd graph could not be read ({type(error).__name__}: {error})")
        known = self.seen.get(structure, ())
        alike = structure, tuple(apart for _, apart in sizes)
        if known and (sizes in known or alike in self._symbolic):
            return None
        if not alone:
            return self._leave("another thread's backward was running")
        if len(known) >= MAX_SIZES:
            return self._leave(f"its sizes changed more than {MAX_SIZES - 1} times")
        other = "another autograd graph" if self.seen else ""
        reason = _other_sizes(structure, known[-1], sizes) if known else other
        self.seen.setdefault(structure, []).append(sizes)
        return _New(order, reason, alike)

    def _look(self, original: Callable[..., Any], t_outputs: Any, args: Any, kwargs: Any) -> _Look:
        """Lets torch capture the backward, and stops before it runs."""
        self._record, self._graph = CaptureRecord(), None
        look = _Look()
        try:
            with alone(), enable(self._take, dynamic=False, instance=self._instance):
                look.result = original(t_outputs, *args, **kwargs)
            look.done = True
        except _LookedAt:
            pass
        except Exception as error:  # noqa: BLE001 - torch refuses some; the eager engine takes them
            look.why_not = raised_line(error, 300)
        look.record, look.graph = self._record, self._graph
        return look

    def _leave(self, why: str) -> None:
        self.left_out[why] += 1

    def _take(self, gm: torch.fx.GraphModule) -> Any:
        self._graph = gm
        raise _LookedAt

    def _taped(self, original: Any, new: _New, look: _Look, t_outputs: Any, args: Any, kwargs: Any) -> Any:
        order, record = new.order, look.record
        number = record.number if record.number >= 0 else self._count
        self._count = number + 1
        if not agrees(order, record.nodes):
            order = [None]
        try:
            names = BackwardNames(args[0] if args else ())
            places = TapePlaces(order, names.source)
            tape = Tape(places.now, names.name, self.kept)
            self.begun(number, look.graph)
        except Exception as error:  # noqa: BLE001 - must not break the script; reported at the end
            self.left_out[f"it could not be prepared ({type(error).__name__}: {error})"] += 1
            return original(t_outputs, *args, **kwargs)
        error: BaseException | None = None
        returned: Any = ()
        calls = HookCalls(places)
        try:
            with torch.autograd.set_multithreading_enabled(False), _parts_written(order, tape, calls), calls, tape:
                returned = original(t_outputs, *args, **kwargs)
            return returned
        except BaseException as raised:
            error = raised
            raise
        finally:
            try:
                self._write(tape, names, order, look, _TapedRun(number, new, returned, error, calls.found))
            except Exception as failed:  # noqa: BLE001 - the same
                self.left_out[f"it could not be written down ({type(failed).__name__}: {failed})"] += 1

    def _write(self, tape: Tape, names: BackwardNames, order: list[Any], look: _Look, run: _TapedRun) -> None:
        outputs, sources = _outputs(tape, names, run.returned)
        gm = tape.finish(outputs)
        if gm is None:
            self.left_out[f"it could not be written down ({tape.error})"] += 1
            return
        reason, before = run.new.reason, self._last.get(run.new.alike)
        if before is not None and run.error is None:
            common = with_symbols(before, gm)
            if isinstance(common, str):
                reason += f"; sizes stay numbers: {common}"
            else:
                self._symbolic.add(run.new.alike)
                gm, reason = common, f"{reason}; what differs is a symbol now"
        self._last[run.new.alike] = gm
        self.on_backward(
            Backward(
                run.number,
                gm,
                names.described(gm),
                [None] * len(gm.graph.find_nodes(op="placeholder")),
                sources,
                look.record.nodes,
                forward_of(order, names.source),
                look.record.passes,
                look.graph,
                look.why_not,
                reason,
                tape.fixed,
                tape.shared_and_written(),
                run.hooks,
                run.error,
            )
        )


def _outputs(tape: Tape, names: BackwardNames, returned: Any) -> tuple[list[Any], list[str]]:
    """The gradients in the order of their accumulation, then what the call returned."""
    nodes: list[Any] = []
    sources: list[str] = []
    for accumulation, node in tape.accumulated.items():
        gradient = accumulation.variable.grad  # a hook may have replaced it, or taken it away
        nodes.append(tape.seen(gradient) if type(gradient) is torch.Tensor else node)
        sources.append(f"{names.source(accumulation.variable)}.grad")
    for index, value in enumerate(returned or ()):
        if isinstance(value, torch.Tensor):
            nodes.append(tape.seen(value))
            sources.append(f"output[{index}]")
    return nodes, sources


def _other_sizes(structure: Any, before: Any, now: Any) -> str:
    for number, ((old, _), (new, _)) in enumerate(zip(before, now, strict=True)):
        if len(old) != len(new):  # of AccumulateGrad: the parameter's size, and that of a gradient it has already
            article = "a" if len(new) > len(old) else "no"
            return f"{structure[number][0]} (NodeCall {number + 1}) finds {article} gradient this time"
        if old != new:
            return f"{structure[number][0]} (NodeCall {number + 1}) is fed with {_text(new)} instead of {_text(old)}"
    return "the same sizes with other parameters or dtypes"


def _text(sizes: Any) -> str:
    return ", ".join("[" + ", ".join(map(str, size)) + "]" for size in sizes) or "nothing"


class Captures(list[Backward]):
    """The recorded backwards. `reasons` counts backwards that were not recorded, by reason; where the block called
    none, it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: Counter[str] = Counter()

    def __repr__(self) -> str:
        if self or not self.reasons:
            return super().__repr__()
        return f"[] (no backward was recorded: {'; '.join(self.reasons)})"


@contextmanager
def capturing(*, skip: Collection[str] = (), keep: bool = True) -> Iterator[Captures]:
    """Records every new top-level backward in the block into the list that it yields. `keep`: copies of the inputs are
    kept in `values`. Warns at the end of the block if nothing was recorded, with the list's `reasons`.

    `skip` names passes of `passes.PASSES` to leave out.
    """
    captures = Captures()
    values: dict[str, torch.Tensor] = {}

    def kept(name: str, value: torch.Tensor) -> None:
        if keep:
            values[name] = value.detach().clone(memory_format=torch.preserve_format)

    def recorded(backward: Backward) -> None:
        backward.values = [values.get(node.name) for node in backward.module.graph.find_nodes(op="placeholder")]
        values.clear()
        captures.append(backward)

    capturer = Capturer(recorded, kept=kept, skip=skip)
    captures.reasons = capturer.left_out
    with ExitStack() as stack:
        for name in ("engine_call", "graph_engine_call"):
            theirs = functools.partial(seen, t.look_up(name))
            stack.enter_context(t.swapped(name, unseen(functools.partial(capturer.backward, theirs))))
        yield captures
    if not captures:
        if not captures.reasons:
            captures.reasons["the block called no backward() and no autograd.grad() outside of compiled code"] += 1
        warnings.warn(f"no backward was recorded: {'; '.join(captures.reasons)}", stacklevel=3)


_OTHERWISE_UNDER_A_MODE = frozenset({"ProdBackward0", "ProdBackward1", "CumprodBackward0"})
"""Derivative formulas that compute in another way while a dispatch mode is active (`isTensorSubclassLike` in
FunctionsManual.cpp): their results differ in the last bits. 52 formulas were compared on 2.11.0 and 2.13.0."""


def _not_to_be_watched(nodes: Iterable[Any]) -> str:
    """Why a backward with these autograd nodes is not run under a tape; "" where it is."""
    for node in nodes:
        if node.name() in _OTHERWISE_UNDER_A_MODE:
            return f"{node.name()} computes otherwise while it is watched"
        part = _part_of(node)
        kept = getattr(part, "_lazy_backward_info", None) is not None and hasattr(part, "_backward_impl")
        if part is not None and not kept:
            return "torch kept no graph of a compiled part of it (one from a cache, or of a double backward)"
    return ""


def _part_of(node: Any) -> Any:
    """The autograd.Function of AOTAutograd's that an autograd node belongs to, or None."""
    function = getattr(node, "_forward_cls", None)
    return function if hasattr(function, "_aot_id") else None


@contextmanager
def _parts_written(order: Sequence[Any], tape: Tape, calls: HookCalls) -> Iterator[None]:
    """Runs compiled parts of a backward as they are, and adds their graphs to the tape's."""
    with ExitStack() as stack:
        for part in {_part_of(node) for node in order if node is not None} - {None}:

            def run(ctx: Any, args: list[Any], part: Any = part, original: Any = part._backward_impl) -> Any:
                with calls.paused():
                    return tape.part(t.extract_bw_module(part), list(args), lambda: seen(original, ctx, args))

            stack.enter_context(t.replaced(part, "_backward_impl", staticmethod(unseen(run))))
        yield


def _is_traced(outputs: Sequence[Any]) -> bool:
    """Whether a tracer (AOTAutograd, make_fx, Dynamo, torch.func) calls this backward, so that it is no run of the
    program's."""
    if t.peek_interpreter_stack() is not None or torch.compiler.is_compiling():
        return True
    tracers = (t.FakeTensorMode, t.ProxyTorchDispatchMode, t.FunctionalTensorMode, t.FakeTensor, t.FunctionalTensor)
    return any(isinstance(value, tracers) for value in (*t.dispatch_mode_stack(), *outputs))
