# pyright: basic
"""What a child does for `reading`: runs the graph eagerly and under a rung, appends a row for each node to a file as it goes.

The file is what survives: where this process dies or hangs, the lines that it wrote are read all the same.

>>> server.call("graphdbg.toolkit.node_values.child:task", {"path": "case", "rung": "eager", "lines": "rows.jsonl", ...})
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...dumps.store import load_graph
from .. import _torch
from ..blame.departures import departures
from ..copying import copy_graph
from ..eager import GraphRunError, draw_like_kernels, draws_from_generator, draws_unrepeatably, recomputes_random
from ..eager_values import record_values
from ..imports import import_modules
from ..isolation.child import mark
from ..judge import judge
from ..live_case import LiveCase, live_case
from ..rungs import rung as rung_named
from ..spec import FULL_STAGES, ReplaySpec
from ..surroundings import in_force
from ..values import Values
from .measuring import Row, measure, tappable
from .tapped import Tapped

IN_MEMORY_BYTES = 1 << 30
"""Above this eager's values wait in files."""


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """Rows for the nodes `names` (None: all), read under `rung`; `signature`: how the graph fails with the extra outputs."""
    with _Lines(Path(payload["lines"])) as lines:
        mark("load")
        import_modules(payload["imports"])
        case = live_case(load_graph(payload["path"]), seed=payload["seed"], device=payload["device"])
        wanted = None if payload["names"] is None else set(payload["names"])
        seed, rung = payload["seed"], payload["rung"]
        mark("eager")
        lines.stage("eager")
        spill = Path(payload["work"]) if payload["bytes"] > IN_MEMORY_BYTES else None
        try:
            with _surroundings(case.spec):
                like_kernels = copy_graph(case.gm)
                draw_like_kernels(like_kernels)
                torch.manual_seed(seed)
                eager = record_values(like_kernels, case.inputs, spill)
        except Exception as error:  # noqa: BLE001  whatever eager raises is why there are no values
            return {"refused": f"eager itself fails: {type(error).__name__}: {error}".splitlines()[0]}
        found: dict[str, Any] = {"notes": case.notes}
        got: dict[str, torch.Tensor] | None = None
        if rung != "eager":
            names = [name for name in tappable(case.gm, eager) if wanted is None or name in wanted]
            found |= {"signature": None, "outputs": len(names)}
            tapped = Tapped(rung_named(rung), names, lines.stage)
            if names:
                shared = Path(payload["shared"]) if payload.get("shared") else None
                outcome = judge(case.gm, case.inputs, case.spec, tapped, seed=seed, shared=shared)
                found |= {"signature": msgspec.to_builtins(outcome.signature), "verdict": outcome.verdict}
                if not tapped.got:
                    return found
            got = tapped.got
        mark("compare")
        lines.stage("compare")
        with _surroundings(case.spec):
            found["no_reference"] = measure(case, eager, got, wanted, seed=seed, tell=lines.tell)
            if got and (wrong := _wrong(case, rung, eager, got, seed)) is not None:
                found["wrong"] = wrong
        return found


def _wrong(case: LiveCase, rung: str, eager: Values, got: dict[str, torch.Tensor], seed: int) -> list[dict[str, Any]] | None:
    """Which values are wrong on the compiled values before them; None where the random numbers of a program are its own."""
    gm = case.gm
    own = rung_named(rung).compiles_draws and draws_unrepeatably(gm)
    if own or (draws_from_generator(gm) and recomputes_random(gm)):
        return None
    mark("local test")
    with contextlib.suppress(GraphRunError):
        return [one._asdict() for one in departures(copy_graph(gm), case.inputs, got, seed=seed)]
    return None


@contextlib.contextmanager
def _surroundings(spec: ReplaySpec):
    """The recorded state, without gradients: values are looked into, gradients have graphs of their own."""
    if spec.stage in FULL_STAGES:
        spec = msgspec.structs.replace(spec, ambient=msgspec.structs.replace(spec.ambient, grad=False))
    with _torch.settings(spec.config), in_force(spec), torch.no_grad():
        yield


class _Lines:
    """Appends JSON objects to a file, one line each, whole."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, row: Row) -> None:
        """One object."""
        os.write(self._file, json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def stage(self, name: str) -> None:
        """That a step begins."""
        self.tell({"event": "stage", "stage": name})

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
