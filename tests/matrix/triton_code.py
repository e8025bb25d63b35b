"""PTX for every Triton kernel of the twenty models, forward and backward, for named GPUs, with none here: a table and a
count.

    python -m tests.matrix.triton_code [--models gru,unet] [--targets cuda:80,cuda:90]

Exits with 1 where a kernel has no PTX.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from graphdbg.toolkit.compile_fx.entering import enter
from graphdbg.toolkit.compile_fx.pipeline import Observer, Pipeline
from graphdbg.toolkit.kernels.records import CompiledRow
from graphdbg.toolkit.live.entries import patterns_without_device, shared_fakes
from graphdbg.toolkit.live.spec import ReplaySpec, no_caches
from graphdbg.toolkit.triton.emission import emitted_kernels, triton_sources
from graphdbg.toolkit.triton.pretended import pretending
from graphdbg.toolkit.triton.retarget import retargeted
from graphdbg.toolkit.triton.targets import target_of
from tests.models.compile_models import MODELS
from tests.models.triton_graphs import Graph, graphs_of


class _Wrappers(Observer):
    """Keeps the text of each wrapper."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def after(self, stage: Any, work: Any, report: Any) -> None:
        if stage.name == "codegen" and not report.error:
            self.texts.append(work.coded.wrapper.value)


def code_of(graph: Graph, target: str) -> tuple[list[str], list[CompiledRow]]:
    """(names of the Triton kernels that Inductor wrote, every compiled candidate)."""
    gm = copy.deepcopy(graph.gm)
    fakes, mode = shared_fakes(gm, graph.inputs, False)
    chip = target_of(target)
    with tempfile.TemporaryDirectory() as folder, no_caches(), patterns_without_device(), pretending(chip):
        result = retargeted(gm, fakes, mode)
        watch = _Wrappers()
        enter(result.gm, result.fakes, ReplaySpec(graph.stage), Pipeline([watch], until="codegen"))
        names = [name for text in watch.texts for name in triton_sources(text)]
        return names, [row for text in watch.texts for row in emitted_kernels(text, chip, ["ptx"], Path(folder), {})]


def main() -> int:
    """Prints a row for each graph and target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--targets", default="cuda:90")
    given = parser.parse_args()
    kernels = candidates = failed = 0
    print(f"torch {torch.__version__}; GPUs here: {torch.cuda.device_count()}")
    print(
        f"{'model':28}{'stage':10}{'target':9}{'kernels':>8}{'PTX':>6}{'candidates':>12}"
        f"{'most regs':>11}{'spills':>8}{'s':>7}"
    )
    for name in given.models.split(","):
        for graph in (item for item in graphs_of(name) if item.stage in ("forward", "backward", "inference")):
            for target in given.targets.split(","):
                began = time.perf_counter()
                names, rows = code_of(graph, target)
                good = {row.name for row in rows if "ptx" in row.files}
                most = max((row.registers or 0 for row in rows), default=0)
                spills = sum(bool((row.spill_stores or 0) + (row.spill_loads or 0)) for row in rows)
                took = time.perf_counter() - began
                print(
                    f"{name:28}{graph.stage:10}{target:9}{len(names):8}{len(good):6}{len(rows):12}{most:11}{spills:8}{took:7.1f}",
                    flush=True,
                )
                for row in rows:
                    if row.error:
                        print(f"    {row.name} {row.config}: {row.error}")
                kernels, candidates = kernels + len(names), candidates + len(rows)
                failed += len(set(names) - good)
    print(f"{kernels} kernels, {candidates} candidates; without PTX: {failed}")
    return 1 if failed or not kernels else 0


if __name__ == "__main__":
    raise SystemExit(main())
