"""A wrong pass of the user's, set inside the script's main(), is named with the node that it rewrote; a right one is
not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdbg.dumps.store import open_run
from graphdbg.toolkit.isolation import opened
from graphdbg.toolkit.replaying.replay import How
from graphdbg.toolkit.stages import asking
from graphdbg.toolkit.stages.asking import judge_stages, pairs

PROGRAM = """
import torch
import torch._inductor.config as config
from torch._inductor.custom_graph_pass import CustomGraphPass

class Pass(CustomGraphPass):
    def __call__(self, graph):
        for node in list(graph.nodes):
            if node.op == "call_function" and node.target is {find}:
                {change}

    def uuid(self):
        return b"{hook}"

def f(x, w):
    h = torch.relu(x @ w)
    h = torch.nn.functional.dropout(h, 0.5)
    return (torch.tanh(h) - w.sum(0)).sum()

def main():
    config.{hook} = Pass()
    x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad={grad})
    out = torch.compile(f)(x, w)
    if {grad}:
        out.backward()

main()
"""
DROP = "node.replace_all_uses_with(node.args[0]); graph.erase_node(node)"
SWAP = "node.args = (node.args[1], node.args[0])"
SIGMOID = "node.target = torch.ops.aten.sigmoid.default"
TWICE = "node.args = (node.args[0], 2.5)"
ATEN = "torch.ops.aten."
ROWS = {
    "post-post": ("post_grad_custom_post_pass", ATEN + "tanh.default", SIGMOID, False, "tanh"),
    "joint-pre": ("joint_custom_pre_pass", ATEN + "relu.default", DROP, True, "relu"),
    "pre": ("pre_grad_custom_pass", "torch.tanh", "node.target = torch.sigmoid", False, "tanh"),
    "joint-post": ("joint_custom_post_pass", ATEN + "sub.Tensor", SWAP, False, "sub"),
    "post-pre": ("post_grad_custom_pre_pass", ATEN + "tanh.default", SIGMOID, True, "tanh"),
    "scale": ("post_grad_custom_post_pass", ATEN + "mul.Tensor", TWICE, True, "mul"),
    "right": ("post_grad_custom_post_pass", ATEN + "tanh.default", "pass", True, ""),
}


def test_a_backward_that_is_compiled_late_belongs_to_its_own_part() -> None:
    # DistributedDataParallel cuts a graph into parts, whose backwards are compiled last part first
    ids = ("joint", "forward", "joint.1", "forward.1", "backward.1", "post_grad_backward.1", "backward")
    graphs: list[Any] = [
        SimpleNamespace(process="p", local_id=f"0_0/{name}", stage=name.partition(".")[0], status="ran") for name in ids
    ]
    results = [[graph and graph.local_id.partition("/")[2] for graph in pair] for pair in pairs(graphs)]
    assert results == [
        ["joint.1", "backward.1", "forward.1"],
        ["backward.1", "post_grad_backward.1", None],
        ["joint", "backward", "forward"],
    ]


def test_after_stages_that_do_not_end_in_time_no_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answer = SimpleNamespace(status="timeout", answer=lambda: answer)
    monkeypatch.setattr(asking, "ask", lambda *given, **named: asked.append(given[0]) or answer)
    monkeypatch.setattr(asking, "passes", lambda graph: [])
    monkeypatch.setattr(asking, "comparable", lambda pair: True)
    graphs = [
        SimpleNamespace(id=f"0_0/{stage}", local_id=f"0_0/{stage}", stage=stage, status="ran", process="p", path=Path())
        for stage in ("dynamo", "pre_grad", "joint", "joint_passed")
    ]
    assert len(pairs(graphs)) > 1
    assert judge_stages(graphs, How(), None) is None and len(asked) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name if name in ("post-post", "right") else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]
)
def test_a_wrong_pass_is_named(tmp_path: Path, name: str) -> None:
    hook, find, change, grad, node = ROWS[name]
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.format(hook=hook, find=find, change=change, grad=grad))
    run = tmp_path / "run"
    subprocess.run([sys.executable, "-m", "graphdbg", "dump", "-o", str(run), str(script)], check=True, cwd=tmp_path)
    with opened(None) as server:
        result = judge_stages(open_run(run).graphs(), How(), server)
    if not node:
        assert result is None
        return
    assert result is not None
    verdict = result[1]
    assert (verdict.verdict, verdict.kind, verdict.fault) == ("fails", "wrong_numbers", "custom_pass")
    assert f"Pass in script.py:7 ({hook})" in verdict.reason
    assert verdict.where is not None
    assert verdict.where.node.startswith(node)
    assert verdict.where.line.startswith("script.py:")


EFFECTS = """
import torch

def f(x):
    # cholesky's check of its result is an effect, with a token
    return torch.linalg.cholesky(x @ x.t() + 3 * torch.eye(4)).sum()

torch.compile(f)(torch.randn(4, 6, requires_grad=True)).backward()
"""


@pytest.mark.long
def test_tokens_of_effects_end_in_the_forward(recorded_script: Callable[..., Path]) -> None:
    run = open_run(recorded_script(EFFECTS))
    if not any("with_effects" in node.target for node in run.graph("0_0/joint_passed").record.graph.nodes):
        pytest.skip("this torch makes no effect of the check")
    with opened(None) as server:
        assert judge_stages(run.graphs(), How(), server) is None


IN_PARTS = """
import os, tempfile, torch
from torch.nn.parallel import DistributedDataParallel

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x

torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/s", rank=0, world_size=1)
net = DistributedDataParallel(Net(), bucket_cap_mb=1)
torch.compile(net)(torch.randn(4, 512)).sum().backward()
torch.distributed.destroy_process_group()
"""


@pytest.mark.long
def test_a_graph_that_is_compiled_in_parts_is_right_and_its_inputs_keep_their_names(
    recorded_script: Callable[..., Path],
) -> None:
    run = open_run(recorded_script(IN_PARTS))
    joint = next(graph for graph in run.graphs() if graph.local_id.endswith("/joint.1"))
    first, *parameters = [item for item in joint.record.inputs if item.role != "tangent"]
    assert first.role == "unknown"  # what the part before it computes
    assert all(item.role == "parameter" and "['0']" not in item.source for item in parameters)
    with opened(None) as server:
        assert judge_stages(run.graphs(), How(), server) is None
