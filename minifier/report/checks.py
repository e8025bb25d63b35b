"""Chooses what a repro checks, by the kind of failure, and fills in what tells this failure from another.

>>> telling_part("cannot convert <path>: no lowering for foo", "cannot convert /tmp/x: no lowering for foo")
': no lowering for foo'
"""

from __future__ import annotations

import difflib
import re
import signal
from collections.abc import Iterator
from typing import Any, cast

from ...dumps.schema import GraphRecord, TensorValue
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


def constant_block(case: Case) -> str:
    """Module-level names that the checks use."""
    failure = case.failure
    if failure.kind == "accuracy" and failure.detail not in ("signed zero", "rounding") and not only_floats(case):
        loosest, half = tolerance(case.record)
        return f"TOLERANCE, ELEMENT_EPS = {loosest!r}, {24 if half else 256}"
    if failure.kind in ("crash", "missing_error"):
        part = telling_part(failure.message, failure.raw)
        return f"ERROR = {quoted(failure.error.rpartition('.')[2])}\n{PART}{quoted(part)}"
    if failure.kind in ("signal", "hang"):
        return f"EXPECTED = {quoted(death_of(failure))}\nLIMIT_S = {limit_s(failure)}"
    if failure.kind == "memory" and failure.detail != "peak":
        return f"LIMIT_BYTES, LIMIT_S = {costs.OUT_OF_MEMORY_BYTES}, {LIMIT_S}"
    if failure.kind in ("slow", "memory"):
        return f"OVER_S = {float(failure.message):g}" if failure.kind == "slow" else f"OVER_BYTES = {int(failure.message)}"
    return ""


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


def check_blocks(case: Case, entry: str = "torch.compile") -> Iterator[str]:
    """The functions that run, compare and judge; raises CannotExpressError for a kind of failure without a check."""
    kind = case.failure.kind
    if kind in ("accuracy", "nan") and _has(case.record, _OWN_RANDOM):
        raise CannotExpressError("the graph draws from Inductor's own random generator, which eager mode does not have")
    if case.only_compiled and kind == "crash":
        if entry == "torch.compile":
            yield (only_compiled.EXAMPLES_OF_DEVICE if _on_cuda(case.record) else only_compiled.EXAMPLES).strip()
        yield templates.EXPECTED_ERROR.strip()
        yield only_compiled.MAIN.strip()
        return
    detail = case.failure.detail
    of_inputs = _OF_INPUTS.get(detail) if kind == "metadata" else None
    if of_inputs:
        yield of_inputs.strip()
        yield templates.MAIN_COMPARE.strip()
        return
    backward = case.grad and _wants_grad(case.record)
    if kind == "crash" and not backward and not _on_cuda(case.record):
        plain = re.sub(r"\brun\((\w+), make_inputs\(\)\)", r"\1(*make_inputs())", templates.MAIN_CRASH)
        yield plain.strip()
        return
    running = templates.RUN_BACKWARD if backward else templates.RUN_FORWARD
    yield (templates.on_cuda(running) if _on_cuda(case.record) else running).strip()
    test = _test_against_float64(case.failure)
    if test:
        wide = "[x.double() if x.is_floating_point() else x for x in make_inputs()]"
        if detail == "rounding" or not _only_tensors(case.record):
            wide = "[in_float64(x) for x in make_inputs()]"
            yield templates.IN_FLOAT64.strip()
        exact = f"run(graph, {wide})"
        if has_float_dtype(case.record) or detail == "rounding":
            exact = f"exactly({wide})"
            yield (subtle.ROUNDED_MODE if detail == "rounding" else templates.FLOAT64_MODE).strip()
        if test is templates.WRONG and only_floats(case):
            loosest, half = tolerance(case.record)
            text = templates.MAIN_WRONG.strip().replace("@TOLERANCE@", repr(loosest)).replace("@EXACT@", exact)
            yield text.replace("@ELEMENT_EPS@", "24" if half else "256")
            return
        yield test.strip()
        yield templates.MAIN_ACCURACY.strip().replace("@EXACT@", exact)
    elif kind in ("nan", "metadata"):
        form = "x.stride()" if detail == "stride" else "(tuple(x.shape), x.dtype, x.device, x.layout)"
        yield templates.NAN.strip() if kind == "nan" else templates.METADATA.strip().replace("@FORM@", form)
        yield templates.MAIN_COMPARE.strip()
    elif kind in ("signal", "hang"):
        yield _eager_first(case, templates.MAIN_DEATH)
    elif kind == "slow":
        yield costs.MAIN_SLOW.strip()
    elif kind == "memory":
        yield costs.MAIN_MEMORY.strip() if detail == "peak" else _eager_first(case, costs.MAIN_OUT_OF_MEMORY)
    elif kind in ("crash", "missing_error"):
        if kind == "missing_error":
            yield templates.EXPECTED_ERROR.strip()
        yield (templates.MAIN_CRASH if kind == "crash" else templates.MAIN_MISSING_ERROR).strip()
    else:
        raise CannotExpressError(f"no repro can be written for a failure of the kind {kind!r} yet")


def _eager_first(case: Case, main: str) -> str:
    """A main that runs the graph eagerly before it compiles it, unless eager is known to die in the same way."""
    return main.strip().replace("@EAGER@", "" if case.failure.stage == "eager" else templates.EAGER_FIRST)


def _test_against_float64(failure: Failure) -> str:
    """The text of `wrong(eager, exact, got)` for a failure that a float64 run shows; empty for any other."""
    if failure.kind == "nan":
        return subtle.MISSING if failure.detail.startswith("no ") else ""
    if failure.kind != "accuracy":
        return ""
    return {"signed zero": subtle.SIGNED_ZERO, "rounding": subtle.ROUNDING}.get(failure.detail, templates.WRONG)


_OF_INPUTS = {
    "mutation": subtle.MUTATION, "no mutation": subtle.MUTATION, "alias": subtle.SHARING, "no alias": subtle.SHARING,
    "offset": subtle.SHARING,
}  # fmt: skip
"""What a metadata failure of that detail compares instead of outputs."""


_RANDOM = re.compile(
    r"(?:^|[._])(?:rand|bernoulli|dropout|alpha_dropout|normal|multinomial|uniform|exponential|poisson|rrelu)"
)
_OWN_RANDOM = re.compile(r"prims\.inductor_(?:random|randint|seed|lookup_seed)")


def is_random(record: GraphRecord) -> bool:
    """Whether an op of the graph draws random numbers: compiled code then has to draw them as eager does."""
    return _has(record, _RANDOM)


def _on_cuda(record: GraphRecord) -> bool:
    """Whether an input is on a CUDA device, so that a run must be waited for."""
    return any(
        node.op == "placeholder" and isinstance(node.value, TensorValue) and node.value.device.startswith("cuda")
        for node in record.graph.nodes
    )


def only_floats(case: Case) -> bool:
    """Whether all that is compared is known to be floating or complex tensors."""
    record = case.record
    if case.failure.detail == "integers" or (case.grad and _wants_grad(record)):
        return False
    values = {node.name: node.value for node in record.graph.nodes}
    outputs = [node for node in record.graph.nodes if node.op == "output"]
    listed: Any = outputs[0].args[0] if outputs and outputs[0].args else None
    items: Any = cast("dict[str, Any]", listed).get("tuple") if isinstance(listed, dict) else listed
    if not isinstance(items, list):
        return False
    tagged = [cast("dict[str, Any]", item) if isinstance(item, dict) else {} for item in cast("list[Any]", items)]
    found = [values.get(str(item.get("node", ""))) for item in tagged]
    return bool(found) and all(isinstance(one, TensorValue) and _floating(one.dtype) for one in found)


def _floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _only_tensors(record: GraphRecord) -> bool:
    return all(isinstance(node.value, TensorValue) for node in record.graph.nodes if node.op == "placeholder")


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
