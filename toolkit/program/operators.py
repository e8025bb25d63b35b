# pyright: basic
"""Inspects single operations of an eager run: finds a custom operator that contradicts its fake function or its schema,
and the first operation that does not repeat itself.

Each call of a custom operator is checked as a graph of one node. Where eager does not repeat itself, the call runs
twice with a checksum of every operation's arguments and results: the first result that differs on equal arguments
blames that kernel (a seed, an unordered sum or another cause of its own); an argument that differs, though no operation
produced it, was read from elsewhere or is uninitialised memory.

For example: `watching = Watching()`, then `with watching: step(x)`; `watching.found` is a NodeMismatch, or None.

    first_difference(lambda mode: run(mode))
    # 'torch.empty (train.py:12) returns memory that nothing wrote: ...'
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_arg

from ...dumps.allowlist import is_custom
from ...dumps.torchside.values import storage_key
from ...dumps.walk import user_frame
from ...dumps.wording import flat
from .. import torch_private as t
from ..debug_nop.checking import checked
from ..live.eager import EagerMode, fill
from ..live.execution import is_unused_state, settle
from ..live.torch_state import is_traced
from ..verdicts.mismatches import Mismatch, NodeMismatch
from .reach import user_place


class Watching(EagerMode):
    """Checks custom operators until one is wrong. `found`: the wrong one; `unasked`: one whose fake function raises or
    is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: NodeMismatch | None = None
        self.unasked: NodeMismatch | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.found is not None or not is_custom(str(func)):
            return func(*args, **(kwargs or {}))
        stack = "".join(traceback.format_list(traceback.extract_stack()[:-1]))
        try:
            gm, given = _alone(func, args, kwargs or {}, stack)
        except Exception as error:  # noqa: BLE001 - a fake function is the user's code and may raise anything
            line, code = user_frame(stack)
            no_answer = Mismatch("run", "an answer of its fake function", flat(error, 80), "unknown")
            self.unasked = NodeMismatch(func._opname, func._schema.name, [no_answer], line=line, code=code)
            return func(*args, **(kwargs or {}))
        run = checked(gm)
        result = run(given)
        self.found = next((finding for finding in run.findings if finding.of_custom_op), None)
        return result


def _alone(func: Any, args: Any, kwargs: Any, stack: str) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph of this call alone, with fake results as `meta["val"]`, and the tensors that are its inputs."""
    mode = t.FakeTensorMode(shape_env=t.ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)
    graph, given, placeholders = fx.Graph(), [], {}
    names = {id(value): argument.name for argument, value in zip(func._schema.arguments, args, strict=False)}

    def known(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in placeholders:
            placeholders[id(value)] = graph.placeholder(names.get(id(value), "arg"))
            placeholders[id(value)].meta["val"] = mode.from_tensor(value, static_shapes=True)
            given.append(value)
        return placeholders[id(value)]

    args, kwargs = t.tree_map(known, (args, kwargs))
    node = graph.create_node("call_function", func, args, kwargs, name=func._opname)
    with torch.no_grad(), mode:
        node.meta["val"] = func(*map_arg(args, _fake), **map_arg(kwargs, _fake))
    node.meta["stack_trace"] = stack
    graph.output(node)
    return fx.GraphModule(torch.nn.Module(), graph), given


def _fake(node: fx.Node) -> Any:
    return node.meta["val"]


_UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
_FILLS = ("copy_", "fill_", "zero_")
MOST = 20_000
_NOTHING_WROTE = (
    "memory that nothing wrote (torch.empty): write it first; "
    "torch.utils.deterministic.fill_uninitialized_memory shows it"
)


class Step(NamedTuple):
    """One operation: its name, alone and with the user's line, checksums of its arguments and results, whether it draws
    random numbers, and whether from a generator that it is given. `unwritten`: checksums of the arguments that it reads
    from memory not yet written as a whole (a view reads nothing)."""

    name: str
    place: str
    given: tuple[Any, ...]
    results: tuple[Any, ...]
    random: bool
    own: bool
    unwritten: tuple[Any, ...] = ()


POISONS = (0x44, 0x3A)
"""Fill bytes: about 800 and 0.001 as float32. Two, since the memory may happen to hold one of them."""


class Poison(EagerMode):
    """Fills the float tensors that `empty` and its like return with a byte, so that results that depend on them differ.
    Integers stay: an index filled so would crash the device."""

    def __init__(self, byte: int) -> None:
        super().__init__()
        self.byte = byte

    def after(self, func: Any, given: Any, output: Any) -> None:
        """Fills the result of an operation that returns uninitialised memory."""
        if hasattr(func, "_schema") and func.overloadpacket.__name__ in _UNWRITTEN[:-1]:
            for tensor in t.tree_leaves(output):
                plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and not tensor.is_meta
                if plain and (tensor.is_floating_point() or tensor.is_complex()) and not is_traced(tensor):
                    fill(tensor, poison=self.byte)


class WaitForDevice(EagerMode):
    """Synchronises with the device after each operation."""

    def after(self, func: Any, given: Any, output: Any) -> None:
        """Synchronises."""
        settle()


class Tracing(EagerMode):
    """Records each operation as a Step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.unwritten: dict[int, torch.Tensor] = {}
        self.wrote: dict[int, str] = {}
        """Storage -> the operation that last wrote a part of it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not hasattr(func, "_schema"):
            return func(*args, **(kwargs or {}))
        leaves = t.tree_leaves((args, kwargs or {}))
        name, called = func.overloadpacket.__name__, str(func).removesuffix(".default")
        expected = func._schema.arguments
        named = [*zip((argument.name for argument in expected), args, strict=False), *(kwargs or {}).items()]
        undropped = any(argument.name == "dropout_p" for argument in expected) and not dict(named).get("dropout_p")
        counts = lambda value: not (undropped and is_unused_state(value))  # noqa: E731
        inputs = [value for value in leaves if not isinstance(value, torch.Generator) and counts(value)]
        drawn = torch.Tag.nondeterministic_seeded in func.tags and not undropped
        writes = {argument.name for argument in expected if argument.alias_info and argument.alias_info.is_write}
        written = {id(value) for key, value in named if key in writes}
        tainted = [value for value in inputs if self._unwritten(value) and id(value) not in written]
        reads = not func.is_view and name not in _UNWRITTEN
        full = len(self.steps) >= MOST
        given = () if full else tuple(_number(value) for value in inputs if not self._unwritten(value))
        unwritten = tuple(map(_number, tainted)) if reads and not full else ()
        output = func(*args, **(kwargs or {}))
        results = [value for value in t.tree_leaves(output) if isinstance(value, torch.Tensor) and counts(value)]
        for tensor in results:
            if name in _UNWRITTEN and tensor.layout == torch.strided:
                self.unwritten[storage_key(tensor)] = tensor
            elif writes and self._unwritten(tensor):
                storage = tensor.untyped_storage()
                if (drawn or name in _FILLS) and tensor.numel() * tensor.itemsize == storage.nbytes():
                    del self.unwritten[storage._cdata]
                else:
                    self.wrote[storage._cdata] = _placed(called)
        if not full:
            numbers = tuple(_number(value) for value in results if drawn or not self._unwritten(value))
            own = any(isinstance(value, torch.Generator) for value in leaves)
            self.steps.append(Step(called, _placed(called), given, numbers, drawn, own, unwritten))
        return output

    def left(self) -> list[tuple[str, Any]]:
        """The contents (as checksums) of memory that was never written as a whole, each with the operation that last
        wrote into it."""
        whole = lambda tensor: torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())  # noqa: E731
        there = [(place, self.unwritten[key]) for key, place in self.wrote.items() if key in self.unwritten]
        return [(place, _number(whole(tensor))) for place, tensor in there]

    def _unwritten(self, value: Any) -> bool:
        strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
        return strided and value.untyped_storage()._cdata in self.unwritten


def _number(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value if isinstance(value, (int, float, str, bool, type(None))) else str(type(value))
    if value.layout != torch.strided or is_traced(value) or not value.numel():
        return tuple(value.shape)
    plain = value.detach()
    plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
    bits = plain.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).to(torch.int64)
    weights = torch.arange(1, bits.numel() + 1, device=bits.device) % 1_000_003
    return tuple(value.shape), int((bits * weights).sum())


def first_difference(run: Callable[[Any], object]) -> str:
    """Names the first operation that does not repeat itself, why, and what to do; "" where two runs of every operation
    are equal. `run` runs the call once from its start under the given mode."""
    modes = _twice(run)
    for first, second in zip(*(mode.steps for mode in modes), strict=False):
        place = first.place
        if first.name != second.name:
            return (
                f"at {place} the second run takes another path: something outside torch decides (time, the order of a "
                "set, a random generator)"
            )
        if first.unwritten != second.unwritten:
            return f"{place} reads {_NOTHING_WROTE}"
        if first.given != second.given:
            seeded = "from a generator outside torch: seed it (numpy.random.default_rng(0))"
            if any(isinstance(value, tuple) for value in set(first.given) ^ set(second.given)):
                seeded += ", or from a kernel of the program's own, which may race"
            return f"{place} gets another number in each run, {seeded}"
        if first.results != second.results:
            if first.own:
                return f"{place} draws from its own generator: seed it with generator.manual_seed(0)"
            if not first.name.startswith(("aten.", "prims.")):
                return f"{place} gives another result for equal arguments: look into the code of that operator"
            return (
                f"{place} gives another result for equal arguments: its kernel adds up or writes in no fixed order; "
                f"{_setting(run)}"
            )
    lefts = zip(*(mode.left() for mode in modes), strict=False)
    return next((f"{place} leaves {_NOTHING_WROTE}" for (place, value), (_, other) in lefts if value != other), "")


def draws(run: Callable[[Any], object]) -> list[str]:
    """The operations that draw random numbers, with the user's lines, without repeats."""
    mode = Tracing()
    run(mode)
    return list(dict.fromkeys(step.place for step in mode.steps if step.random))


def _twice(run: Callable[[Any], object]) -> tuple[Tracing, Tracing]:
    modes = Tracing(), Tracing()
    for mode in modes:
        run(mode)
    return modes


def _placed(name: str) -> str:
    file, line = user_place()
    return f"{name} ({Path(file).name}:{line})"


def _setting(run: Callable[[Any], object]) -> str:
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        first, second = ([(step.name, step.results) for step in mode.steps] for mode in _twice(run))
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
    makes = "makes" if first == second else "does not make"
    return f"torch.use_deterministic_algorithms(True) was tried and {makes} it deterministic"
