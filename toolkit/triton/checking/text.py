"""What a checked run found, for a reader. Imports no torch.

>>> print(text(found, "run/0_0/forward"))
run/0_0/forward: kernels checked: 6 kernels, 9 launches, 3 library calls not checked
"""

from __future__ import annotations

from ....dumps.wording import counted
from .findings import Checked, Finding

_WIDTH = 8


def text(found: Checked, graph: str) -> str:
    """The whole report."""
    rows = [f"{graph}: {headline(found)}"]
    for number, one in enumerate((*found.findings, *found.notes), 1):
        rows += lines_of(one, graph, number)
    if found.wrong:
        rows.append(f"results: {found.verdict}; no kernel was found to depart from eager")
    if found.cannot:
        rows.append(f"the run did not end: {found.cannot}")
    rows.append(_times(found))
    return "\n".join(rows)


def headline(found: Checked) -> str:
    """One line: how much was checked, and whether all is well."""
    amount = ", ".join((
        counted(found.kernels, "kernel"), counted(found.launches, "launch"),
        f"{counted(found.calls, 'library call')} not checked",
    ))  # fmt: skip
    if found.cannot:
        return f"cannot check: {amount}"
    if found.wrong:
        return f"kernels checked: {amount}: results are wrong"
    if found.findings:
        return f"kernels checked: {amount}: {counted(len(found.findings), 'finding')}"
    return f"kernels checked: {amount}: no finding"


def lines_of(one: Finding, graph: str, number: int) -> list[str]:
    """A finding: what and where, the kernel's line, what it accesses, nodes, the user's lines, and what to look at next."""
    head = f"{number} {'note: ' if one.note else ''}{one.what}"
    rows = [f"{head}   {one.kernel}, {_where(one)}"]
    if one.line:
        rows.append(_row("kernel", f"{one.kernel}.py:{one.line}   {one.text}"))
    if one.argument:
        rows.append(_row(_verb(one), _accessed(one)))
    if one.detail:
        rows.append(_row("because", one.detail))
    if one.eager is not None:
        rows.append(_row("eager", "has it too" if one.eager else "does not have it"))
    if one.nodes:
        rows.append(_row("nodes", ", ".join(one.nodes)))
    for place, line in enumerate(one.lines):
        rows.append(_row("yours" if not place else "", f"{line.place}   {line.code}".rstrip()))
    rows.append(_row("next", _next(one, graph)))
    return rows


def _next(one: Finding, graph: str) -> str:
    """The command that shows the whole kernel: a generated one is written anew, a user's is in the dump."""
    if one.kernel.startswith("triton_"):
        return f"graphdbg compile {graph} --target cuda:90 --emit source --kernel {one.kernel}"
    return f"graphdbg show {graph} --kernel {one.kernel}"


def _where(one: Finding) -> str:
    parts = [f"launch {one.launch}"]
    if one.programs:
        parts.append(f"program ({','.join(map(str, one.program))})")
    if one.programs and one.lanes:
        span = f"lane {one.first_lane}" if one.lanes == 1 else f"lanes {one.first_lane}..{one.last_lane}"
        parts.append(f"{span} ({one.lanes})")
    if one.programs > 1:
        parts.append(f"in {counted(one.programs, 'program')}")
    return ", ".join(parts)


def _verb(one: Finding) -> str:
    return {"load": "reads", "uninitialised": "reads", "overflow": "address", "assert": ""}.get(one.kind, "writes")


def _accessed(one: Finding) -> str:
    named = one.argument + (f" = {one.buffer}" if one.buffer else "")
    if one.node and one.node != one.buffer:
        named += f" ({one.node})"
    known = f"{named} {_short(one.dtype)}[{','.join(map(str, one.shape))}]" if one.dtype else named
    if one.kind == "values":
        return known
    return f"{known}: element {one.element}; storage has {one.storage}"


def _short(dtype: str) -> str:
    return dtype.replace("bfloat", "bf").replace("float", "f") if "float8" not in dtype else dtype


def _times(found: Checked) -> str:
    checked = f"checked {found.seconds_checked:.2g} s"
    if found.seconds_plain is None:
        return checked
    return f"plain {found.seconds_plain:.2g} s, {checked} ({found.ratio or 0:.1f}x)"


def _row(name: str, value: str) -> str:
    return f"    {name:<{_WIDTH}}{value}"
