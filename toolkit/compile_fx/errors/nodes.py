"""Errors that come from a node or a pass.

Operators that cannot be compiled: no fake kernel, no lowering, no call in their place; values known at run time alone;
operands on different devices, with the inputs from which they come. An exception inside a pass, a lowering, or any
other part of a stage: which pass, which node, raised where.

For example: `no_fake(case, None).fix` gives `'register a fake kernel: @torch.library.register_fake("mylib::foo")'`.
"""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path
from typing import Any

from ....dumps.errors import GraphdbgError
from ....dumps.wording import error_line
from ..passes import GROUPS, NamedPass, known, resolve
from .case import ErrorContext, Explained, interpreter
from .compilers import excerpt

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
    return case.about_nodes(
        "depends on data",
        f"{case.op} cannot be compiled{case.where}",
        f"its result depends on values that are known at run time alone: {error_line(error)}",
        settings.get(type(error).__name__, "say what is known of the value by torch._check(...)"),
    )


def not_lowered(case: ErrorContext, error: Any) -> Explained:
    """Inductor has no lowering for the operator and does not fall back to it."""
    op, why = case.op, "Inductor has no lowering for it and calls none as it is"
    if type(error).__name__ == "MissingOperatorWithDecomp":
        why += " (implicit_fallbacks is off), but torch can decompose it"
        fix = (
            "add it to torch._inductor.decomposition.decompositions, or give compile_fx a table with it "
            "(decompositions=)"
        )
    else:
        why += " (torch._inductor.config.implicit_fallbacks is off)"
        fix = (
            "set torch._inductor.config.implicit_fallbacks = True, register a decomposition, "
            f"or a lowering: @torch._inductor.lowering.register_lowering(torch.ops.{op})"
        )
    return case.about_nodes(_UNSUPPORTED, f"{op} has no lowering{case.where}", why, fix)


def no_fake(case: ErrorContext, _: Any) -> Explained | None:
    """An operator without a fake kernel."""
    error = case.find("UnsupportedOperatorException", "UnsupportedFakeTensorException")
    plain = case.find("NotImplementedError")
    if error is None and (plain is None or not _NO_FAKE.search(str(plain))):
        return None
    return case.about_nodes(
        _UNSUPPORTED,
        f"{case.op} has no fake kernel{case.where}",
        "tracing needs the shape, dtype and strides of its result without running it",
        f'register one: @torch.library.register_fake("{_schema_name(case.op)}"), or a decomposition into '
        "operators that have one",
    )


def aliases(case: ErrorContext, _: Any) -> Explained | None:
    """The operator returns an alias of an argument."""
    error = next((link for link in case.chain if _ALIAS in str(link)), None)
    if error is None:
        return None
    return case.about_nodes(
        _UNSUPPORTED,
        f"{case.op} cannot be made functional{case.where}",
        error_line(error),
        "define it with torch.library.custom_op(..., mutates_args=...), which returns nothing that aliases an argument",
    )


def no_fallback(case: ErrorContext, _: Any) -> Explained | None:
    """Inductor would call the operator from generated code, and cannot."""
    if not any(_makes_fallback(frame) for frame in case.frames):
        return None
    return case.about_nodes(
        _UNSUPPORTED,
        f"{case.op} cannot be called from generated code{case.where}",
        f"it has no lowering, and a fallback is not possible: {case.said()}",
        "give it a functional form (torch.library.custom_op), a decomposition, "
        f"or a lowering: @torch._inductor.lowering.register_lowering(torch.ops.{case.op})",
    )


def no_operator(case: ErrorContext, _: Any) -> Explained | None:
    """A function that is no ATen operator."""
    match = re.match(r"(.+) is not an OpOverload", str(case.cause()))
    if match is None:
        return None
    return case.about_nodes(
        _UNSUPPORTED,
        f"{match[1]} has no lowering{case.where}",
        "it is no ATen operator, and Inductor has no rule for it",
        "trace the graph to ATen operators first (rung or stage capture), or register a lowering for it",
    )


def _makes_fallback(frame: Any) -> bool:
    own = frame.f_locals.get("self", frame.f_locals.get("cls"))
    kind = own if isinstance(own, type) else type(own)
    return frame.f_code.co_name in ("make_fallback", "fallback_handler") or kind.__name__ == "FallbackKernel"


def _schema_name(op: str) -> str:
    """`tst.foo.default` -> `tst::foo`, as torch.library names it."""
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.rpartition(".")
    return f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}") if name else op


_SAID = re.compile(
    r"same device|different devices?\b|two (?:different )?devices|device mismatch|devices? (?:must|should) "
    r"(?:match|be the same)",
    re.IGNORECASE,
)


def mixed(case: ErrorContext, _: Any) -> Explained | None:
    """Fake propagation in capture or post_grad, or a lowering, met operands on more than one device."""
    said = any(_SAID.search("\n".join(str(error).splitlines()[:2])) for error in case.chain)
    if not said or not case.running:
        return None
    node, run_by = case.running[0], interpreter(case.frames)
    where = [(operand, device) for operand in node.all_input_nodes if (device := _device(operand, run_by))]
    places = [f"{operand.name} is on {device}{_from(operand, device, run_by)}" for operand, device in where]
    devices = list(dict.fromkeys(device for _, device in where))
    choice = f", {' or '.join(devices)}" if len(devices) > 1 else ""
    return case.about_nodes(
        "device mismatch",
        f"{case.op} cannot be compiled (node {node.name}): its operands are on different devices",
        ", ".join(places) if len(devices) > 1 else f"{case.said()} ({', '.join(places)})",
        f"move {'them' if len(devices) > 1 else 'all of them'} to one device before the model is compiled{choice}",
    )


def _device(node: Any, run_by: Any) -> str:
    """The device of a node's value: as it was run, else as it was traced; "" where it has none."""
    value: Any = getattr(run_by, "env", {}).get(node)
    if value is None:
        from ....dumps.torchside.values import fake_of

        value = fake_of(node)
    if isinstance(value, (list, tuple)):
        value = next((part for part in value if part is not None), None)  # pyright: ignore[reportUnknownVariableType]
    device = getattr(value, "device", None)
    if device is None and hasattr(value, "get_device"):
        device = value.get_device()
    return str(device) if device is not None else ""


def _from(node: Any, device: str, run_by: Any) -> str:
    """Names the graph inputs that a node comes from, those on the same device if there are any; "" where there are
    none."""
    from ..inputs import name_of

    if node.op == "placeholder":
        user = name_of(node).user
        return f" (the input {user})" if user and user != node.name else " (an input of the graph)"
    seen, waiting = set[Any](), list(node.all_input_nodes)
    while waiting:
        if (at_one := waiting.pop()) not in seen:
            seen.add(at_one)
            waiting += at_one.all_input_nodes
    inputs = sorted(placeholder for placeholder in seen if placeholder.op == "placeholder")
    there = [placeholder for placeholder in inputs if _device(placeholder, run_by) == device] or inputs
    if not there:
        return ""
    names = ", ".join(str(name_of(placeholder)) for placeholder in there[:4]) + (" ..." if len(there) > 4 else "")
    return f" (from the input{'s' * (len(there) > 1)} {names})"


_GROUPS = {**GROUPS, "_run_pre_dispatch_passes": "pre_grad"}


def of_a_pass(case: ErrorContext, _: Any) -> Explained | None:
    """A pass of pre_grad, joint or post_grad raised, one of torch's or one of the configuration."""
    named = pass_named(case)
    if not named:
        return None
    name, function = named
    at = _at(case.nodes)
    own = f" ({function})" if function and function not in name else ""
    return case.about_nodes(
        "pass failed", f"the pass {name}{own} failed{at}", case.said(), _way_out(name), pass_name=name, **_raised(case)
    )


def anything(case: ErrorContext) -> Explained:
    """An error that no other family explains: the stage, the node, where it was raised. A GraphdbgError explains
    itself."""
    cause = case.cause()
    if isinstance(cause, GraphdbgError):
        return case.about("refused", cause.what, cause.why, cause.fix)
    kind, what = "stage failed", f"the stage {case.stage}"
    fix = "ask graphdbg bisect for the pass or setting behind it, minify for the smallest graph that fails"
    if case.find("LoweringException") is not None and case.nodes:
        kind, what = "lowering failed", f"the lowering of {case.op}"
        asks = "ask graphdbg bisect whether a fallback of this operator avoids it"
        fix = f"{asks}; minify makes the smallest graph that fails"
    return case.about_nodes(kind, f"{what} failed{_at(case.nodes)}", case.said(), fix, **_raised(case))


def pass_named(case: ErrorContext) -> tuple[str, str] | None:
    """(group.pass, function) of the innermost pass that was running; None where none was."""
    group, name, function, expected = "", "", "", False
    for frame in case.frames:
        code, own = frame.f_code, frame.f_locals.get("self")
        if code.co_name in _GROUPS and "fx_passes" in code.co_filename:
            group, name, function, expected = _GROUPS[code.co_name], "", "", True
        elif not group:
            continue
        elif type(own).__name__ == "StageWatch" and code.co_name == "around":
            name, expected = str(frame.f_locals.get("name", name)), False
        elif type(own).__name__ == "GraphTransformObserver":
            name = name or str(getattr(own, "passname", ""))
            function, expected = _given(frame.f_locals.get("pass_fn")), False
        elif expected and "compile_fx/passes" not in code.co_filename:
            name, expected = "" if code.co_name.startswith("<") else code.co_name, False
    if not group:
        return None
    row = _row(f"{group}.{name}")
    return (row.full_name if row is not None else f"{group}.{name or 'a pass without a name'}"), function


def _row(name: str) -> NamedPass | None:
    """The row of a pass in the table of passes."""
    try:
        stage, pass_name = resolve(name)[0]
    except GraphdbgError:
        return None
    return known(stage, pass_name)


def _way_out(name: str) -> str:
    row = _row(name)
    if row is None:
        return "mend it where it raised; graphdbg bisect says whether the compile works without"
    if row.always_needed:
        return f"mend it where it raised; it cannot be left out: {row.needed}"
    return f"leave it out to go on (graphdbg compile ... --skip {name}), or mend it where it raised"


def _given(function: Any) -> str:
    """The name of a user's pass: of the function behind partials, or of an object's class."""
    while hasattr(function, "func"):
        function = function.func
    own = getattr(function, "__self__", None)
    if own is not None and not isinstance(own, type(linecache)):
        return type(own).__name__
    return getattr(function, "__name__", type(function).__name__) if function is not None else ""


def _at(nodes: list[Any]) -> str:
    return f" at the node {nodes[0].node} ({nodes[0].line or 'no user line is known'})" if nodes else ""


def _raised(case: ErrorContext) -> dict[str, Any]:
    """File and line that raised; outside torch with the source around it."""
    walked = list(traceback.walk_tb(case.cause().__traceback__ or case.error.__traceback__))
    if not walked:
        return {}
    code, line = walked[-1][0].f_code, walked[-1][1]
    source = "" if "torch" in Path(code.co_filename).parts else "".join(linecache.getlines(code.co_filename))
    raised = f"raised at {code.co_filename}:{line} in {code.co_name}"
    return {"file": code.co_filename, "line": line, "compiler_line": raised, "excerpt": excerpt(source, line)}
