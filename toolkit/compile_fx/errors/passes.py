"""An exception inside a pass, a lowering, or any other part of a stage: which pass, which node, raised where.

For example: `of_a_pass(case, None).pass_name` gives `'post_grad.post_grad_custom_post_pass'`.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ....dumps.errors import GraphdbgError
from .case import ErrorContext, Explained
from .kernels import excerpt

if TYPE_CHECKING:
    from ..passes import NamedPass

_GROUPS = {
    "pre_grad_passes": "pre_grad",
    "_run_pre_dispatch_passes": "pre_grad",
    "joint_graph_passes": "joint",
    "post_grad_passes": "post_grad",
}


def of_a_pass(case: ErrorContext, _: Any) -> Explained | None:
    """A pass of pre_grad, joint or post_grad raised, one of torch's or one of the configuration."""
    named = pass_named(case)
    if not named:
        return None
    name, function = named
    at = _at(case.nodes)
    own = f" ({function})" if function and function not in name else ""
    return case.told(
        "pass failed",
        f"the pass {name}{own} failed{at}",
        case.said(),
        _way_out(name),
        nodes=case.nodes,
        pass_name=name,
        **_raised(case),
    )


def anything(case: ErrorContext) -> Explained:
    """An error that no other family explains: the stage, the node, where it was raised; or an error that tells
    itself."""
    cause = case.cause()
    if isinstance(cause, GraphdbgError):
        return case.told("refused", cause.what, cause.why, cause.fix)
    at = _at(case.nodes)
    if case.find("LoweringException") is not None and case.nodes:
        return case.told(
            "lowering failed",
            f"the lowering of {case.op} failed{at}",
            case.said(),
            "ask graphdbg bisect whether a fallback of this operator avoids it; minify makes the smallest "
            "graph that fails",
            nodes=case.nodes,
            **_raised(case),
        )
    return case.told(
        "stage failed",
        f"the stage {case.stage} failed{at}",
        case.said(),
        "ask graphdbg bisect for the pass or setting behind it, minify for the smallest graph that fails",
        nodes=case.nodes,
        **_raised(case),
    )


def pass_named(case: ErrorContext) -> tuple[str, str] | None:
    """(group.pass, function) of the innermost pass that was running; None where none was."""
    group, name, function, expected = "", "", "", False
    for frame in case.frames:
        code, own = frame.f_code, frame.f_locals.get("self")
        if code.co_name in _GROUPS and "fx_passes" in code.co_filename:
            group, name, function, expected = _GROUPS[code.co_name], "", "", True
        elif not group:
            continue
        elif type(own).__name__ == "Watch" and code.co_name == "around":
            name, expected = str(frame.f_locals.get("name", name)), False
        elif type(own).__name__ == "GraphTransformObserver":
            name = name or str(getattr(own, "passname", ""))
            function, expected = _given(frame.f_locals.get("pass_fn")), False
        elif expected and "compile_fx/passes" not in code.co_filename:
            name, expected = _function(frame), False
    if not group:
        return None
    row = _row(f"{group}.{name}")
    return (row.full_name if row is not None else f"{group}.{name or 'a pass without a name'}"), function


def _row(name: str) -> NamedPass | None:
    """The row of a pass in the table of passes."""
    from ..passes import known, resolve

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


def _function(frame: FrameType) -> str:
    return "" if frame.f_code.co_name.startswith("<") else frame.f_code.co_name


def _at(nodes: list[Any]) -> str:
    return f" at the node {nodes[0].node} ({nodes[0].line or 'no user line is known'})" if nodes else ""


def _raised(case: ErrorContext) -> dict[str, Any]:
    """File and line that raised; outside torch with the source around it."""
    cause = case.cause()
    trace = cause.__traceback__ or case.error.__traceback__
    if trace is None:
        return {}
    while trace.tb_next is not None:
        trace = trace.tb_next
    file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
    details: dict[str, Any] = {"file": file, "line": line}
    name = trace.tb_frame.f_code.co_name
    details["compiler_line"] = f"raised at {file}:{line} in {name}"
    if "torch" not in Path(file).parts:
        details["excerpt"] = excerpt("".join(linecache.getlines(file)), line)
    return details
