"""The check of a saved graph, isolated: a child of the fork server loads it, runs it checked, and returns what it
found.

The calling process imports no torch. Each graph runs twice: the second time with the quick checks of repeated runs.

For example:

    answer = check(load_graph("myrun/0_0/backward"))
    answer.headline  # -> '1 origin, 14 inherited.'
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...dumps.allowlist import is_custom
from ...dumps.store import SavedGraph
from ...dumps.walk import contents, given, nodes
from ...dumps.wording import counted, raised_line
from ..isolation import ForkServer, ask
from ..live.how import USUAL, How
from ..live.spec import rewritten
from ..verdicts.mismatches import NodeMismatch, headline, next_step, origins, sentence, text_report
from ..verdicts.signature import how_ended
from ..verdicts.verdict import OK, OPERATOR, Verdict, Where, cannot_tell, fails

TASK = f"{__name__}:task"
TASKS = (TASK, "graphdbg.toolkit.debug_nop.checking")
"""What a server should import once for these checks; Inductor is not needed."""


class Checkup(msgspec.Struct):
    """The result of a check. `values`: how many were compared; `failed`: why the graph did not run to its end;
    `cannot`: why nothing could be checked (the process crashed or timed out); `unchecked`: notes on what was left
    out."""

    findings: list[NodeMismatch] = []
    values: int = 0
    seconds: float = 0.0
    failed: str = ""
    cannot: str = ""
    unchecked: list[str] = []
    notes: list[str] = []
    peak_bytes: int = 0

    @property
    def verdict(self) -> Verdict:
        """The verdict: wrong metadata, at the first origin; or why nothing could be checked."""
        wrong = [finding for finding in self.findings if finding.of_metadata]
        if wrong and not self.cannot:
            first = (origins(wrong) or wrong)[0]
            failure = fails("metadata", "debug_nop", sentence(first), Where(first.name, first.where, first.line))
            return msgspec.structs.replace(failure, fault="custom_op") if first.of_custom_op else failure
        if self.cannot or self.failed:
            return cannot_tell(self.cannot or f"eager itself fails ({self.failed})")
        return OK

    @property
    def ok(self) -> bool:
        """Whether everything ran and nothing was found."""
        return not self.verdict.exit_code

    @property
    def headline(self) -> str:
        """The result in one line."""
        record = self.verdict
        if record.undecided:
            return f"not checked, because {record.reason}"
        if self.findings:
            return headline(self.findings)
        return f"ok: {counted(self.values, 'value')} as traced{self.left_out}"

    @property
    def left_out(self) -> str:
        """The end of a line: how many things were not checked; "" where all were."""
        return f"; {counted(len(self.unchecked), 'note')} on what was not checked" if self.unchecked else ""

    def text(self) -> str:
        """The whole report."""
        if self.verdict.undecided:
            return self.headline
        right = counted(self.values, "value is what its", "values are what their")
        none = f"No mismatch: {'all ' * (self.values > 1 and not self.unchecked)}{right} metadata says{self.left_out}."
        report = text_report(self.findings) if self.findings else none
        return f"{report}\nThe graph itself fails: {self.failed}" if self.failed else report

    def json(self) -> dict[str, Any]:
        """Plain data: the findings with their sentences."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for row, finding in zip(plain["findings"], self.findings, strict=True):
            following = next_step(finding) if finding.origin else ""
            row |= {"origin": finding.origin, "sentence": sentence(finding), "next": following}
        judged = {"ok": self.ok, "text": self.headline, "origins": len(origins(self.findings))}
        return {**judged, **plain, **self.verdict.flat()}


def check(saved: SavedGraph, server: ForkServer, how: How = USUAL) -> Checkup:
    """Checks one saved graph in a child; one that dies is a Checkup too. Raises GraphdbgError where it cannot be
    loaded."""
    answer = ask(TASK, how.payload(saved), how.limit_s, server=server).end()
    checkup = msgspec.convert(answer.value, Checkup) if answer.status == "done" else Checkup(cannot=how_ended(answer))
    checkup.peak_bytes = answer.peak_bytes
    return checkup


_EXPLAINED = ("crash", "signal", "wrong_numbers", "nan", "metadata", "missing_error")


def of_operator(saved: SavedGraph, verdict: Verdict, how: How, server: ForkServer) -> Verdict:
    """The verdict on a failure of compiled code, with a custom operator at fault where an eager checked run shows that
    it contradicts its fake function or its schema, on which compilers rely. Only graphs with such operators are
    checked."""
    if not (verdict.failed and verdict.fault == "compiler" and verdict.kind in _EXPLAINED and calls_custom(saved)):
        return verdict
    checked = check(saved, server, how)
    first = next((finding for finding in checked.findings if finding.of_custom_op), None)
    return verdict if first is None else blaming(verdict, first)


def blaming(verdict: Verdict, first: NodeMismatch) -> Verdict:
    """The verdict with the finding's operator at fault."""
    where = verdict.where or Where()
    where = msgspec.structs.replace(where, node=first.name, line=first.line)
    reason = f"{verdict.reason}; {OPERATOR}{sentence(first).removesuffix('.')}"
    return msgspec.structs.replace(verdict, fault="custom_op", layer=None, reason=reason, where=where)


def calls_custom(saved: SavedGraph) -> bool:
    """Whether a graph calls an operator that is not torch's."""
    called = nodes(saved.record.graph)
    targets = (target for node in called for target in (node.target, *contents(given(node), "function")))
    return any(is_custom(str(target)) for target in targets)


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: loads, runs and checks the graph in the child."""
    import time

    import torch

    from ..debug_nop.checking import checked
    from ..isolation.child import mark
    from ..live.case import Case, moved
    from ..live.eager import clone_inputs
    from ..live.spec import in_force, settings

    mark("load")
    case = Case.at(payload["path"]).live(seed=payload["seed"])
    gm, inputs, device = case.gm, case.inputs, None
    notes = list(case.notes)
    if payload["device"] is not None:
        device = torch.device(payload["device"])
        kept = _values(gm)
        gm, inputs = moved(gm, inputs, device)
        for node, meta in kept:
            node.meta.update(meta)
        notes.append(f"moved to {device}: a layout that an op chooses by device may differ there without a fault")
    checkup = Checkup(notes=notes)
    mark("run")
    began = time.perf_counter()
    with settings(case.spec.config) as lost, in_force(case.spec):
        run = checked(gm, device=device, rewritten=rewritten(case.spec))
        for _ in range(2):
            torch.manual_seed(payload["seed"])
            try:
                run(clone_inputs(inputs))
            except Exception as error:  # noqa: BLE001  whatever a user op raises is reported
                checkup.failed = raised_line(error, 300)
                break
    checkup.findings, checkup.values, checkup.unchecked = run.findings, run.graph.values(), run.graph.unchecked()
    checkup.seconds = time.perf_counter() - began
    checkup.notes += lost
    return msgspec.to_builtins(checkup)


def _values(gm: Any) -> list[tuple[Any, dict[str, Any]]]:
    """All nodes with their recorded values, which moving a graph drops."""
    from torch import fx

    return [
        (node, {key: node.meta[key] for key in ("val", "example_value") if key in node.meta})
        for part in gm.modules()
        if isinstance(part, fx.GraphModule)
        for node in part.graph.nodes
    ]
