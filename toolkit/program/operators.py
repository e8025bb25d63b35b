# pyright: basic
"""What single operations of a run in eager tell: an operator of the user's own that does otherwise than its fake
function or its schema says, and the first operation that does not repeat itself.

Each call of an own operator is checked as a graph of one node. Where eager does not repeat itself the call runs twice
with every operation's arguments and results written down as numbers: the first result that differs on equal arguments
is the kernel's, which a seed, an unordered sum or another rule of its own explains; an argument that differs and that
no operation made was read from elsewhere, or is memory that was never written.

For example: `watching = Watching()`, then `with watching: step(x)`; `watching.found` is a NodeMismatch, or None.

    first_difference(lambda mode: run(mode))
    # 'torch.empty (train.py:12) returns memory that nothing wrote: ...'
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_arg

from ...dumps.allowlist import is_custom
from ...dumps.walk import user_frame
from ...dumps.wording import flat
from .. import torch_private as t
from ..debug_nop.checking import checked
from ..live.eager import fill
from ..verdicts.mismatches import Mismatch, NodeMismatch
from .aside import EagerMode


class Watching(EagerMode):
    """Checks operators that are not torch's until one is wrong. `found`: what that is; `unasked`: one whose fake
    function raises or is missing."""

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
    """A graph of this call alone, with what the fake function says, and its inputs."""
    mode = t.FakeTensorMode(shape_env=t.ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)
    graph, given, made = fx.Graph(), [], {}
    names = {id(value): argument.name for argument, value in zip(func._schema.arguments, args, strict=False)}

    def known(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in made:
            made[id(value)] = graph.placeholder(names.get(id(value), "arg"))
            made[id(value)].meta["val"] = mode.from_tensor(value, static_shapes=True)
            given.append(value)
        return made[id(value)]

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
MOST = 20_000


class Step(NamedTuple):
    """One operation: its name, the user's line, its arguments and results as numbers, whether it draws random numbers,
    and whether an argument is memory that nothing wrote."""

    name: str
    line: str
    given: tuple[Any, ...]
    results: tuple[Any, ...]
    random: bool
    from_unwritten: bool


POISONS = (0x44, 0x3A)
"""Bytes, about 800 and 0.001 as float32. Two, as that memory may hold one of them already."""


class Poison(EagerMode):
    """Fills the floats that `empty` and its like leave unwritten, so that what depends on them differs; an index
    filled so would end the device."""

    def __init__(self, byte: int) -> None:
        super().__init__()
        self.byte = byte

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if hasattr(func, "_schema") and func.overloadpacket.__name__ in _UNWRITTEN[:-1]:
            for tensor in t.tree_leaves(output):
                plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and not tensor.is_meta
                if plain and (tensor.is_floating_point() or tensor.is_complex()):
                    fill(tensor, poison=self.byte)
        return output


class Tracing(EagerMode):
    """Records each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.unwritten: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not hasattr(func, "_schema"):
            return func(*args, **(kwargs or {}))
        inputs = [value for value in t.tree_leaves((args, kwargs or {})) if not isinstance(value, torch.Generator)]
        given = tuple(map(_number, inputs)) if len(self.steps) < MOST else ()
        name = func.overloadpacket.__name__
        tainted = any(
            isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in self.unwritten for value in inputs
        )
        output = func(*args, **(kwargs or {}))
        if len(self.steps) < MOST:
            results = [value for value in t.tree_leaves(output) if isinstance(value, torch.Tensor)]
            fresh = name in _UNWRITTEN
            for tensor in results:
                if fresh:
                    self.unwritten[tensor.untyped_storage()._cdata] = tensor
            if func._schema.is_mutable and not fresh:
                for tensor in results:  # written now, or partly
                    self.unwritten.pop(tensor.untyped_storage()._cdata, None)
            numbers = () if fresh else tuple(map(_number, results))
            drawn = torch.Tag.nondeterministic_seeded in func.tags
            name = str(func).removesuffix(".default")
            self.steps.append(Step(name, _line(), () if tainted and fresh else given, numbers, drawn, tainted))
        return output


def _number(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value if isinstance(value, (int, float, str, bool, type(None))) else str(type(value))
    if value.layout != torch.strided or not value.numel():
        return tuple(value.shape)
    plain = value.detach()
    plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
    bits = plain.contiguous().flatten().view(torch.uint8).to(torch.int64)
    weights = torch.arange(1, bits.numel() + 1, device=bits.device) % 1_000_003
    return tuple(value.shape), int((bits * weights).sum())


def _line() -> str:
    frame = sys._getframe(2)
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
    while frame is not None and (frame.f_code.co_filename.startswith(ours) or "<" in frame.f_code.co_filename):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""


def first_difference(run: Callable[[Any], object]) -> str:
    """The first operation that does not repeat itself, why, and what to do; "" where two runs of every operation are
    equal. `run` runs the call once from its start under the mode that it is given."""
    for first, second in zip(*_twice(run), strict=False):
        place = f"{first.name} ({first.line})" if first.line else first.name
        if first.name != second.name:
            return (
                f"at {place} the second run takes another path: something outside torch decides (time, the order of a "
                "set, a random generator)"
            )
        if first.given != second.given:
            if first.from_unwritten:
                return (
                    f"{place} reads memory that nothing wrote (torch.empty): write it first; "
                    "torch.utils.deterministic.fill_uninitialized_memory shows it"
                )
            seeded = "from a generator outside torch: seed it (numpy.random.default_rng(0))"
            if any(isinstance(one, tuple) for one in set(first.given) ^ set(second.given)):
                seeded += ", or from a kernel of the program's own, which may race"
            return f"{place} gets another number in each run, {seeded}"
        if first.results != second.results:
            if first.random:
                return f"{place} draws from its own generator: seed it with generator.manual_seed(0)"
            if not first.name.startswith(("aten.", "prims.")):
                return f"{place} gives another result for equal arguments: look into the code of that operator"
            return (
                f"{place} gives another result for equal arguments: its kernel adds up in no fixed order; "
                f"{_setting(run)}"
            )
    return ""


def _twice(run: Callable[[Any], object]) -> list[list[Step]]:
    modes = Tracing(), Tracing()
    for mode in modes:
        run(mode)
    return [mode.steps for mode in modes]


def _setting(run: Callable[[Any], object]) -> str:
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        first, second = ([(step.name, step.results) for step in steps] for steps in _twice(run))
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
    makes = "makes" if first == second else "does not make"
    return f"torch.use_deterministic_algorithms(True) was tried and {makes} it deterministic"
