"""What makes a failure go away: the change that is named works, and the least costly is tried first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from graphdbg.dumps.store import load_graph, open_run
from graphdbg.toolkit.blame.bisect_narrowing import operators
from graphdbg.toolkit.blame.bisect_records import Application
from graphdbg.toolkit.blame.uncompiled import Uncompiled, functions
from graphdbg.toolkit.isolation import JUDGING, ForkServer
from graphdbg.toolkit.live.case import Case
from graphdbg.toolkit.live.eager import copy_graph
from graphdbg.toolkit.live.rung import Around
from graphdbg.toolkit.replaying.replay import How
from graphdbg.toolkit.triage.ladder import eased, triage
from graphdbg.toolkit.triage.run import triage_run
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import Where, fails, judged

PLANTED = Path(__file__).resolve().parents[2] / "planted"
TRIP = """
import torch
torch.manual_seed(0)
torch.compile(lambda x, w: ((x @ w).half().float() * 3 - 1).sin())(torch.randn(8, 8), torch.randn(8, 8))
"""
GELU = """
import torch
from torch import nn

def act(x):
    return nn.functional.gelu(x)

class Mine(nn.Module):
    def forward(self, x):
        return act(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.act, self.last = nn.Linear(8, 16), ACT, nn.Linear(16, 8)
    def forward(self, x):
        return self.last(self.act(self.inner(x)))

torch.manual_seed(0)
torch.compile(Net())(torch.randn(4, 8)).sum().backward()
"""
NET = """
import torch
torch.manual_seed(0)
with torch.no_grad():
    torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.ReLU()))(torch.randn(4, 8))
"""


@pytest.fixture(scope="module")
def server(warm_inductor_cache: Path) -> Iterator[ForkServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLANTED))
        with ForkServer(warm_inductor_cache, threads=2, preload=JUDGING) as server:
            yield server


@pytest.mark.slow
def test_a_rounding_has_the_operator_and_the_setting(recorded_script: Callable[..., Path], server: ForkServer) -> None:
    result = triage_run(open_run(recorded_script(TRIP, inputs="first")), server=server)
    assert (result.verdict.verdict, result.verdict.exit_code) == ("rounding", 0)
    assert result.verdict.workaround == (
        "import torch._inductor.config\ntorch._inductor.config.emulate_precision_casts = True"
    )
    assert result.verdict.where is not None
    assert result.verdict.where.line.endswith(":4")
    assert result.verdict.next[0].endswith("--check rounding")


@pytest.mark.slow  # test_by_node verifies such a work-around
def test_a_wrong_lowering_is_left_to_eager(recorded_script: Callable[..., Path], server: ForkServer) -> None:
    saved = load_graph(recorded_script(NET, inputs="first") / "0_0/inference")
    result = triage(saved, imports=["planted_lowering"], server=server)
    assert (result.verdict.verdict, result.verdict.fault) == ("fails", "compiler")
    assert "make_fallback(torch.ops.aten.tanh.default" in (result.verdict.workaround or "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("written", "name", "nodes"),
    [("torch.nn.GELU()", "torch.nn.modules.activation.GELU", ["gelu"]), ("Mine()", "act (train.py)", ["gelu"])],
)
def test_the_function_of_a_node(
    written: str, name: str, nodes: list[str], recorded_script: Callable[..., Path]
) -> None:
    from graphdbg.toolkit.rungs import rung

    saved = load_graph(recorded_script(GELU.replace("ACT", written), inputs="first") / "0_0/dynamo")
    (result,) = functions(saved, ["gelu", "gelu"])
    assert (result.name, result.nodes) == (name, nodes)
    case = Case.at(saved.path).live(seed=0)
    asked: list[list[str]] = []

    class Seen(Around):
        def build(self, gm: Any, fake_inputs: Any, spec: Any) -> Any:
            asked.append([node.name for node in gm.graph.nodes if node.op == "call_function"])
            return self.inner.build(gm, fake_inputs, spec)

    compiled = Uncompiled(Seen(rung("nop")), result.nodes).build(copy_graph(case.gm), case.inputs, case.spec)
    assert torch.equal(compiled([*case.inputs])[0], case.gm(*case.inputs)[0])
    assert asked == [["linear"], ["linear"]]


@pytest.mark.slow
@pytest.mark.parametrize("written", ["torch.nn.GELU()", "Mine()"])
def test_one_function_is_left_uncompiled(
    written: str, recorded_script: Callable[..., Path], server: ForkServer, tmp_path: Path
) -> None:
    script = GELU.replace("ACT", written)
    saved = load_graph(recorded_script(script, inputs="first") / "0_0/dynamo")
    result = triage(saved, imports=["planted_pre_grad_crash"], server=server)
    lines = result.verdict.workaround or ""
    if written == "Mine()":
        assert lines.startswith("# @torch.compiler.disable above `def act` of ")
        pasted = script.replace("def act", "@torch.compiler.disable\ndef act")
        assert lines.endswith('set_stance("force_eager")')
    else:
        path = "torch.nn.modules.activation.GELU.forward"
        pasted = f"{lines}\n{script}"
        assert lines == f"import torch\n{path} = torch.compiler.disable({path})"
    for text, code in ((script, 1), (pasted, 0), (f"{lines}\n{script}", 0)):
        ran = subprocess.run(
            [sys.executable, "-c", f"import planted_pre_grad_crash\n{text}"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PLANTED)},
        )
        assert ran.returncode == code, ran.stderr


def test_what_would_take_long_is_named_and_not_done(recorded_script: Callable[..., Path], server: ForkServer) -> None:
    saved = load_graph(recorded_script(NET, inputs="first") / "0_0/inference")
    record = judged(Signature("crash", "compile"), "inductor")
    result = eased(saved, server, How(), record, 60.0, 600.0)
    assert (result.workaround, result.next[-1].endswith("--workaround")) == (None, True)
    model = fails("nan", "eager", "")
    assert eased(saved, server, How(), model, 0.0, 600.0) is model


def test_the_operator_that_is_named_is_tried_first() -> None:
    class Log:
        def applications(self, subsystem: str) -> list[Application]:
            if subsystem == "decomposition":
                return [Application(subsystem, name="aten.ldexp.Tensor")]
            names = (("aten.mul.Tensor", "mul"), ("aten.amin.default", "amin"), ("aten.add.Tensor", "add_1"))
            return [Application(subsystem, name=name, label=label) for name, label in names]

    wrong = fails("wrong_numbers", "inductor", "", Where("amin"))
    assert operators(Log(), wrong)[0] == "aten.amin.default"  # type: ignore[arg-type]
    crash = fails("crash", "inductor", "", Where("mul"))
    assert operators(Log(), crash)[:2] == ["aten.add.Tensor", "aten.mul.Tensor"]  # type: ignore[arg-type]
    taken_apart = fails("metadata", "inductor", "", Where("ldexp"))
    assert operators(Log(), taken_apart)[0] == "aten.ldexp.Tensor"  # type: ignore[arg-type]
