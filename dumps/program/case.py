"""The data that a program is written from: a saved graph's records, facts on the graph, its failure and its origin.

>>> symbol_homes(run.graph("0_1/dynamo").record.graph)["s77"], GraphFacts(record).tolerance
(('s77', None), 1e-05)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Literal, Protocol

from ..schema import GraphBody, GraphRecord, InputsRecord, NodeRecord, SymValue, TensorValue, Value
from ..walk import bodies, named, output_values, plain, references
from ..walk import nodes as every_node

Read = Callable[[str], "bytes | memoryview"]
"""Returns the bytes of a storage by its name."""

GRAD_STAGES = frozenset({"dynamo", "pre_grad"})
"""Stages whose graphs autograd still has to see; graphs of all other stages run without autograd."""

REDUCED = "Reduced by"
"""The beginning of `provenance` in a case that was minified."""

TOLERANCES = {
    "float64": 1e-10,
    "complex128": 1e-10,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 4e-3,
    "bfloat16": 3e-2,
}
"""Tolerated error relative to the size of the values, added to four times eager's error: the criterion of
toolkit.numerics."""

HALF = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}
"""Methods that cast -> the dtype that they cast to."""

Off = Literal["left out", "work-around", "eager"]
"""The effect of `--without-fault`: leaves out recorded settings and the user's modules, applies a change that was seen
to help, or compiles with torch's backend eager."""

_RANDOM = re.compile(
    r"(?:^|[._])(?:rand|bernoulli|dropout|alpha_dropout|normal|multinomial|uniform|exponential|poisson|rrelu)"
)
_OWN_RANDOM = re.compile(r"prims\.inductor_(?:random|randint|seed|lookup_seed)")
_UNBACKED = re.compile(r"\bu\d")
REAL = ("float", "bfloat")
FLOATING = (*REAL, "complex")
"""The beginnings of the names of floating dtypes."""


def symbol_homes(body: GraphBody) -> dict[str, tuple[str, int | None]]:
    """Symbol -> the input that is that symbol (and None), else the first input with a dimension of that size (and its
    index)."""
    homes: dict[str, tuple[str, int | None]] = {}
    for node in placeholders(body):
        if isinstance(node.value, SymValue):
            homes[node.value.expr] = (node.name, None)
        elif isinstance(node.value, TensorValue):
            for index, dim in enumerate(node.value.shape):
                homes.setdefault(str(dim), (node.name, index))
    return homes


def placeholders(body: GraphBody) -> list[NodeRecord]:
    """The inputs of a graph."""
    return [node for node in body.nodes if node.op == "placeholder"]


class GraphFacts:
    """The facts about a graph by which a program is chosen, all computed in one pass over the record."""

    def __init__(self, record: GraphRecord) -> None:
        nodes = record.graph.nodes
        inputs, outputs = [node.value for node in placeholders(record.graph)], output_values(record.graph)
        given, returned = (
            [value for value in values if isinstance(value, TensorValue)] for values in (inputs, outputs)
        )
        dtypes = {node.value.dtype for node in nodes if isinstance(node.value, TensorValue)}
        computed = [node.value for node in nodes if node.op not in ("output", "get_attr")]
        calls = [node.target for node in nodes if node.op.startswith("call_")]
        known = [TOLERANCES.get(dtype, 0.25) for dtype in dtypes if "float" in dtype or dtype in TOLERANCES]
        held = [tensor.value for body in bodies(record.graph) for tensor in body.attrs.values()]
        homes: list[int | None] = [value.storage for value in (*given, *held) if value.storage is not None]
        self.inputs, self.outputs = _dtypes(inputs), _dtypes(outputs)
        """The dtypes of the inputs, empty for an input that is no tensor."""
        self.several = len(outputs) != 1
        """Whether the graph returns more than one value, or nothing."""
        self.wanted = [at for at, value in enumerate(inputs) if isinstance(value, TensorValue) and value.requires_grad]
        """The indices of the inputs that are recorded as requiring gradients."""
        self.outputs_want = any(value.requires_grad for value in returned)
        """Whether an output is recorded as requiring gradients."""
        self.held = [value.dtype for value in held]
        """The dtypes of the graph's constants."""
        self.writes = any(map(_writes, every_node(record.graph)))
        """Whether an operator writes in place, or may: the inputs of the graph are then results, too."""
        self.shares = len(set(homes)) < len(homes) or any(map(_overlaps, given))
        """Whether two inputs or constants share memory, or elements of one input may."""
        self.grad = record.stage in GRAD_STAGES
        """Whether autograd still has to see the graph, so that a program runs a backward too."""
        self.autocast = list(record.ambient.autocast) if self.grad else []
        """The devices on which autocast was on around the graph."""
        self.views = self.grad and any(value.base and homes.count(value.storage) > 1 for value in given)
        """Whether autograd sees this graph and knows some tensors that share memory as views."""
        self.strided = any("as_strided" in call for call in calls)
        """Whether an operator may access memory outside of the view that it gets."""
        self.reaches = self.strided and any(map(_has_gaps, given))
        """Whether that may be what lies between the elements of an input."""
        self.unbacked = any(_UNBACKED.search(str(dim)) for value in returned for dim in value.shape)
        """Whether an output has a size that is known only at run time."""
        self.with_floats = any(
            not isinstance(value, TensorValue) or value.dtype.startswith(FLOATING) for value in computed
        )
        """Whether some value is floating or complex, or may be."""
        self.with_complex = any(dtype.startswith("complex") for dtype in dtypes)
        self.names_float = any(map(_casts, nodes)) or any("float" in dtype for dtype in named(nodes, "dtype"))
        """Whether an argument names a floating dtype, or a method casts: float64 inputs alone then do not make the
        graph float64."""
        self.is_random = any(map(_draws, nodes))
        """Whether an op draws random numbers: compiled code then has to draw the same as eager."""
        self.draws_as_inductor = any(map(_OWN_RANDOM.search, calls))
        """Whether an op draws from Inductor's own generator."""
        self.on_cuda = any(value.device.startswith("cuda") for value in given)
        """Whether an input is on a CUDA device, so that a program has to synchronise."""
        self.tolerance = max(known, default=TOLERANCES["float32"])
        """The loosest relative tolerance of the graph's dtypes."""
        self.half = bool(HALF & dtypes)
        """Whether one of the dtypes is a half precision."""
        turned_on = record.ambient.grad or any("set_grad_enabled" in call for call in calls)
        self.wants_backward = self.grad and bool(self.wanted) and turned_on
        """Whether gradients are computed: autograd is on, or the graph turns it on."""
        self.switches = any(map(_switches, nodes))
        """Whether a call that neither takes nor returns values of the graph is there for its effect: `torch.fx` runs it
        while tracing."""
        self.moved = self.views and self.writes and self.wants_backward
        """Whether inputs are rebuilt with the history that autograd knew, so that float64 inputs are created, not
        copied."""


def _dtypes(values: Iterable[Value | None]) -> list[str]:
    return [value.dtype if isinstance(value, TensorValue) else "" for value in values]


def _overlaps(value: TensorValue) -> bool:
    """Whether a stride is 0, or no longer than the span of the dimensions with shorter strides; symbolic dimensions are
    ignored."""
    both, reach = zip(value.stride, value.shape, strict=False), 0
    known = [(step, size) for step, size in both if isinstance(step, int) and isinstance(size, int) and size > 1]
    for step, size in sorted(known):
        if step <= reach:
            return True
        reach += (size - 1) * step
    return 0 in value.stride


def _has_gaps(value: TensorValue) -> bool:
    """Whether there is memory between the elements; symbolic dimensions are ignored."""
    both = zip(value.stride, value.shape, strict=False)
    known = [(step, size) for step, size in both if isinstance(step, int) and isinstance(size, int) and size > 1]
    return sum(step * (size - 1) for step, size in known) >= prod(size for _, size in known)


def _switches(node: NodeRecord) -> bool:
    args = [*node.args, *node.kwargs.values()]
    given = any(name for argument in args for name in references(argument))
    return node.op == "call_function" and not given and not isinstance(node.value, TensorValue)


def _draws(node: NodeRecord) -> bool:
    """Whether a call draws random numbers; a function that drops nothing, or everything, draws none."""
    if not node.op.startswith("call_") or not _RANDOM.search(node.target):
        return False
    rate = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else None)
    return node.target.startswith("aten.") or "dropout" not in node.target or plain(rate) not in (0.0, 1.0)


def _casts(node: NodeRecord) -> bool:
    return node.op == "call_method" and node.target in (*CASTS, "double", "to", "type")


_PURE = frozenset({"aten", "prims", "prim", "torch", "operator", "_operator", "math", "builtins", "higher_order"})
_IN_PLACE = re.compile(
    r"^(?!_?operator\.).*[a-z0-9]_(?:\.|$)|\bsetitem$|^_?operator\.i(?:\w*add|sub|mul|\w+div|mod|pow|and|or|xor|[lr]shift|matmul|concat)$"
    r"|[._]out$|mutat|auto_functional"
)


def _writes(node: NodeRecord) -> bool:
    """Whether a call writes to its arguments, or may: nothing is known about operators that are not torch's."""
    if not node.op.startswith("call_"):
        return False
    if node.op == "call_function" and node.target.partition(".")[0] not in _PURE:
        return True
    return bool(_IN_PLACE.search(node.target)) or "out" in node.kwargs or node.kwargs.get("inplace") is True


class FailureWords(Protocol):
    """The part of a failure signature that a repro needs."""

    @property
    def kind(self) -> str: ...
    @property
    def stage(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def raw(self) -> str: ...
    @property
    def size(self) -> float | None: ...


class Rate(Protocol):
    """How often a failure shows; as text "5 of 8"."""

    @property
    def flaky(self) -> bool: ...
    def repeats(self) -> int: ...


@dataclass(frozen=True)
class Registered:
    """Custom operators: a block of the program, its imports, sentences for the program's docstring, and whether it
    contains stand-ins."""

    block: str
    imports: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    stands_in: bool = False


@dataclass(frozen=True)
class ReproFacts:
    """The data that a repro is written from.

    `happens`: the failure in words. `imports`: the user's modules that the graph was recorded with; `needs_imports`:
    the graph calls ops that they register. `only_compiled`: eager cannot run the graph here, so the program only
    compiles it.
    """

    record: GraphRecord
    inputs: InputsRecord | None
    read: Read | None
    failure: FailureWords
    rung: str = "inductor"
    happens: str = "torch.compile fails"
    provenance: str = ""
    imports: tuple[str, ...] = ()
    needs_imports: bool = False
    trust: bool = False
    """Whether the user's own Triton kernels may be run, and settings may name commands and paths."""
    ours: bool = False
    """Whether settings may name commands and paths because the user recorded the graph here."""
    only_compiled: bool = False
    whole: bool = True
    """Whether the graph is compiled with `fullgraph=True`, which also lets the compiler read numbers out of tensors."""
    recorded_at: str = ""
    """The stage of the graph that this one was reduced from, where that is not the record's own."""
    ops: Registered | None = None
    """Registrations of custom operators inside the program itself."""
    rate: Rate | None = None
    """How often the graph failed, where that is known."""
    off: Off = "eager"
    """The effect of `--without-fault`."""
    workaround: str = ""
    """Lines that were seen to avoid the failure, each of a form that `settings.plain_change` knows."""
    torch: str = ""
    """The torch version that the failure was seen on, where the record names none."""

    @cached_property
    def facts(self) -> GraphFacts:
        """The facts about the record's graph."""
        return GraphFacts(self.record)

    @property
    def modules(self) -> tuple[str, ...]:
        """The user's modules as a program imports them: a file by its name, from a folder on Python's path."""
        return tuple(Path(name).stem if name.endswith(".py") else name for name in self.imports)

    @property
    def leaves_out(self) -> bool:
        """Whether `--without-fault` has any settings or modules to leave out."""
        return bool(any(self.record.config.values()) or (self.imports and not self.needs_imports))

    @property
    def checked(self) -> bool:
        """Whether the failure was found by comparing operators on real and on fake tensors."""
        return self.rung == "debug_nop" and (self.failure.kind, self.failure.stage) == ("metadata", "run")

    @cached_property
    def against_float64(self) -> bool:
        """Whether a float64 run of the graph decides on the failure."""
        failure = self.failure
        return failure.kind == "accuracy" or (failure.kind == "nan" and failure.detail.startswith("no "))

    @cached_property
    def failure_text(self) -> str:
        """The failure in a few words. The numbers of a reduced case differ: the program prints them."""
        failure = self.failure
        before = ", in the graph that this was cut from" if self.provenance.startswith(REDUCED) else ""
        if failure.kind == "accuracy" and failure.detail == "integers" and failure.size is not None:
            return f"{failure.size:.2g} of the elements differ{before}"
        if failure.kind == "accuracy" and failure.size is not None:
            of = " of a gradient" if failure.raw.startswith("grad of ") else ""
            of += f" ({failure.detail})" if failure.detail else ""
            return f"relative error {failure.size:.2g}{of}{before}"
        if failure.kind == "nan" and failure.raw:
            return failure.raw + before
        return failure.raw or failure.message or failure.detail
