"""The check of a saved graph, isolated: a child of the fork server loads it, runs it checked, and returns what it found.

The calling process imports no torch. Each graph runs twice: the second time with the quick checks of repeated runs.

>>> answer = check(load_graph("myrun/0_0/backward"))
>>> answer.headline
'1 origin, 14 inherited.'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps.wording import counted
from ..isolation import Answer, ForkServer, default_memory_bytes
from ..spec import FULL_STAGES, ReplaySpec
from .findings import Finding, origins
from .report import headline, text_report

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

TASK = f"{__name__}:task"
PRELOAD = (
    "graphdbg.toolkit.live_case:warm", "graphdbg.dumps.store", "graphdbg.dumps.torchside.fake",
    "graphdbg.dumps.torchside.make_inputs", "graphdbg.toolkit.debug_nop.checking", "graphdbg.toolkit.surroundings",
)  # fmt: skip


class Checkup(msgspec.Struct, omit_defaults=True):
    """What a check found. `values`: how many were compared; `failed`: why the graph did not run to its end; `cannot`: why
    nothing could be checked (a crash of the process, a time-out); `unchecked`: what was left out."""

    findings: list[Finding] = []
    values: int = 0
    seconds: float = 0.0
    failed: str = ""
    cannot: str = ""
    unchecked: list[str] = []
    notes: list[str] = []
    peak_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything ran and nothing was found."""
        return not (self.findings or self.failed or self.cannot)

    @property
    def headline(self) -> str:
        """One line."""
        if self.cannot:
            return f"cannot check: {self.cannot}"
        if self.findings:
            return headline(self.findings)
        if self.failed:
            return f"cannot check: eager itself fails ({self.failed})"
        return f"ok: {counted(self.values, 'value')} as traced"

    def text(self) -> str:
        """The whole report."""
        if self.cannot or (self.failed and not self.findings):
            return self.headline
        right = counted(self.values, "value is what its", "values are what their")
        none = f"No mismatch: {'all ' * (self.values > 1)}{right} metadata says."
        report = text_report(self.findings) if self.findings else none
        return f"{report}\nThe graph itself fails: {self.failed}" if self.failed else report

    def json(self) -> dict[str, Any]:
        """Plain data: the findings with their sentences."""
        from .report import next_step, sentence

        plain: dict[str, Any] = msgspec.to_builtins(self)
        rows = [
            msgspec.to_builtins(one)
            | {"origin": one.origin, "sentence": sentence(one), "next": next_step(one) if one.origin else ""}
            for one in self.findings
        ]
        return {
            "ok": self.ok, "verdict": self.headline, "origins": len(origins(self.findings)), "findings": rows,
            **{name: plain.get(name, empty) for name, empty in _EMPTY.items()},
        }  # fmt: skip


_EMPTY: dict[str, Any] = {
    "values": 0, "seconds": 0.0, "failed": "", "cannot": "", "unchecked": [], "notes": [], "peak_bytes": 0
}  # fmt: skip


def server_for_checks() -> ForkServer:
    """A fork server with what checks need imported once; Inductor is not."""
    return ForkServer(threads=os.cpu_count() or 1, memory_bytes=default_memory_bytes(), warm="torch", preload=PRELOAD)


def check(
    saved: SavedGraph, server: ForkServer, *, seed: int = 0, device: str | None = None, limit_s: float = 600.0,
    imports: Sequence[str] = (),
) -> Checkup:  # fmt: skip
    """Checks one saved graph in a child; one that dies is a Checkup too. Raises GraphdbgError where it cannot be loaded."""
    payload = {"path": str(saved.path.absolute()), "seed": seed, "device": device, "imports": list(imports)}
    answer = server.call(TASK, payload, limit_s)
    if answer.status == "done":
        found = msgspec.convert(answer.value, Checkup)
    else:
        found = Checkup(cannot=_lost(answer))
    found.peak_bytes = answer.peak_bytes
    return found


def _lost(answer: Answer) -> str:
    """Why there is no answer; raises what is the user's mistake."""
    from ..replay import outcome_of

    return outcome_of(answer, "debug_nop").verdict.removeprefix("cannot judge: ").splitlines()[0]


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """What the child does."""
    import time

    import torch

    from ...dumps.store import load_graph
    from .. import _torch
    from ..copying import clone_inputs
    from ..imports import import_modules
    from ..isolation.child import mark
    from ..live_case import live_case, moved
    from ..surroundings import in_force
    from .checking import checked

    mark("load")
    import_modules(payload["imports"])
    case = live_case(load_graph(payload["path"]), seed=payload["seed"])
    gm, inputs, device = case.gm, case.inputs, None
    notes = list(case.notes)
    if payload["device"] is not None:
        device = torch.device(payload["device"])
        kept = _values(gm)
        gm, inputs = moved(gm, inputs, device)
        for node, meta in kept:
            node.meta.update(meta)
        notes.append(f"moved to {device}: a layout that an op chooses by device may differ there without a fault")
    found = Checkup(notes=notes)
    mark("run")
    began = time.perf_counter()
    with _torch.settings(case.spec.config) as lost, in_force(case.spec):
        run = checked(gm, device=device, rewritten=rewritten(case.spec))
        for _ in range(2):
            torch.manual_seed(payload["seed"])
            try:
                run(clone_inputs(inputs))
            except Exception as error:  # noqa: BLE001  whatever an op of the user's raises is told
                found.failed = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
                break
    found.findings, found.values, found.unchecked = run.findings, run.graph.values(), run.graph.unchecked()
    found.seconds = time.perf_counter() - began
    found.notes += lost
    return msgspec.to_builtins(found)


def rewritten(spec: ReplaySpec) -> bool:
    """Whether passes that replace nodes ran over a recorded graph: all that Inductor compiles, and Dynamo's own."""
    return bool(spec.compile_kwargs) or spec.stage in FULL_STAGES or spec.stage.startswith(("joint_passed", "post_grad"))


def _values(gm: Any) -> list[tuple[Any, dict[str, Any]]]:
    """The recorded values of all nodes, which moving a graph drops."""
    from torch import fx

    return [
        (node, {key: node.meta[key] for key in ("val", "example_value") if key in node.meta})
        for part in gm.modules() if isinstance(part, fx.GraphModule)
        for node in part.graph.nodes
    ]  # fmt: skip
