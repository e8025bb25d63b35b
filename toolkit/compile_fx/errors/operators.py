"""Operators that cannot be compiled: no fake kernel, no lowering, no call in their place; values known at run time
alone; operands on different devices, with the inputs from which they come.

For example: `no_fake(case, None).fix` gives `'register a fake kernel: @torch.library.register_fake("mylib::foo")'`.
"""

from __future__ import annotations

import re
from typing import Any

from .case import ErrorContext, Explained, interpreter

_UNSUPPORTED = "unsupported operator"
_NO_FAKE = re.compile(
    r"fake impl|fake kernel|'Meta' backend|no meta kernel|NotImplementedError: (?:Operator|Could not run)|Meta kernel",
    re.IGNORECASE,
)
_ALIAS = "whose output has alias annotations"


def depends_on_data(case: ErrorContext, error: Any) -> Explained:
    """A size or a branch that depends on the values of a tensor."""
    settings = {
        "DynamicOutputShapeException": "set torch._dynamo.config.capture_dynamic_output_shape_ops = True",
        "DataDependentOutputException": "set torch._dynamo.config.capture_scalar_outputs = True",
    }
    return case.told(
        "depends on data",
        f"{case.op} cannot be compiled{case.where}",
        f"its result depends on values that are known at run time alone: {_first(error)}",
        settings.get(type(error).__name__, "say what is known of the value by torch._check(...)"),
        nodes=case.nodes,
    )


def not_lowered(case: ErrorContext, error: Any) -> Explained:
    """Inductor has no lowering for the operator and does not fall back to it."""
    op = case.op
    if type(error).__name__ == "MissingOperatorWithDecomp":
        why = (
            "Inductor has no lowering for it and calls none as it is (implicit_fallbacks is off), but torch can "
            "decompose it"
        )
        fix = (
            "add it to torch._inductor.decomposition.decompositions, or give compile_fx a table with it "
            "(decompositions=)"
        )
    else:
        why = (
            "Inductor has no lowering for it and calls none as it is (torch._inductor.config.implicit_fallbacks is off)"
        )
        fix = (
            "set torch._inductor.config.implicit_fallbacks = True, register a decomposition, "
            f"or a lowering: @torch._inductor.lowering.register_lowering(torch.ops.{op})"
        )
    return case.told(_UNSUPPORTED, f"{op} has no lowering{case.where}", why, fix, nodes=case.nodes)


def no_fake(case: ErrorContext, _: Any) -> Explained | None:
    """An operator without a fake kernel."""
    error = case.find("UnsupportedOperatorException", "UnsupportedFakeTensorException")
    plain = case.find("NotImplementedError")
    if error is None and (plain is None or not _NO_FAKE.search(str(plain))):
        return None
    return case.told(
        _UNSUPPORTED,
        f"{case.op} has no fake kernel{case.where}",
        "tracing needs the shape, dtype and strides of its result without running it",
        f'register one: @torch.library.register_fake("{_schema_name(case.op)}"), or a decomposition into '
        "operators that have one",
        nodes=case.nodes,
    )


def aliases(case: ErrorContext, _: Any) -> Explained | None:
    """The operator returns an alias of an argument."""
    error = next((link for link in case.chain if _ALIAS in str(link)), None)
    if error is None:
        return None
    return case.told(
        _UNSUPPORTED,
        f"{case.op} cannot be made functional{case.where}",
        _first(error),
        "define it with torch.library.custom_op(..., mutates_args=...), which returns nothing that aliases an argument",
        nodes=case.nodes,
    )


def no_fallback(case: ErrorContext, _: Any) -> Explained | None:
    """Inductor would call the operator from generated code, and cannot."""
    if not any(_makes_fallback(frame) for frame in case.frames):
        return None
    return case.told(
        _UNSUPPORTED,
        f"{case.op} cannot be called from generated code{case.where}",
        f"it has no lowering, and a fallback is not possible: {case.said()}",
        "give it a functional form (torch.library.custom_op), a decomposition, "
        f"or a lowering: @torch._inductor.lowering.register_lowering(torch.ops.{case.op})",
        nodes=case.nodes,
    )


def no_operator(case: ErrorContext, _: Any) -> Explained | None:
    """A function that is no ATen operator."""
    match = re.match(r"(.+) is not an OpOverload", str(case.cause()))
    if match is None:
        return None
    return case.told(
        _UNSUPPORTED,
        f"{match[1]} has no lowering{case.where}",
        "it is no ATen operator, and Inductor has no rule for it",
        "trace the graph to ATen operators first (rung or stage capture), or register a lowering for it",
        nodes=case.nodes,
    )


def _makes_fallback(frame: Any) -> bool:
    code, own = frame.f_code, frame.f_locals.get("self", frame.f_locals.get("cls"))
    if code.co_name in ("make_fallback", "fallback_handler"):
        return True
    kind = own if isinstance(own, type) else type(own)
    return kind.__name__ == "FallbackKernel"


def _schema_name(op: str) -> str:
    """`tst.foo.default` -> `tst::foo`, as torch.library names it."""
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.rpartition(".")
    return f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}") if name else op


def _first(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


_SAID = re.compile(
    r"same device|different devices?\b|two (?:different )?devices|device mismatch|devices? (?:must|should) "
    r"(?:match|be the same)",
    re.IGNORECASE,
)


def mixed(case: ErrorContext, _: Any) -> Explained | None:
    """Fake propagation in capture or post_grad, or a lowering, met operands on more than one device."""
    if not any(_SAID.search("\n".join(str(error).splitlines()[:2])) for error in case.chain):
        return None
    if not case.running:
        return None
    node, run_by = case.running[0], interpreter(case.frames)
    where = [(operand, device) for operand in node.all_input_nodes if (device := _device(operand, run_by))]
    places = [f"{operand.name} is on {device}{_from(operand, device, run_by)}" for operand, device in where]
    devices = list(dict.fromkeys(device for _, device in where))
    return case.told(
        "device mismatch",
        f"{case.op} cannot be compiled (node {node.name}): its operands are on different devices",
        ", ".join(places) if len(devices) > 1 else f"{case.said()} ({', '.join(places)})",
        f"move them to one device before the model is compiled, {' or '.join(devices)}"
        if len(devices) > 1
        else "move all of them to one device before the model is compiled",
        nodes=case.nodes,
    )


def _device(node: Any, run_by: Any) -> str:
    """The device of a node's value: as it was run, else as it was traced; "" where it has none."""
    value: Any = getattr(run_by, "env", {}).get(node)
    if value is None:
        value = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(value, (list, tuple)):
        value = next((part for part in value if part is not None), None)  # pyright: ignore[reportUnknownVariableType]
    device = getattr(value, "device", None)
    if device is None and hasattr(value, "get_device"):
        device = value.get_device()
    return str(device) if device is not None else ""


def _from(node: Any, device: str, run_by: Any) -> str:
    """Which inputs of the graph it comes from, those on the same device if there are any."""
    from ..input_names import name_of

    if node.op == "placeholder":
        user = name_of(node).user
        return f" (the input {user})" if user and user != node.name else " (an input of the graph)"
    seen: dict[Any, None] = {}
    waiting = list(node.all_input_nodes)
    while waiting:
        at_one = waiting.pop()
        if at_one not in seen:
            seen[at_one] = None
            waiting += at_one.all_input_nodes
    inputs = sorted(placeholder for placeholder in seen if placeholder.op == "placeholder")
    there = [placeholder for placeholder in inputs if _device(placeholder, run_by) == device] or inputs
    if not there:
        return ""
    names = ", ".join(str(name_of(placeholder)) for placeholder in there[:4]) + (" ..." if len(there) > 4 else "")
    return f" (from the input {names})" if len(there) == 1 else f" (from the inputs {names})"
