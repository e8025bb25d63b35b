# pyright: basic
"""Computes what every rung of one graph is compared with: eager's results and the float64 reference, kept in a file
between queries.

The ladder judges one graph under many rungs, each in a child of its own; the first child writes the file, the others
read it. It is valid for one graph, one seed and one device; the caller of `judge` has to ensure that. The file holds
tensors and plain values, and is never unpickled as anything else.

>>> gm = torch.fx.symbolic_trace(lambda x: torch.ops.aten.add.Tensor(x, x))
>>> reference(gm, [torch.ones(2)])
[tensor([2., 2.], dtype=torch.float64)]
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from ...dumps.torchside.values import fake_of
from ...dumps.torchside.wrappers import whole
from ...dumps.wording import error_line
from ..live.eager import GraphRunError, attribute, clone_inputs, copy_graph, drawing, is_random, run_graph
from ..live.execution import Execution
from ..numerics.comparison import ROUNDING, Difference, all_finite, is_float, rms
from ..numerics.tolerance import tolerance

Run = Callable[..., list[Any]]
"""Executes a graph on a list of inputs; where a hook is given, it is called with each node's value (see
`run_graph`)."""

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
} | {
    getattr(torch, name): torch.float64
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
}
_NARROWING_METHODS = frozenset({"half", "float", "bfloat16"})
_REINTERPRETING = frozenset(
    {"aten.view.dtype", "prims.view_of_dtype.default", "aten.view_copy.dtype", "aten.frexp.Tensor"}
)


class NoReference(Exception):
    """This graph has no float64 run; `reason` names the node and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def reference(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    run: Callable[[fx.GraphModule, list[Any]], list[Any]] = run_graph,
    rounded: Mapping[str, torch.dtype] | None = None,
) -> list[Any] | NoReference:
    """Returns the outputs of the graph in float64 (every dtype argument widened, run on widened inputs), or the reason
    why there are none. `run` executes a graph (forward alone by default). Graph and inputs are not changed.

    float16, bfloat16, float32 and the float8 formats become float64, complex32 and complex64 become complex128: in
    arguments, keyword arguments, constants, parameters, subgraphs, `.half()`-like methods and the default dtype of
    factories; autocast regions are switched off. Random operations run in their recorded dtype and are widened
    afterwards, so one seed gives one set of random numbers. A node without a meaning or a kernel in float64 gives
    NoReference with its name, never a wrong reference.

    `rounded`: nodes whose first argument is rounded to a dtype all the same (see `left_out`).
    """
    default = torch.get_default_dtype()
    try:
        wide = widen_graph(gm, rounded)
        torch.set_default_dtype(torch.float64)
        return run(wide, clone_inputs(inputs, _widen_tensor))
    except NoReference as none:
        return none
    except GraphRunError as error:
        return NoReference(f"node {error.node} does not run in float64 ({error_line(error.__cause__)})")
    except RuntimeError as error:  # an operator whose backward has no float64 kernel
        return NoReference(f"the graph does not run in float64 ({error_line(error)})")
    finally:
        torch.set_default_dtype(default)


def widen_graph(gm: fx.GraphModule, rounded: Mapping[str, torch.dtype] | None = None) -> fx.GraphModule:
    """A copy of the graph that runs on widened inputs; raises NoReference for a node that has no meaning in float64."""
    wide = copy_graph(gm)
    dtypes = {node.name: _dtype_of(node) for node in gm.graph.nodes}
    for node in list(wide.graph.nodes):
        _widen_node(node, dtypes)
        if rounded and node.name in rounded:
            with wide.graph.inserting_before(node):
                given = wide.graph.call_function(_rounded, (node.args[0], rounded[node.name]))
            node.update_arg(0, given)
    _widen_attributes(wide)
    wide.recompile()
    return wide


def _widen_node(node: fx.Node, dtypes: dict[str, torch.dtype | None]) -> None:
    if node.op not in ("call_function", "call_method", "call_module"):
        return
    if (str(node.target) in _REINTERPRETING or _views_as_dtype(node)) and not _whole(node, dtypes):
        raise NoReference(
            f"node {node.name} ({node.target}) reinterprets the bits of its input, which has no meaning in float64"
        )
    if is_random(node):
        node.target = _as_recorded(node.target, node.op, _narrow_arguments(node, dtypes))
        node.op = "call_function"
        return
    if node.op == "call_function" and getattr(node.target, "__name__", "") == "_enter_autocast":
        device, dtype, *_ = (*node.args, None, None)
        node.args, node.kwargs = (device, dtype, False, None), {}
        return
    if node.op == "call_method" and node.target in _NARROWING_METHODS:
        node.target = "double"
    node.args = map_aggregate(node.args, _wide_dtype)
    node.kwargs = map_aggregate(node.kwargs, _wide_dtype)


def _whole(node: fx.Node, dtypes: dict[str, torch.dtype | None]) -> bool:
    """Whether a node's result and inputs are integers or booleans, which widening leaves unchanged."""
    both = [dtypes.get(part.name) for part in (node, *node.all_input_nodes)]
    return all(dtype is not None and not dtype.is_floating_point and not dtype.is_complex for dtype in both)


def _rounded(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype).to(value.dtype)


def _views_as_dtype(node: fx.Node) -> bool:
    return node.op == "call_method" and node.target == "view" and any(isinstance(arg, torch.dtype) for arg in node.args)


def _wide_dtype(value: Any) -> Any:
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _narrow_arguments(node: fx.Node, dtypes: dict[str, torch.dtype | None]) -> dict[str, Any]:
    """Position or name of each tensor argument of a random op -> the recorded dtype to narrow it back to."""
    given = {str(index): value for index, value in enumerate(node.args)} | node.kwargs
    return {key: dtypes.get(value.name) for key, value in given.items() if isinstance(value, fx.Node)}


def _as_recorded(target: Any, op: str, narrow: dict[str, torch.dtype | None]) -> Callable[..., Any]:
    """Wraps a random op: it runs in the recorded dtypes, so that it draws eager's numbers, and its result is widened.
    What it writes is copied into its argument; an argument that it returns unchanged (dropout outside training) is
    returned as it was."""

    def back(key: str, value: Any) -> Any:
        dtype = narrow.get(key)
        if isinstance(value, torch.Tensor) and dtype is not None and value.dtype in (torch.float64, torch.complex128):
            return value.to(dtype)
        return value

    def random_as_recorded(*args: Any, **kwargs: Any) -> Any:
        plain = tuple(back(str(index), value) for index, value in enumerate(args))
        named = {key: back(key, value) for key, value in kwargs.items()}
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            draw = getattr(plain[0], target) if op == "call_method" else drawing(target)
            out = draw(*(plain[1:] if op == "call_method" else plain), **named)
        finally:
            torch.set_default_dtype(before)
        both = zip((*plain, *named.values()), (*args, *kwargs.values()), strict=True)
        narrowed = [(used, given) for used, given in both if used is not given]
        for used, given in narrowed:
            if used.is_inference() or used._version:  # it was written to
                given.copy_(used)

        def widened(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            handed_on = next((given for used, given in narrowed if used is value), None)
            return value.to(WIDE.get(value.dtype, value.dtype)) if handed_on is None else handed_on

        return map_aggregate(out, widened)

    return random_as_recorded


def _widen_attributes(wide: fx.GraphModule) -> None:
    """Replaces the graph's tensors and modules by widened copies under new names; the caller shares the originals."""
    renamed: dict[str, str] = {}
    for node in wide.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        path = str(node.target)
        if path not in renamed:
            value = attribute(wide, path)
            renamed[path] = name = f"_wide_{len(renamed)}"
            setattr(wide, name, _widen_value(value))
        node.target = renamed[path]


def _widen_value(value: Any) -> Any:
    if isinstance(value, fx.GraphModule):
        return widen_graph(value)
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to(torch.float64)
    return _widen_tensor(value) if isinstance(value, torch.Tensor) and value.dtype in WIDE else value


def _widen_tensor(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.detach().to(WIDE.get(tensor.dtype, tensor.dtype), copy=True)
    return (
        torch.nn.Parameter(wide, requires_grad=tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else wide
    )


def _dtype_of(node: fx.Node) -> torch.dtype | None:
    value = fake_of(node)
    return value.dtype if isinstance(value, torch.Tensor) else None


MOST_BYTES = 4 << 30
"""Larger results are recomputed by each query, which is quicker than to write and read them."""


@dataclass
class Baseline:
    """What rungs are compared with. `changed`: places of inputs that eager writes to; `left_out`: places of results
    that cannot be compared (uninitialised memory); `truth`: the float64 results, or why there are none; `computed`:
    whether inputs that require grad were made non-leaves.
    """

    eager: Execution
    changed: list[int]
    left_out: set[int] = field(default_factory=set)
    truth: list[Any] | NoReference = field(default_factory=lambda: NoReference("numbers were not asked for"))
    computed: bool = False

    def bytes(self) -> int:
        """The size of the file that `save` would write."""
        truth = [] if isinstance(self.truth, NoReference) else self.truth
        kept = [*self.eager.outputs, *self.eager.gradients, *truth]
        return sum(value.numel() * value.element_size() for value in kept if isinstance(value, torch.Tensor))

    def save(self, path: Path) -> None:
        """Writes the file whole or not at all; without a file each query computes the baseline itself."""
        if self.bytes() > MOST_BYTES:
            return
        part = path.with_suffix(".part")
        inputs = [whole(value) if index in self.changed else None for index, value in enumerate(self.eager.inputs)]
        parts = _bare([self.eager.outputs, self.eager.gradients, inputs, self.eager.aliases])
        truth = self.truth.reason if isinstance(self.truth, NoReference) else _bare(self.truth)
        with contextlib.suppress(OSError, RuntimeError, TypeError, AttributeError, pickle.PicklingError):
            about = {"changed": self.changed, "left_out": sorted(self.left_out), "computed": self.computed}
            torch.save({"parts": parts, "truth": truth, **about}, part)
            part.rename(path)


def load(path: Path) -> Baseline | None:
    """Loads the saved baseline; None where there is none, or where the file holds more than tensors and plain
    values."""
    try:
        kept = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError):
        return None
    truth = NoReference(kept["truth"]) if isinstance(kept["truth"], str) else kept["truth"]
    return Baseline(Execution(*kept["parts"]), kept["changed"], set(kept["left_out"]), truth, kept["computed"])


def _bare(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return [_bare(item) for item in value] if isinstance(value, (list, tuple)) else value


CLEARLY = 2.0
"""How many times nearer a result must be to one float64 run than to the other."""
FACTOR = 4.0

_METHODS = frozenset({"to", "type", "type_as", "float", "half", "bfloat16", "double"})
_CASTS = frozenset({"prims.convert_element_type.default", "aten._to_copy.default", "aten.to.dtype"})


def round_trips(gm: fx.GraphModule) -> dict[str, torch.dtype]:
    """Name of a cast to a wider dtype -> the narrow dtype to which its argument was cast just before."""
    trips: dict[str, torch.dtype] = {}
    for node in gm.graph.nodes:
        if not _is_cast(node) or not _is_cast(node.args[0]):
            continue
        dtypes = [_dtype_of(cast) for cast in (node.args[0], node.args[0].args[0], node)]
        floats = [dtype for dtype in dtypes if dtype is not None and dtype.is_floating_point]
        between, *others = [torch.finfo(dtype).eps for dtype in floats] or [0.0]
        if len(floats) == 3 and between > max(others):
            trips[node.name] = floats[0]
    return trips


def left_out(
    gm: fx.GraphModule, inputs: Sequence[Any], run: Run, plain: Sequence[Any], eager: Sequence[Any], got: Sequence[Any]
) -> Difference | None:
    """The first output for which the rung skips a rounding of the program: `x.half().float()` on a float32 rounds in
    eager; Inductor drops such pairs of casts unless `emulate_precision_casts` is set. `plain`: the float64 results
    without that rounding.

    The compiled result is then nearer to float64 than eager's, so an error relative to float64 does not show it. Two
    float64 runs do, one without any rounding and one that rounds in each such pair: where they differ by more than
    rounding explains, eager agrees with the second and the rung with the first. Only pairs of casts that the program
    itself wrote count, not those that a decomposition of a half-precision op adds.
    """
    trips = round_trips(gm)
    if not trips:
        return None
    rounded = reference(gm, inputs, run, trips)
    if isinstance(rounded, NoReference):
        return None
    names = " and ".join(sorted({str(dtype).removeprefix("torch.") for dtype in trips.values()}))
    for index, (without, with_it, want, have) in enumerate(zip(plain, rounded, eager, got, strict=False)):
        if not all(is_float(tensor) for tensor in (without, with_it, want, have)) or want.shape != have.shape:
            continue
        plain_run, rounded_run, *both = all_finite(without, with_it, want, have)
        size = float(rms(plain_run)) or 1.0
        apart = (float(rms(value - run)) / size for value in both for run in (plain_run, rounded_run))
        eager_without, eager_with, rung_without, rung_with = apart
        clear = CLEARLY * eager_with < eager_without and CLEARLY * rung_without < rung_with
        if clear and rung_with > FACTOR * eager_with + tolerance(want.dtype):
            near = rung_without <= FACTOR * eager_with + tolerance(want.dtype)
            how = "left out" if near else "not as in eager"
            text = (
                f"the rounding through {names} is {how}: relative error {rung_with:.2g} to float64 with it, "
                f"{rung_without:.2g} without (eager's own: {eager_with:.2g} with it)"
            )
            return Difference("accuracy", index, ROUNDING, rung_with, text)
    return None


def _is_cast(node: Any) -> bool:
    if not isinstance(node, fx.Node) or not node.args or not isinstance(node.args[0], fx.Node):
        return False
    if node.op == "call_method":
        return node.target in _METHODS
    if node.op != "call_function" or str(node.target) not in _CASTS:
        return False
    made_by = str(node.meta.get("original_aten", node.meta.get("graphdbg_original_aten", node.target)))
    return made_by in _CASTS
