"""`graphdbg kernel --check`: runs the check in a child, prints the result, and gives the exit code. Imports neither
torch nor Triton.

For example:

    shown(saved, None, How(), as_json=False)
    # OK
    # <BLANKLINE>
    # run/0_0/forward: kernels checked: 6 kernels, 9 launches, 3 library calls not checked: no finding
    # 0
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...dumps.errors import NoSuchNodeError
from ...dumps.output import emit, say
from ...dumps.store import SavedGraph
from ...dumps.wording import counted
from ..isolation import ForkServer, ask, opened
from ..live.how import How
from ..triton.needs import require_interpreter
from ..verdicts.ladder_words import address
from ..verdicts.signature import how_ended
from ..verdicts.verdict import with_flags
from ..verdicts.verdict_words import first_line
from .findings import CheckedKernels, KernelFault

TASK = f"{__name__}:task"
_WIDTH = 8


def shown(saved: SavedGraph, kernel: str | None, how: How, *, as_json: bool) -> int:
    """Checks a graph's kernels and prints the result; returns 0: no finding, 1: findings, 4: it could not be run.
    Raises EnvironmentLackError without Triton."""
    require_interpreter()
    with opened(None) as used:
        checked = check(saved, used, kernel, how)
    graph = address(saved)
    shown_text = f"{first_line(checked.conclusion)}\n\n{text(checked, graph)}"
    emit(_json(graph, saved, checked) if as_json else shown_text, as_json=as_json)
    for note in [] if as_json else checked.unchecked:
        say(f"not checked: {note}")
    return checked.conclusion.exit_code


_ALWAYS = {"cannot": "", "unchecked": [], "calls": 0, "kernels": 0, "launches": 0, "seconds_plain": None}
"""JSON fields with the defaults that are always present."""


def _json(name: str, saved: SavedGraph, checked: CheckedKernels) -> dict[str, Any]:
    rows, notes = (
        [msgspec.to_builtins(fault) | {"what": fault.what} for fault in faults]
        for faults in (checked.findings, checked.notes)
    )
    return {
        "id": saved.id,
        "stage": saved.stage,
        "graph": name,
        "ok": checked.ok,
        "headline": headline(checked),
        "ratio": checked.ratio,
        **_ALWAYS,
        **msgspec.to_builtins(checked),
        "findings": rows,
        "notes": notes,
        "text": checked.verdict,
        **checked.conclusion.flat(),
    }


def check(saved: SavedGraph, server: ForkServer, kernel: str | None, how: How) -> CheckedKernels:
    """Checks one saved graph in a child; one that dies is reported too. Raises GraphdbgError where it cannot be loaded,
    where Triton is missing, and where there is no such kernel."""
    answer = ask(TASK, {**how.payload(saved), "kernel": kernel}, how.limit_s, server=server).end()
    checked = (
        msgspec.convert(answer.value, CheckedKernels)
        if answer.status == "done"
        else CheckedKernels(cannot=how_ended(answer))
    )
    checked.peak_bytes = answer.peak_bytes
    return checked


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: checks the kernels in the child."""
    from ..isolation.child import mark
    from ..live.case import Case

    mark("load")
    require_interpreter()
    live = Case.at(payload["path"]).live(rung="triton_interpret", seed=payload["seed"])
    mark("check")
    from .run import checked

    report = checked(live, kernel=payload["kernel"], seed=payload["seed"])
    report.unchecked += live.notes
    if payload["kernel"] and not report.kernels and not report.cannot:
        known = ", ".join(report.names)
        raise NoSuchNodeError(
            f"there is no kernel {payload['kernel']}", f"the graph has {known}", "name one, or none for all"
        )
    return msgspec.to_builtins(report)


def text(checked: CheckedKernels, graph: str) -> str:
    """The whole report."""
    rows = [f"{graph}: {headline(checked)}"]
    for number, fault in enumerate((*checked.findings, *checked.notes), 1):
        rows += lines_of(fault, graph, number)
    if checked.wrong:
        rows.append(f"results: {checked.verdict}; no kernel was found to depart from eager")
    if checked.cannot:
        rows.append(f"the run did not end: {checked.cannot}")
    rows.append(_times(checked))
    return "\n".join(rows)


def headline(checked: CheckedKernels) -> str:
    """One line: how much was checked, and the overall result."""
    calls = f"{counted(checked.calls, 'library call')} not checked"
    amount = f"{counted(checked.kernels, 'kernel')}, {counted(checked.launches, 'launch')}, {calls}"
    if checked.cannot:
        return f"cannot check: {amount}"
    findings = counted(len(checked.findings), "finding") if checked.findings else "no finding"
    return f"kernels checked: {amount}: {'results are wrong' if checked.wrong else findings}"


def lines_of(fault: KernelFault, graph: str, number: int) -> list[str]:
    """A finding: what and where, the kernel's line, what it accesses, nodes, the user's lines, and what to look at
    next."""
    head = f"{number} {'note: ' if fault.note else ''}{fault.what}"
    fields = [
        ("kernel", f"{fault.kernel}.py:{fault.line}   {fault.text}" if fault.line else ""),
        (_VERBS.get(fault.kind, "writes"), _accessed(fault) if fault.argument else ""),
        ("because", fault.detail),
        ("eager", {None: "", True: "has it too", False: "does not have it"}[fault.eager]),
        ("nodes", ", ".join(fault.nodes)),
        *(("" if place else "yours", f"{line.place}   {line.code}".rstrip()) for place, line in enumerate(fault.lines)),
        ("next", _next(fault, graph)),
    ]
    rows = [f"    {name:<{_WIDTH}}{value}" for name, value in fields if value]
    return [f"{head}   {fault.kernel}, {_where(fault)}", *rows]


def _next(fault: KernelFault, graph: str) -> str:
    """The command that shows the whole kernel: a generated kernel's source is generated again, a user's is in the
    dump."""
    if fault.kernel.startswith("triton_"):
        return with_flags(f"graphdbg compile {graph} --target cuda:90 --emit source --kernel {fault.kernel}")
    return f"graphdbg show {graph} --kernel {fault.kernel}"


def _where(fault: KernelFault) -> str:
    parts = [f"launch {fault.launch}"]
    if fault.programs:
        parts.append(f"program ({','.join(map(str, fault.program))})")
    if fault.programs and fault.lanes:
        span = f"lane {fault.first_lane}" if fault.lanes == 1 else f"lanes {fault.first_lane}..{fault.last_lane}"
        parts.append(f"{span} ({fault.lanes})")
    if fault.programs > 1:
        parts.append(f"in {counted(fault.programs, 'program')}")
    return ", ".join(parts)


_VERBS = {"load": "reads", "uninitialised": "reads", "overflow": "address", "assert": ""}


def _accessed(fault: KernelFault) -> str:
    named = fault.argument + (f" = {fault.buffer}" if fault.buffer else "")
    if fault.node and fault.node != fault.buffer:
        named += f" ({fault.node})"
    known = f"{named} {_short(fault.dtype)}[{','.join(map(str, fault.shape))}]" if fault.dtype else named
    if fault.kind == "values":
        return known
    return f"{known}: element {fault.element}; storage has {fault.storage}"


def _short(dtype: str) -> str:
    return dtype.replace("bfloat", "bf").replace("float", "f") if "float8" not in dtype else dtype


def _times(report: CheckedKernels) -> str:
    checked = f"checked {report.seconds_checked:.2g} s"
    if report.seconds_plain is None:
        return checked
    return f"plain {report.seconds_plain:.2g} s, {checked} ({report.ratio or 0:.1f}x)"
