"""Each rung of Inductor enters at the stage where a graph was recorded: on a real run, what lies before is not run
again."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.store import open_run
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Case

SCRIPT = """
import sys, torch
device = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(device)
compiled = torch.compile(model)
compiled(torch.randn(4, 8, device=device)).square().mean().backward()
with torch.no_grad():
    compiled(torch.randn(4, 8, device=device))
"""

TRAINING, INFERENCE = "0_0", "0_1"
ENTERS: dict[str, str] = {
    f"{TRAINING}/dynamo": "pre_grad capture joint partition post_grad post_grad lower lower",
    f"{TRAINING}/pre_grad": "capture joint partition post_grad post_grad lower lower",
    f"{TRAINING}/joint": "joint partition post_grad post_grad lower lower",
    f"{TRAINING}/joint_passed": "partition post_grad post_grad lower lower",
    f"{TRAINING}/forward": "post_grad lower",
    f"{TRAINING}/backward": "post_grad lower",
    f"{TRAINING}/post_grad_forward": "lower",
    f"{TRAINING}/post_grad_backward": "lower",
    f"{INFERENCE}/dynamo": "pre_grad capture joint post_grad lower",
    f"{INFERENCE}/pre_grad": "capture joint post_grad lower",
    f"{INFERENCE}/inference": "joint post_grad lower",
    f"{INFERENCE}/joint_passed": "post_grad lower",
    f"{INFERENCE}/post_grad_inference": "lower",
}
"""Recorded graph -> the stages that run for it."""
WHOLE = [graph for graph, stages in ENTERS.items() if "capture" in stages]
"""Those that go through AOTAutograd, which takes longest."""
PASSES = ("pre_grad", "joint")
"""What `inductor_nofuse` leaves out."""


def record(folder: Path, device: str) -> Path:
    (folder / "train.py").write_text(SCRIPT)
    subprocess.run(
        [sys.executable, "-m", "graphdbg", "dump", "-o", "run", "train.py", device],
        cwd=folder,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return folder / "run"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("entering"), "cpu")


@pytest.fixture(scope="module")
def recorded_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("entering_gpu"), "cuda")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often torch's function at the heart of each stage ran, whoever called it."""
    import functorch.compile
    from torch._dynamo.backends import common
    from torch._inductor import compile_fx as stock
    from torch._inductor.graph import GraphLowering

    from graphdbg.toolkit import torch_private as t

    counted: Counter[str] = Counter()

    def spy(stage: str, name: str, *owners: Any) -> None:
        for owner in {id(owner): owner for owner in owners if hasattr(owner, name)}.values():
            usual = getattr(owner, name)

            @functools.wraps(usual)
            def counting(*args: Any, _usual: Any = usual, **kwargs: Any) -> Any:
                counted[stage] += 1
                return _usual(*args, **kwargs)

            monkeypatch.setattr(owner, name, counting)

    spy("pre_grad", "pre_grad_passes", stock, t.home("pre_grad_passes")[0])
    spy("capture", "aot_module_simplified", common)
    spy("joint", "joint_graph_passes", stock, t.home("joint_graph_passes")[0])
    spy("partition", "min_cut_rematerialization_partition", stock, functorch.compile)
    spy("post_grad", "post_grad_passes", stock, t.home("post_grad_passes")[0])
    spy("lower", "run", GraphLowering)
    return counted


def check(run: Path, graph: str, rung: str, ran: Counter[str]) -> None:
    case = Case.at(run / graph).live(seed=0)
    ran.clear()
    outcome = judge(case, rung)
    assert outcome.text == "ok", outcome
    wanted = Counter(ENTERS[graph].split())
    if rung == "inductor_nofuse":
        wanted -= Counter(dict.fromkeys(PASSES, 9))
    assert ran == wanted


@pytest.mark.slow
def test_every_recorded_stage_is_in_the_table(recorded: Path) -> None:
    assert {saved.id for saved in open_run(recorded).graphs()} == set(ENTERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph", [pytest.param(enter, marks=pytest.mark.slow) if enter in WHOLE else enter for enter in ENTERS]
)
def test_without_fusion(recorded: Path, graph: str, ran: Counter[str]) -> None:
    check(recorded, graph, "inductor_nofuse", ran)


def check_ahead_of_time(run: Path, graph: str, ran: Counter[str]) -> None:
    """Every graph is taken as an inference graph; what a replay trains is not taken."""
    case = Case.at(run / graph).live(seed=0)
    ran.clear()
    outcome = judge(case, "aot_inductor")
    if graph in (f"{TRAINING}/dynamo", f"{TRAINING}/pre_grad"):
        assert "compiles no backward" in outcome.text, outcome
    else:
        assert outcome.text == "ok", outcome
        assert "traced again" in outcome.notes[0] and ran["lower"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("graph", ENTERS)
def test_ahead_of_time(recorded: Path, graph: str, ran: Counter[str]) -> None:
    check_ahead_of_time(recorded, graph, ran)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ENTERS)
def test_with_cuda_graphs(recorded_gpu: Path, graph: str, ran: Counter[str]) -> None:
    check(recorded_gpu, graph, "inductor_cudagraphs", ran)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [f"{TRAINING}/joint", f"{TRAINING}/backward", f"{INFERENCE}/dynamo"])
def test_ahead_of_time_on_a_gpu(recorded_gpu: Path, graph: str, ran: Counter[str]) -> None:
    check_ahead_of_time(recorded_gpu, graph, ran)
