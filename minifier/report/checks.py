"""Chooses what a repro checks, by the kind of failure, and fills in what tells this failure from another.

What cannot occur in this graph is left out: a branch for integers where all outputs are floating, gradients where none is wanted.

>>> telling_part("cannot convert <path>: no lowering for foo", "cannot convert /tmp/x: no lowering for foo")
': no lowering for foo'
"""

from __future__ import annotations

import difflib
import re
import signal
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ...dumps.schema import GraphRecord, TensorValue, Value
from . import costs, only_compiled, subtle, templates
from .case import Case, Failure
from .program import CannotExpressError, quoted

TOLERANCES = {
    "float64": 1e-10, "complex128": 1e-10, "float32": 1e-5, "complex64": 1e-5, "float16": 4e-3, "bfloat16": 3e-2,
}  # fmt: skip
"""Error relative to the size of the values, on top of four times eager's own: the criterion of toolkit.numerics."""

HALF = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})

LIMIT_S, LEAST_S = 120, 20
"""A compile of a small case that takes longer hangs, where nobody waited for one; what a fresh process needs in any case."""


PART = "PART = "
"""How the line begins that asks for a part of the exception's text."""


def told_apart(failure: Failure) -> list[str]:
    """Statements that name the exception that is looked for, where it is one."""
    if failure.kind not in ("crash", "missing_error"):
        return []
    part = telling_part(failure.message, failure.raw)
    return [f"ERROR = {quoted(failure.error.rpartition('.')[2])}", f"{PART}{quoted(part)}"]


def tolerance(record: GraphRecord) -> tuple[float, bool]:
    """The loosest relative tolerance that any dtype of the graph asks for, and whether a half precision is among them."""
    dtypes = {node.value.dtype for node in record.graph.nodes if isinstance(node.value, TensorValue)}
    known = [TOLERANCES.get(dtype, 0.25) for dtype in dtypes if "float" in dtype or dtype in TOLERANCES]
    return max(known, default=TOLERANCES["float32"]), bool(HALF & dtypes)


def telling_part(message: str, raw: str) -> str:
    """The longest stretch of the normalised message that stands in the raw text and holds no name or number; may be empty."""
    match = difflib.SequenceMatcher(None, raw, message, autojunk=False).find_longest_match() if raw else None
    common = raw[match.a : match.a + match.size] if match else message
    pieces = [piece.strip() for line in common.splitlines() for piece in _PLACEHOLDER.split(line)]
    best = max(pieces, key=len, default="")
    return best[:80].strip() if len(best) >= 4 else ""


_PLACEHOLDER = re.compile(r"<[^<>\s]*>|[\[(]?\.\.+[\])]?|\w*\d\w*|…")


def limit_s(failure: Failure) -> int:
    """What is waited for a hang: as long as it was waited when it was found."""
    return max(LEAST_S, int(failure.size)) if failure.kind == "hang" and failure.size else LIMIT_S


def death_of(failure: Failure) -> str | int:
    """The return code that a child has whom that signal killed, or "hang"."""
    if failure.kind == "hang":
        return "hang"
    number = getattr(signal, failure.detail, signal.SIGSEGV)
    return -int(number)


@dataclass
class Checked:
    """Functions of a repro beside its graph, and the statements that run and judge it."""

    functions: list[str] = field(default_factory=list[str])
    body: list[str] = field(default_factory=list[str])

    def add(self, text: str, **words: str) -> None:
        """A text of `templates` as further statements."""
        self.body.append(filled(text, **words))

    def define(self, text: str, **words: str) -> None:
        """A text of `templates` as a further function."""
        self.functions.append(filled(text, **words))


def filled(text: str, **words: str) -> str:
    """A template with its @WORDS@ replaced; a word that stands alone in a line may become several, or none."""
    lines: list[str] = []
    for line in text.strip("\n").splitlines():
        alone = re.fullmatch(r"( *)@([A-Z0-9_]+)@", line)
        if alone:
            lines += textwrap.indent(words[alone[2]], alone[1]).splitlines()
        else:
            lines.append(re.sub(r"@([A-Z0-9_]+)@", lambda found: words[found[1]], line))
    return "\n".join(lines)


def checks(case: Case, compiled: str = "compiled", *, inner: bool = False, wide: str | None = "") -> Checked:
    """What runs, compares and judges; raises CannotExpressError for a kind of failure without a check.

    `compiled`: the compiled function as an expression; `inner`: it is Inductor's inner compiler. `wide`: keyword arguments with
    which the graph casts to float64 in place of its own floating dtypes; None: it has no such parameters and needs the mode.
    """
    kind, detail, record, made = case.failure.kind, case.failure.detail, case.record, Checked()
    if kind in ("accuracy", "nan") and _has(record, _OWN_RANDOM):
        raise CannotExpressError("the graph draws from Inductor's own random generator, which eager mode does not have")
    if case.only_compiled and kind == "crash":
        return _compiles(case, compiled, inner, made)
    if kind == "metadata" and detail in ("mutation", "no mutation"):
        made.add(subtle.MUTATION, COMPILED=compiled)
        made.add(GONE.format("changes what eager mode changes"))
        return made
    if kind == "metadata" and detail in ("alias", "no alias", "offset"):
        made.define(subtle.SHARING)
        made.add(subtle.SHARED, COMPILED=compiled)
        return made
    calls = _Calls(case)
    if calls.backward:
        made.define(templates.RUN_BACKWARD, **calls.words(wide or ""))
    against = against_float64(case.failure)
    if against:
        _against_float64(case, made, calls, compiled, wide)
    elif kind == "nan":
        made.add(calls.compared(compiled))
        made.add("for i, (e, g) in enumerate(zip(eager, got, strict=True)):\n    @NAN@", NAN=templates.NAN.strip())
        made.add(GONE.format("is finite where eager mode is"))
    elif kind == "metadata":
        form = "x.stride()" if detail == "stride" else "(x.shape, x.dtype, x.device, x.layout)"
        made.add(f"eager = {calls.eager()}\ngot = {calls.of(compiled)}")
        made.add(templates.METADATA, FORM=form if calls.tensors and not calls.backward else f"torch.is_tensor(x) and {form}")
    else:
        _death_or_cost(case, made, {"EAGER": calls.eager(), "COMPILED": calls.waited(compiled)}, calls, compiled)
    return made


GONE = 'print("gone: the compiled result {}")'


def _death_or_cost(case: Case, made: Checked, words: dict[str, str], calls: _Calls, compiled: str) -> None:
    """What compares no values: exceptions, signals, hangs, times and memory."""
    kind, failure = case.failure.kind, case.failure
    if failure.stage == "eager":
        words = words | {"EAGER": ""}  # eager is known to die in the same way
    if kind == "crash":
        made.add(templates.CRASH, **words)
    elif kind == "missing_error":
        made.define(templates.RAISED, CALL=calls.waited("function"))
        made.add(templates.MISSING_ERROR, COMPILED=compiled)
    elif kind in ("signal", "hang"):
        limit = {"LIMIT_S": str(limit_s(failure)), "EXPECTED": str(death_of(failure))}
        made.add(templates.CHILD, **words)
        made.add(templates.SIGNAL if kind == "signal" else templates.HANG, **words, **limit)
    elif kind == "slow":
        made.add(costs.SLOW, **words, OVER=f"{float(failure.message):g}")
    elif kind == "memory" and failure.detail == "peak":
        before, reset, peak = costs.ON_CUDA if on_cuda(case.record) else costs.ON_CPU
        if not on_cuda(case.record):
            made.define(costs.RESIDENT)
        made.add(costs.MEMORY, **words, BEFORE=before, RESET=reset, PEAK=peak, OVER=str(int(failure.message)))
    elif kind == "memory":
        made.add(costs.OUT_OF_MEMORY_CHILD, **words, LIMIT_BYTES=str(costs.OUT_OF_MEMORY_BYTES))
        made.add(costs.OUT_OF_MEMORY, **words, LIMIT_S=str(LIMIT_S))
    else:
        raise CannotExpressError(f"no repro can be written for a failure of the kind {kind!r} yet")


def _compiles(case: Case, compiled: str, inner: bool, made: Checked) -> Checked:
    device = on_cuda(case.record)
    if not inner:
        made.define(only_compiled.BACKEND)
    inputs = only_compiled.FAKE_INPUTS if inner else only_compiled.INPUTS_OF_DEVICE if device else "inputs = make_inputs()"
    made.add(only_compiled.ONLY_COMPILES, COMPILED=compiled, INPUTS=inputs.strip(), TEXT=templates.TEXT_OF)
    return made


class _Calls:
    """How this graph is run: forward or with its gradients, its outputs as tensors alone where others are among them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.backward = wants_backward(case)
        self.values = _outputs(case.record)
        self.tensors = bool(self.values) and all(isinstance(one, TensorValue) for one in self.values)

    def of(self, function: str, inputs: str = "make_inputs()", more: str = "") -> str:
        """One run as an expression."""
        return f"run({function}, {inputs}{more})" if self.backward else f"{function}(*{inputs}{more})"

    def eager(self) -> str:
        """The eager run."""
        return self.of("graph")

    def waited(self, function: str, inputs: str = "make_inputs()") -> str:
        """One run as a statement; on a device it is waited for: what fails or hangs there belongs to this run."""
        return self.of(function, inputs) + ("\ntorch.cuda.synchronize()" if on_cuda(self.case.record) else "")

    def compared(self, compiled: str, exact: str = "") -> str:
        """Assignments of `eager`, `got`, and `exact` where there is one."""
        names = ["eager", "got", *(["exact"] if exact else [])]
        texts = [self.eager(), self.of(compiled), *([exact] if exact else [])]
        if not self.tensors and not self.backward:
            texts = [f"[y for y in {text} if torch.is_tensor(y)]" for text in texts]
        return "\n".join(f"{name} = {text}" for name, text in zip(names, texts, strict=True))

    def words(self, wide: str) -> dict[str, str]:
        """What `run` is filled with."""
        nodes = [node for node in self.case.record.graph.nodes if node.op == "placeholder"]
        wanted = [at for at, node in enumerate(nodes) if isinstance(node.value, TensorValue) and node.value.requires_grad]
        front = wanted == list(range(len(wanted)))
        sure = any(isinstance(one, TensorValue) and one.requires_grad for one in self.values)
        outputs = f"function(*inputs{', **dtypes' if wide else ''})"
        drop = not self.tensors and self.case.failure.kind in ("accuracy", "nan")
        return {
            "MORE": ", **dtypes" if wide else "",
            "OUTPUTS": f"[y for y in {outputs} if torch.is_tensor(y)]" if drop else f"list({outputs})",
            "TENSOR": "" if self.tensors or drop else "torch.is_tensor(y) and ",
            "WANTED": f"inputs[:{len(wanted)}]" if front else f"[{', '.join(f'inputs[{at}]' for at in wanted)}]",
            "UNUSED": "allow_unused" if self.case.failure.kind == "metadata" else "materialize_grads",
            "ELSE": "" if sure else " if sources else ()",
        }


def _against_float64(case: Case, made: Checked, calls: _Calls, compiled: str, wide: str | None) -> None:
    """A comparison of the compiled and eager results with the graph's float64 result."""
    record, detail = case.record, case.failure.detail
    if not _with_floats(record) and case.failure.kind == "accuracy":  # nothing would be wider
        made.add(calls.compared(compiled))
        made.add("for i, (e, g) in enumerate(zip(eager, got, strict=True)):\n    @TEST@",
                 TEST=filled(templates.INTEGERS, BAD="e != g"))  # fmt: skip
        made.add(GONE.format("is eager's"))
        return
    exact = calls.of("graph", f"[{_in_float64(record)} for x in make_inputs()]", wide or "")
    if wide is None:
        made.define(templates.FLOAT64_MODE)
        made.add("with Float64():\n    exact = @EXACT@", EXACT=exact)
    made.add(calls.compared(compiled, exact if wide is not None else ""))
    values = [*calls.values, *([TensorValue("float32", [], [])] if calls.backward else [])]
    test = _test(case, values, [one for one in calls.values if isinstance(one, TensorValue)])
    if any(isinstance(one, TensorValue) and any(_UNBACKED.search(str(dim)) for dim in one.shape) for one in values):
        test = f"r = r if r.shape == e.shape else e\n{test}"
    made.add("for i, (e, r, g) in enumerate(zip(eager, exact, got, strict=True)):\n    @TEST@", TEST=test)
    told = {"rounding": "rounds as eager mode does", "signed zero": "has the signs of eager mode"}.get(detail)
    made.add(GONE.format(told or "agrees with float64"))


def _test(case: Case, values: Sequence[Value | None], known: Sequence[TensorValue]) -> str:
    """The statements on one output: eager's `e`, float64's `r`, the compiled `g`."""
    record, failure = case.record, case.failure
    floats = bool(values) and all(isinstance(one, TensorValue) and _floating(one.dtype) for one in values)
    wide = "to(torch.complex128)" if _mentions(record, "complex") else "double()"
    special = {"signed zero": subtle.SIGNED_ZERO, "rounding": subtle.ROUNDING}.get(failure.detail)
    if failure.kind == "nan" or special:
        test = filled(special or subtle.MISSING, WIDE=wide)
        real = all(isinstance(one, TensorValue) and one.dtype.startswith(("float", "bfloat")) for one in values)
        complexes = " or e.is_complex()" if failure.kind == "nan" and "complex" in wide else ""
        guard = f"if e.is_floating_point(){complexes}:"
        return test if (real and values) or (floats and not special) else f"{guard}\n{textwrap.indent(test, '    ')}"
    if values and not any(isinstance(one, TensorValue) and _floating(one.dtype) for one in values) and len(known) == len(values):
        return filled(templates.INTEGERS, BAD="(e != g) & (e == r)")
    loosest, half = tolerance(record)
    bad = f"off > 4 * own + {loosest!r} * size"
    measured = filled(templates.FLOATS, WIDE=wide)
    if failure.size is None or failure.size < 4 * loosest:  # a large error shows in the norm
        measured += "\n" + filled(templates.BEYOND, ELEMENT_EPS="24" if half else "256")
        bad += " or far.any()"
    if floats:
        return f"{measured}\nif {bad}:\n{textwrap.indent(templates.OFF.strip(), '    ')}"
    complexes = " or e.is_complex()" if "complex" in wide else ""
    return "\n".join([
        f"if e.is_floating_point(){complexes}:",
        textwrap.indent(f"{measured}\nbad = {bad}", "    "),
        "else:",
        "    bad = ((e != g) & (e == r)).any()",
        "if bad:",
        '    sys.exit(f"BUG: output {i} is\\n{g}\\neager mode gives\\n{eager[i]}\\nfloat64 gives\\n{r}")',
    ])  # fmt: skip


def against_float64(failure: Failure) -> bool:
    """Whether a float64 run of the graph is what tells the failure."""
    return failure.kind == "accuracy" or (failure.kind == "nan" and failure.detail.startswith("no "))


def wants_backward(case: Case) -> bool:
    """Whether the repro computes gradients."""
    return case.grad and _wants_grad(case.record)


def _in_float64(record: GraphRecord) -> str:
    """An input `x` in float64, as an expression that fits all inputs."""
    values = [node.value for node in record.graph.nodes if node.op == "placeholder"]
    if all(isinstance(one, TensorValue) and one.dtype.startswith(("float", "bfloat")) for one in values):
        return "x.double()"
    tensors = all(isinstance(one, TensorValue) for one in values)
    return f"x.double() if {'' if tensors else 'torch.is_tensor(x) and '}x.is_floating_point() else x"


def _with_floats(record: GraphRecord) -> bool:
    values = [node.value for node in record.graph.nodes if node.op not in ("output", "get_attr")]
    return any(not isinstance(one, TensorValue) or _floating(one.dtype) for one in values)


def _mentions(record: GraphRecord, dtype: str) -> bool:
    return any(isinstance(node.value, TensorValue) and node.value.dtype.startswith(dtype) for node in record.graph.nodes)


def _outputs(record: GraphRecord) -> list[Value | None]:
    """What is known of each output; [None] where they are no plain list."""
    values = {node.name: node.value for node in record.graph.nodes}
    outputs = [node for node in record.graph.nodes if node.op == "output"]
    listed: Any = outputs[0].args[0] if outputs and outputs[0].args else None
    items: Any = cast("dict[str, Any]", listed).get("tuple") if isinstance(listed, dict) else listed
    if not isinstance(items, list):
        return [None]
    tagged = [cast("dict[str, Any]", item) if isinstance(item, dict) else {} for item in cast("list[Any]", items)]
    return [values.get(str(item.get("node", ""))) for item in tagged]


_UNBACKED = re.compile(r"\bu\d")


_RANDOM = re.compile(
    r"(?:^|[._])(?:rand|bernoulli|dropout|alpha_dropout|normal|multinomial|uniform|exponential|poisson|rrelu)"
)
_OWN_RANDOM = re.compile(r"prims\.inductor_(?:random|randint|seed|lookup_seed)")


def is_random(record: GraphRecord) -> bool:
    """Whether an op of the graph draws random numbers: compiled code then has to draw them as eager does."""
    return _has(record, _RANDOM)


def on_cuda(record: GraphRecord) -> bool:
    """Whether an input is on a CUDA device, so that a run must be waited for."""
    return any(
        node.op == "placeholder" and isinstance(node.value, TensorValue) and node.value.device.startswith("cuda")
        for node in record.graph.nodes
    )


def _floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _wants_grad(record: GraphRecord) -> bool:
    """Whether an input is recorded as one that wants a gradient, or nothing is known of one."""
    inputs = [node.value for node in record.graph.nodes if node.op == "placeholder"]
    return any(isinstance(value, TensorValue) and value.requires_grad for value in inputs)


def _has(record: GraphRecord, op: re.Pattern[str]) -> bool:
    return any(node.op.startswith("call_") and op.search(node.target) for node in record.graph.nodes)


def has_float_dtype(record: GraphRecord) -> bool:
    """Whether an argument names a floating dtype, or a method casts: such a graph does not become float64 by its inputs alone."""
    casts = ("float", "half", "bfloat16", "double", "to", "type")
    return any(
        (node.op == "call_method" and node.target in casts) or _names_float([node.args, list(node.kwargs.values())])
        for node in record.graph.nodes
    )


def _names_float(arg: Any) -> bool:
    if isinstance(arg, list):
        return any(_names_float(item) for item in cast("list[Any]", arg))
    if isinstance(arg, dict):
        pairs = cast("dict[str, Any]", arg).items()
        return any((key == "dtype" and "float" in str(item)) or _names_float(item) for key, item in pairs)
    return False
