# pyright: basic
"""Where a backward is: the autograd node at work, its number in the capture, the hook, and the user's lines of the
forward.

The engine says which node runs. The number is that of torch's capture, which walks depth first, each node once all that
feed it are done; `walk` goes the same way over `next_functions`. Source of the order: `_compiled_autograd_impl` in
torch/csrc/dynamo/python_compiled_autograd.cpp. The forward's lines are those that anomaly mode keeps, where that was
on.

For example: `[node and node.name() for node in walk(edges)][:3]` gives `[None, 'SumBackward0', 'MulBackward0']`.
"""

from __future__ import annotations

import gc
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import fx
from torch.utils.weak import WeakTensorKeyDictionary

from ....dumps.schema import InputRecord
from ....dumps.torchside.values import storage_key
from ... import torch_private as t
from ...torch_private.unseen import at_work

_OURS = str(Path(__file__).parent)
_BETWEEN = tuple(
    f"{torch.__path__[0]}/{name}"
    for name in ("_compile.py", "_ops.py", "autograd/function.py", "utils/_python_dispatch.py", "_dynamo/eval_frame.py")
)
"""Torch's own frames between the engine and a hook, and between an operator and the mode that sees it."""
_ENGINE_CALL = "_engine_run_backward"
_TORCH = str(Path(torch.__path__[0]))
_HOOK_FILES = tuple(f"{_TORCH}/{name}" for name in ("utils/hooks.py", "autograd/graph.py", "distributed/", "nn/"))
"""Where torch's own hooks are."""


@dataclass
class TapePlace:
    """Where in the backward an operator runs: the autograd node ("MulBackward0 (NodeCall 3)"), the hook or custom
    Function whose Python runs, the forward's lines, the sequence number. Of a node that accumulates a gradient also the
    node itself, and a name for the gradient.
    """

    node: str = ""
    hook: str = ""
    stack: str = ""
    seq_nr: int = -1
    accumulates: Any = None
    gradient: str = ""


class TapePlaces:
    """Finds the place of the operator that is about to run. `order` is the result of `walk`, `called` names a
    parameter."""

    def __init__(self, order: Sequence[Any], called: Callable[[Any], str]) -> None:
        self._called = called
        self.numbers = {node: number for number, node in enumerate(order) if node is not None}
        self._known: dict[Any, TapePlace] = {}

    def label(self, node: Any) -> str:
        """The name of an autograd node with its number."""
        number = self.numbers.get(node)
        return node.name() + (f" (NodeCall {number})" if number is not None else "")

    def now(self) -> TapePlace:
        """The present place; an empty one before the first node."""
        node = t.current_autograd_node()
        if node is None:
            return TapePlace(hook=_python())
        place = self._known.get(node)
        if place is None:
            place = self._known[node] = TapePlace(self.label(node), "", forward_lines(node), _sequence(node))
            if hasattr(node, "variable"):
                place.accumulates = node
                place.gradient = re.sub(r"\W+", "_", f"grad_{self._called(node.variable)}", flags=re.ASCII).lower()
        hook = _python()
        return TapePlace(place.node, hook, place.stack, place.seq_nr) if hook else place


class HookCalls:
    """Collects the hooks that the engine calls while this is entered, also those that run no operator, and the
    callbacks at the end of the backward.

    The interpreter reports calls (`sys.setprofile`). Nothing is collected where the program has a profiler of its own,
    or where Dynamo is at work, because Dynamo skips frames that run under a profiler.
    """

    def __init__(self, places: TapePlaces) -> None:
        self.found: list[dict[str, str]] = []
        self._places = places
        self._on = False

    def __enter__(self) -> HookCalls:
        self._on = sys.getprofile() is None and not at_work()
        if self._on:
            sys.setprofile(self._called)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._on:
            sys.setprofile(None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ignores calls inside the block."""
        self.__exit__()
        try:
            yield
        finally:
            if self._on:
                sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _is_engine(frame.f_back) and _may_be_hook(frame.f_code.co_filename):
            node = t.current_autograd_node()
            late = {"kind": "at the end of the backward", "node": ""}
            where = late if node is None else {"node": self._places.label(node)}
            self.found.append({"hook": _called_name(frame), **where})


def walk(roots: Sequence[Any]) -> list[Any]:
    """The autograd nodes in the order in which a backward from these edges is captured; the first, the root, is
    None."""
    feeding, seen, stack = Counter(roots), set[Any](), list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            fed = [following for following, _ in node.next_functions if following is not None]
            feeding.update(fed)
            stack += fed
    order: list[Any] = [None]
    ready: list[Any] = []
    _feed(roots, feeding, ready)
    while ready:
        node = ready.pop()
        order.append(node)
        _feed([following for following, _ in node.next_functions], feeding, ready)
    return order


def roots_of(outputs: Sequence[Any]) -> list[Any]:
    """The autograd nodes that `backward(outputs)` begins with."""
    return [
        value.node if hasattr(value, "node") else torch.autograd.graph.get_gradient_edge(value).node
        for value in outputs
    ]


def agrees(order: Sequence[Any], names: Mapping[int, str]) -> bool:
    """Whether the walk met the nodes that the capture reported, in the same order."""
    return all(number < len(order) and (number == 0 or order[number].name() == name) for number, name in names.items())


def shape_of(order: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What distinguishes one backward from another: the structure (names and edges), and what the nodes are fed
    with."""
    numbers = {node: number for number, node in enumerate(order) if node is not None}

    def edges(node: Any) -> tuple[Any, ...]:
        return tuple((numbers.get(following, -1), slot) for following, slot in node.next_functions)

    sizes = tuple((_fed_sizes(node), _distinguished_by(node)) for node in order[1:])
    return tuple((node.name(), edges(node)) for node in order[1:]), sizes


def forward_of(order: Sequence[Any], called: Callable[[Any], str]) -> list[tuple[str, int, list[int], list[int]]]:
    """The forward as its autograd nodes record it, in order: (operator or parameter, number, numbers of what it was
    made from, sizes of its result). A parameter is made from nothing."""
    numbers = {node: number for number, node in enumerate(order) if node is not None}
    rows: list[tuple[str, int, list[int], list[int]]] = []
    for node, number in reversed(numbers.items()):
        variable = getattr(node, "variable", None)
        short = re.sub(r"Backward\d*$", "", node.name().rpartition("::")[2])
        name = short if variable is None else called(variable)
        made_from = [numbers[other] for other, _ in node.next_functions if other in numbers]
        rows.append((name, number, made_from, list(next(iter(_fed_sizes(node)), ()))))
    return rows


def forward_lines(node: Any) -> str:
    """The user's lines of the forward that made an autograd node, as anomaly mode keeps them; empty without it."""
    kept = getattr(node, "metadata", None) or {}
    frames: list[str] = []
    for line in "".join(kept.get("traceback_") or ()).splitlines(keepends=True):
        if line.lstrip().startswith('File "') or not frames:
            frames.append(line)
        else:
            frames[-1] += line
    return "".join(frame for frame in frames if f'"{_TORCH}' not in frame and f'"{_OURS}' not in frame)


def _python() -> str:
    """The name of the running Python function that the engine called: a hook or a custom Function's backward; "" for
    none."""
    function_frame: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_engine(frame):
        if not frame.f_code.co_filename.startswith((_OURS, *_BETWEEN)):
            function_frame = frame
        frame = frame.f_back
    return "" if function_frame is None or frame is None else _called_name(function_frame)


def _is_engine(frame: FrameType | None) -> bool:
    """Whether a frame is torch's own, which calls the engine."""
    return frame is not None and frame.f_code.co_name == _ENGINE_CALL and frame.f_code.co_filename.startswith(_TORCH)


def _may_be_hook(file: str) -> bool:
    """Whether a Python frame below the engine may be a hook: torch's dispatcher calls Python there too."""
    return file.startswith(_HOOK_FILES) or not file.startswith((_OURS, _TORCH, *_BETWEEN, logging.__file__))


def _called_name(frame: FrameType) -> str:
    code = frame.f_code
    name = f"{frame.f_globals.get('__name__', '')}.{getattr(code, 'co_qualname', code.co_name)}"
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def _feed(nodes: Sequence[Any], feeding: dict[Any, int], ready: list[Any]) -> None:
    for node in filter(None, nodes):
        feeding[node] -= 1
        if feeding[node] == 0:
            ready.append(node)


def _sequence(node: Any) -> int:
    number = getattr(node, "_sequence_nr", None)
    sequence = number() if callable(number) else -1
    return sequence if isinstance(sequence, int) and sequence < 1 << 62 else -1


def _fed_sizes(node: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of the gradients that an autograd node takes; for one that accumulates, the shape of its parameter,
    and of the gradient that this has already.
    """
    variable = getattr(node, "variable", None)
    if variable is not None:
        there = variable.grad
        return (tuple(variable.shape), *((tuple(there.shape),) if there is not None else ()))
    return tuple(tuple(item.shape) for item in getattr(node, "_input_metadata", ()))


def _distinguished_by(node: Any) -> tuple[Any, ...]:
    """What else distinguishes two nodes of one name and size: dtypes, the parameter, the layout of its gradient."""
    variable = getattr(node, "variable", None)
    if variable is not None:
        return (id(variable), variable.dtype, getattr(variable.grad, "layout", None))
    return (*(item.dtype for item in getattr(node, "_input_metadata", ())), getattr(node, "_saved_sparse", None))


class BackwardNames:
    """Names and roles of a captured backward's inputs. `roots` are the gradients that it begins with.

    A parameter is known by its name in its module (a view of it too), an old gradient by its parameter, the gradient
    that the backward began with as `grad_output`, a saved activation by the autograd node that used it first; what a
    hook or a custom Function holds is a constant.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self._known: Any = WeakTensorKeyDictionary()
        self._memory: dict[int, tuple[str, str, str]] = {}
        self.records: dict[str, InputRecord] = {}
        for path, parameter in parameters():
            self._known[parameter] = known = ("parameter", path, f"p_{path}")
            if parameter.layout is torch.strided and type(parameter) in (torch.Tensor, torch.nn.Parameter):
                self._memory[storage_key(parameter)] = known
            if parameter.grad is not None:
                self._known[parameter.grad] = ("saved", f"{path}.grad", f"old_grad_{path}")
        for root in roots:
            if isinstance(root, torch.Tensor):
                self._known[root] = ("tangent", "the gradient that the backward began with", "grad_output")

    def name(self, value: torch.Tensor, place: TapePlace) -> str:
        """A free name for the placeholder of a value first used at `place`; records it."""
        role, source, wanted = self._known.get(value) or self._view(value) or self._of(place)
        name = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_").lower() or "saved"
        free, count = name, 0
        while free in self.records:
            count += 1
            free = f"{name}_{count}"
        self.records[free] = InputRecord(free, role=role, source=source)  # type: ignore[arg-type]
        return free

    def source(self, parameter: torch.Tensor) -> str:
        """The name of a parameter in its module."""
        known = self._known.get(parameter)
        return known[1] if known and known[0] == "parameter" else "unnamed"

    def described(self, gm: fx.GraphModule) -> list[InputRecord]:
        """The placeholders of a graph with their roles."""
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        return [self.records.get(name) or InputRecord(name) for name in names]

    def _view(self, value: torch.Tensor) -> tuple[str, str, str] | None:
        known = self._memory.get(storage_key(value)) if value.layout is torch.strided else None
        return known and ("parameter", f"{known[1]} (a view)", known[2])

    @staticmethod
    def _of(place: TapePlace) -> tuple[str, str, str]:
        if place.hook.endswith(" drew it"):
            return "constant", f"random numbers: {place.hook}", "drawn"
        if place.hook:
            return "constant", f"used in {place.hook}", "held"
        if not place.node:
            return "tangent", "the gradient that the backward began with", "grad_output"
        name, _, rest = place.node.rpartition("::")[2].partition(" (NodeCall ")
        short = re.sub(r"Backward\d*$", "", name)
        return "saved", place.node, f"saved_{rest.rstrip(')')}_{short}"


def parameters() -> list[tuple[str, torch.Tensor]]:
    """Every parameter of the process's modules, with its path; prefixed with the class name where several outermost
    modules hold parameters."""
    modules = [
        each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module) and "_modules" in vars(each)
    ]
    inner = {id(child) for module in modules for child in vars(module)["_modules"].values()}
    held = [_named(module) for module in modules if id(module) not in inner]
    outer = [(kind, named) for kind, named in held if named]
    many = len(outer) > 1
    return [(f"{kind}.{path}" if many else path, parameter) for kind, named in outer for path, parameter in named]


def _named(module: torch.nn.Module) -> tuple[str, list[tuple[str, torch.Tensor]]]:
    """The name of the class, and the parameters by path; none where reading them raises."""
    try:
        return type(module).__name__, list(torch.nn.Module.named_parameters(module))
    except Exception:  # noqa: BLE001 - its parameters stay without names
        return type(module).__name__, []
