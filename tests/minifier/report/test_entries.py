"""Where a repro enters, where that is neither `torch.compile` nor Inductor's inner compiler: run with torch alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch._inductor.decomposition
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.program.case import Case
from graphdbg.dumps.program.entering import entries_of, stands_for
from graphdbg.dumps.program.repro import script_of
from graphdbg.dumps.redact import Redactor
from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import SavedGraph, load_graph
from graphdbg.minifier.report import verify
from graphdbg.minifier.report.trying import WITHOUT, lay_down
from graphdbg.toolkit.capture import joint_graph

from .cases import ACCURACY

PLANTED = Path(__file__).parents[2] / "toolkit" / "planted"


def joint(folder: Path) -> SavedGraph:
    """A joint graph of a layer and tanh."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    table = torch._inductor.decomposition.select_decomp_table()
    captured = joint_graph(net, (torch.randn(3, 4),), decompositions=table)
    inputs = [torch.randn(4, 4), torch.randn(4), torch.randn(3, 4), torch.randn(3, 4)]
    return saved(folder, captured.module, inputs, "joint", compile_kwargs=captured.compile_kwargs)


def branching(folder: Path) -> SavedGraph:
    """An inference graph with two bodies."""

    def run(which: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.cond(which, torch.tanh, torch.cos, (x,)) + 1,)

    inputs = [torch.tensor(True), torch.randn(4)]
    return saved(folder, make_fx(run)(*inputs), inputs, "inference")


def writing(folder: Path) -> SavedGraph:
    """One that writes to what it is given."""

    def run(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        x.mul_(w)
        return (torch.tanh(x),)

    inputs = [torch.randn(4), torch.randn(4)]
    return saved(folder, make_fx(run)(*inputs), inputs, "inference")


def saved(folder: Path, gm: torch.fx.GraphModule, inputs: list[torch.Tensor], stage: str, **more: object) -> SavedGraph:
    """The graph as it is saved, without autograd."""
    return load_graph(save_graph(gm, inputs, folder, stage=stage, ambient=Ambient(grad=False), **more))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "rung", "fault"),
    [(joint, "inductor", "planted_partition"), (branching, "inductor", "planted_lowering"), (writing, "lazy", "")],
)
def test_it_enters_where_it_was_recorded(made: Callable[[Path], SavedGraph], rung: str, fault: str, tmp_path: Path) -> None:
    graph, stand = made(tmp_path / "case"), stands_for(rung)[-1]
    case = Case(graph.record, graph.inputs_record, graph.kept, ACCURACY, rung)
    case = replace(case, imports=(fault,), off="left out") if fault else case
    assert entries_of(case, stand)[-1] == "as recorded"
    program = lay_down(script_of(case, "as recorded", "seeded", stand=stand), tmp_path, Redactor())
    own = os.environ | {"PYTHONPATH": str(PLANTED), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    codes = [
        subprocess.run([sys.executable, str(program), *flags], env=own, check=False, capture_output=True).returncode
        for flags in ([], [WITHOUT])
    ]
    assert codes == [verify.BUG if fault else verify.GONE, verify.GONE]
