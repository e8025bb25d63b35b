"""`graphdbg kernel --check`: asks a child, prints, and says with what to exit. Imports neither torch nor Triton.

For example:

    shown(saved, kernel=None, seed=0, limit_s=600.0, imports=(), as_json=False)
    # OK
    # <BLANKLINE>
    # run/0_0/forward: kernels checked: 6 kernels, 9 launches, 3 library calls not checked: no finding
    # 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps.errors import UsageError
from ...dumps.output import emit, say
from ...dumps.wording import counted
from ..isolation import ForkServer, ask, opened
from ..triton.needs import require_interpreter
from ..verdicts.ladder_words import address
from ..verdicts.next_command import with_flags
from ..verdicts.signature import how_ended
from ..verdicts.verdict_words import first_line
from .findings import Checked, KernelFault

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

TASK = f"{__name__}:task"
_WIDTH = 8


def shown(
    saved: SavedGraph, *, kernel: str | None, seed: int, limit_s: float, imports: Sequence[str], as_json: bool
) -> int:
    """0: nothing was found, 1: something was, 4: it could not be run. Raises EnvironmentLackError without Triton."""
    require_interpreter()
    with opened(None) as used:
        found = check(saved, used, kernel=kernel, seed=seed, limit_s=limit_s, imports=imports)
    graph = address(saved)
    emit(
        _json(graph, saved, found) if as_json else f"{first_line(found.found)}\n\n{text(found, graph)}", as_json=as_json
    )
    for note in [] if as_json else found.unchecked:
        say(f"not checked: {note}")
    return found.found.exit_code


def _json(name: str, saved: SavedGraph, found: Checked) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    rows = [msgspec.to_builtins(one) | {"what": one.what} for one in found.findings]
    notes = [msgspec.to_builtins(one) | {"what": one.what} for one in found.notes]
    empty: dict[str, Any] = {
        "cannot": "",
        "unchecked": [],
        "calls": 0,
        "kernels": 0,
        "launches": 0,
        "seconds_plain": None,
    }
    return {
        "id": saved.id,
        "stage": saved.stage,
        "graph": name,
        "ok": found.ok,
        "headline": headline(found),
        "ratio": found.ratio,
        **empty,
        **plain,
        "findings": rows,
        "notes": notes,
        "text": found.verdict,
        **found.found.flat(),
    }


def check(
    saved: SavedGraph,
    server: ForkServer,
    *,
    kernel: str | None = None,
    seed: int = 0,
    limit_s: float = 600.0,
    imports: Sequence[str] = (),
    plain: bool = True,
) -> Checked:
    """Checks one saved graph in a child; one that dies is told of too. Raises GraphdbgError where it cannot be loaded,
    where Triton is missing, and where there is no such kernel."""
    payload = {
        "path": str(saved.path.absolute()),
        "seed": seed,
        "imports": list(imports),
        "kernel": kernel,
        "plain": plain,
    }
    answer = ask(TASK, payload, limit_s, server=server).end()
    found = msgspec.convert(answer.value, Checked) if answer.status == "done" else Checked(cannot=how_ended(answer))
    found.peak_bytes = answer.peak_bytes
    return found


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """What the child does."""
    from ..isolation.child import mark
    from ..live.case import Case
    from ..triton.needs import require_interpreter

    mark("load")
    require_interpreter()
    case = Case.at(payload["path"])
    live = case.live(rung="triton_interpret", seed=payload["seed"])
    mark("check")
    from .run import checked

    found = checked(live, kernel=payload["kernel"], plain=payload["plain"], seed=payload["seed"])
    found.unchecked += live.notes
    if payload["kernel"] and not found.kernels and not found.cannot:
        known = ", ".join(found.names)
        raise UsageError(
            f"there is no kernel {payload['kernel']}", f"the graph has {known}", "name one, or none for all"
        )
    return msgspec.to_builtins(found)


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
    amount = ", ".join(
        (
            counted(found.kernels, "kernel"),
            counted(found.launches, "launch"),
            f"{counted(found.calls, 'library call')} not checked",
        )
    )
    if found.cannot:
        return f"cannot check: {amount}"
    if found.wrong:
        return f"kernels checked: {amount}: results are wrong"
    if found.findings:
        return f"kernels checked: {amount}: {counted(len(found.findings), 'finding')}"
    return f"kernels checked: {amount}: no finding"


def lines_of(one: KernelFault, graph: str, number: int) -> list[str]:
    """A finding: what and where, the kernel's line, what it accesses, nodes, the user's lines, and what to look at
    next."""
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


def _next(one: KernelFault, graph: str) -> str:
    """The command that shows the whole kernel: a generated one is written anew, a user's is in the dump."""
    if one.kernel.startswith("triton_"):
        return with_flags(f"graphdbg compile {graph} --target cuda:90 --emit source --kernel {one.kernel}")
    return f"graphdbg show {graph} --kernel {one.kernel}"


def _where(one: KernelFault) -> str:
    parts = [f"launch {one.launch}"]
    if one.programs:
        parts.append(f"program ({','.join(map(str, one.program))})")
    if one.programs and one.lanes:
        span = f"lane {one.first_lane}" if one.lanes == 1 else f"lanes {one.first_lane}..{one.last_lane}"
        parts.append(f"{span} ({one.lanes})")
    if one.programs > 1:
        parts.append(f"in {counted(one.programs, 'program')}")
    return ", ".join(parts)


def _verb(one: KernelFault) -> str:
    return {"load": "reads", "uninitialised": "reads", "overflow": "address", "assert": ""}.get(one.kind, "writes")


def _accessed(one: KernelFault) -> str:
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
