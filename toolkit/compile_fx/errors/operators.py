"""Operators that the path cannot take: no fake kernel, no lowering, no call in their place; and values known at run time alone.

>>> unsupported(case).fix
'register a fake kernel: @torch.library.register_fake("mylib::foo")'
"""

from __future__ import annotations

import re
from typing import Any

from .case import Case
from .explained import Explained, NodeAt
from .nodes import running

KIND = "unsupported operator"
_NO_FAKE = re.compile(
    r"fake impl|fake kernel|'Meta' backend|no meta kernel|NotImplementedError: (?:Operator|Could not run)|Meta kernel",
    re.IGNORECASE,
)
_ALIAS = "whose output has alias annotations"


def unsupported(case: Case) -> Explained | None:
    """An operator that stands in the graph and cannot be traced, lowered or called from generated code."""
    for family in (_not_lowered, _no_fake, _aliases, _no_fallback, _no_operator):
        if (found := family(case)) is not None:
            return found
    return None


def depends_on_data(case: Case) -> Explained | None:
    """A size or a branch that depends on the values of a tensor."""
    error = case.find("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode")
    if error is None:
        return None
    nodes = running(case)
    name = type(error).__name__
    settings = {
        "DynamicOutputShapeException": "set torch._dynamo.config.capture_dynamic_output_shape_ops = True",
        "DataDependentOutputException": "set torch._dynamo.config.capture_scalar_outputs = True",
    }
    return case.told(
        "depends on data", f"{_op(nodes, case)} cannot be compiled{_where(nodes)}",
        f"its result depends on values that are known at run time alone: {_first(error)}",
        settings.get(name, "say what is known of the value by torch._check(...)"), nodes=nodes,
    )  # fmt: skip


def _not_lowered(case: Case) -> Explained | None:
    error = case.find("MissingOperatorWithDecomp", "MissingOperatorWithoutDecomp")
    if error is None:
        return None
    nodes = running(case)
    op = _op(nodes, case)
    if type(error).__name__ == "MissingOperatorWithDecomp":
        why = "Inductor has no lowering for it and calls none as it is (implicit_fallbacks is off), but torch can decompose it"
        fix = "add it to torch._inductor.decomposition.decompositions, or give compile_fx a table with it (decompositions=)"
    else:
        why = (
            "Inductor has no lowering for it and calls none as it is (torch._inductor.config.implicit_fallbacks is off)"
        )
        fix = (
            "set torch._inductor.config.implicit_fallbacks = True, register a decomposition, "
            f"or a lowering: @torch._inductor.lowering.register_lowering(torch.ops.{op})"
        )
    return case.told(KIND, f"{op} has no lowering{_where(nodes)}", why, fix, nodes=nodes)


def _no_fake(case: Case) -> Explained | None:
    error = case.find("UnsupportedOperatorException", "UnsupportedFakeTensorException")
    plain = case.find("NotImplementedError")
    if error is None and (plain is None or not _NO_FAKE.search(str(plain))):
        return None
    nodes = running(case)
    op = _op(nodes, case)
    return case.told(
        KIND, f"{op} has no fake kernel{_where(nodes)}",
        "tracing needs the shape, dtype and strides of its result without running it",
        f'register one: @torch.library.register_fake("{_schema_name(op)}"), or a decomposition into operators that have one',
        nodes=nodes,
    )  # fmt: skip


def _aliases(case: Case) -> Explained | None:
    error = next((one for one in case.chain if _ALIAS in str(one)), None)
    if error is None:
        return None
    nodes = running(case)
    return case.told(
        KIND, f"{_op(nodes, case)} cannot be made functional{_where(nodes)}", _first(error),
        "define it with torch.library.custom_op(..., mutates_args=...), which returns nothing that aliases an argument",
        nodes=nodes,
    )  # fmt: skip


def _no_fallback(case: Case) -> Explained | None:
    """Inductor would call the operator from generated code, and cannot."""
    if case.find("LoweringException") is None or not any(_makes_fallback(frame) for frame in case.frames):
        return None
    nodes = running(case)
    op = _op(nodes, case)
    return case.told(
        KIND, f"{op} cannot be called from generated code{_where(nodes)}",
        f"it has no lowering, and a fallback is not possible: {case.said()}",
        "give it a functional form (torch.library.custom_op), a decomposition, "
        f"or a lowering: @torch._inductor.lowering.register_lowering(torch.ops.{op})",
        nodes=nodes,
    )  # fmt: skip


def _no_operator(case: Case) -> Explained | None:
    found = re.match(r"(.+) is not an OpOverload", str(case.cause()))
    if found is None:
        return None
    nodes = running(case)
    return case.told(
        KIND, f"{found[1]} has no lowering{_where(nodes)}", "it is no ATen operator, and Inductor has no rule for it",
        "trace the graph to ATen operators first (rung or stage capture), or register a lowering for it", nodes=nodes,
    )  # fmt: skip


def _makes_fallback(frame: Any) -> bool:
    code, own = frame.f_code, frame.f_locals.get("self", frame.f_locals.get("cls"))
    if code.co_name in ("make_fallback", "fallback_handler"):
        return True
    kind = own if isinstance(own, type) else type(own)
    return kind.__name__ == "FallbackKernel"


def _op(nodes: list[NodeAt], case: Case) -> str:
    if nodes:
        return nodes[0].op
    found = re.search(r"target: (\S+)", case.text())
    return found[1] if found else case.said()


def _where(nodes: list[NodeAt]) -> str:
    if not nodes:
        return ""
    return f" (node {nodes[0].node}, {nodes[0].line or 'no user line is known'})"


def _schema_name(op: str) -> str:
    """`tst.foo.default` -> `tst::foo`, as torch.library names it."""
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.rpartition(".")
    return f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}") if name else op


def _first(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
