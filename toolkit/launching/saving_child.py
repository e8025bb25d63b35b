# pyright: basic
"""What a child does for `graphdbg kernel`: interprets a saved graph's kernels on the CPU and saves their launches.

A GPU that is here is hidden first: Inductor then writes for the pretended one alone, and a run that goes wrong cannot
touch it.

For example:

    ask("graphdbg.toolkit.launching.saving_child:task", {"path": "case", "folder": "out", ...}, server=server)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...dumps.errors import EnvironmentLackError, UsageError
from ..isolation.child import mark
from ..kernels.heard import kernels_heard
from ..live.case import Case, Live
from ..live.eager import clone_inputs, copy_graph
from ..live.entries import shared_fakes
from ..live.execution import execute
from ..live.spec import FULL_STAGES, in_force, no_caches, settings
from ..rungs.triton_interpret import TritonInterpret
from ..triton.interpreting.session import Interpretation
from .launches import VERSION, Index, LaunchWriter
from .saving import Saver, Wanted

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph


class Saving(TritonInterpret):
    """The rung, with a saver that looks on. `target`: the name of the GPU that the kernels are written for."""

    may_draw_like_cpu = False  # what is saved is compared with a GPU

    def __init__(self, saver: Saver, target: str) -> None:
        self.saver, self.target = saver, target

    def session(self) -> Interpretation:
        return Interpretation(self.saver)


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: saves the launches named `names` (None: all) into `folder`; returns how often each kernel
    was launched, and notes."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    mark("load")
    case = Case.at(payload["path"])
    live = case.live(seed=payload["seed"], device="cpu" if on_gpu(case.saved) else None)
    names = payload["names"]
    index = saved_launches(
        live,
        Path(payload["folder"]),
        payload["target"],
        lambda kernel, call: wanted(names, kernel, call),
        graph=payload["graph"],
        seed=payload["seed"],
    )
    return {"notes": index.notes, "launches": len(index.which)}


def wanted(names: Sequence[str] | None, kernel: str, call: int) -> bool:
    """Whether one of `names` (KERNEL or KERNEL#2; None: all) means a launch."""
    return names is None or kernel in names or f"{kernel}#{call}" in names


def on_gpu(saved: SavedGraph) -> bool:
    """Whether tensors of a recorded graph lay on a GPU."""
    table = saved.table
    return any(table.strings[place].startswith("cuda") for place in table.device)


def saved_launches(case: Live, folder: Path, target: str, wanted: Wanted, *, graph: str = "", seed: int = 0) -> Index:
    """Compiles for the pretended GPU, interprets, and writes a folder of launches. Raises what compile and run raise;
    what was launched before that is written all the same."""
    writer = LaunchWriter(folder)
    saver = Saver(writer, wanted)
    rung = Saving(saver, target)
    spec = case.spec
    with settings(spec.config) as lost, no_caches(), in_force(spec):
        if reason := rung.unavailable(spec):
            raise EnvironmentLackError("kernels cannot be written here", reason)
        if reason := rung.cannot_take(case.gm, spec):
            raise UsageError("this graph has no kernels", reason)
        import triton

        try:
            _run(case, rung, saver, seed)
        finally:
            for launch in writer.launches:
                launch.calls = saver.calls[launch.kernel]
            index = Index(VERSION, graph, target, str(torch.__version__), triton.__version__, [])
            index.notes = [*lost, *case.notes, *dict.fromkeys(saver.notes)]
            writer.finish(index)
    return index


def _run(case: Live, rung: Saving, saver: Saver, seed: int) -> None:
    gm, spec = copy_graph(case.gm), case.spec
    backward = spec.stage in FULL_STAGES and spec.ambient.grad and not spec.ambient.inference_mode
    with rung.around(case.gm, spec), kernels_heard(lambda row, *_: saver.rows.append(row)):
        mark("compile")
        fakes = shared_fakes(gm, case.inputs, spec.dynamic)[0]
        compiled = rung.build(gm, fakes, spec)
        mark("run")
        parameters = [parameter for parameter in case.gm.parameters() if parameter.requires_grad] if backward else []
        execute(compiled, clone_inputs(case.inputs), seed=seed, backward=backward, parameters=parameters)
