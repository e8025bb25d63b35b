"""Wrong passes of the user's that are harder to see, a wrong decomposition and a wrong partition are named with the
node and the line, without their code; the same programs with nothing wrong in them are not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.store import open_run
from graphdbg.toolkit.isolation import opened
from graphdbg.toolkit.isolation.imports import TRUST, with_trust
from graphdbg.toolkit.replaying.replay import How, replay
from graphdbg.toolkit.stages.asking import judge_stages
from graphdbg.toolkit.triage.run import triage_run
from graphdbg.toolkit.verdicts.own_passes import WITHOUT
from graphdbg.toolkit.verdicts.verdict import Verdict
from graphdbg.toolkit.verdicts.verdict_words import all_known

PASS = """
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

class Mine(CustomGraphPass):
    def __call__(self, graph):
        for node in list(graph.nodes):
            if node.op == "call_function" and {when}:
                {change}

    def uuid(self):
        return b"mine"
"""
PROGRAM = """
import torch._inductor.config as config
from torch.nn import functional as F

def f(x, w):
    h = F.layer_norm(x @ w, (8,))
    h = torch.tanh(h)
    return (h * w.sum(0)).sum(1)

def main():
    {setting}
    torch.manual_seed(0)
    x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad={grad})
    out = torch.compile(f{how})(x, w)
    if {grad}:
        out.sum().backward()

main()
"""
ATEN = "node.target is torch.ops.aten."
HALF = (
    "with graph.inserting_before(node): half = graph.call_function(torch.ops.prims.convert_element_type.default, "
    "(node.args[0], torch.float16)); node.args = (graph.call_function(torch.ops.prims.convert_element_type.default, "
    "(half, torch.float32)),)"
)
FLIP = (
    "with graph.inserting_before(node): flipped = graph.call_function(torch.ops.aten.permute.default, "
    "(node.args[1], [1, 0])); "
    "flipped.meta = dict(node.args[1].meta); node.args = (node.args[0], flipped)"
)
EPS = ATEN + "add.Tensor and node.args[1] == 1e-05"
DYNAMIC = ATEN + "tanh.default and any(isinstance(size, torch.SymInt) for size in node.meta['val'].shape)"
BACKWARD = ATEN + "sub.Tensor and any(one.name.startswith('tangents') for one in graph.nodes)"
SIGMOID = "node.target = torch.ops.aten.sigmoid.default"
ROWS = {
    "cast": ("post_grad_custom_pre_pass", ATEN + "tanh.default", HALF, False, "", "tanh"),
    "transposed": (
        "joint_custom_pre_pass",
        ATEN + "mm.default and node.args[1].op == 'placeholder'",
        FLIP,
        True,
        "",
        "mm",
    ),
    "eps": ("joint_custom_post_pass", EPS, "node.args = (node.args[0], 1e-01)", False, "", "add"),
    "dynamic": ("post_grad_custom_post_pass", DYNAMIC, SIGMOID, False, ", dynamic=True", "tanh"),
    "backward": ("post_grad_custom_post_pass", BACKWARD, "node.args = (node.args[1], node.args[0])", True, "", "sub"),
    "imported": ("pre_grad_custom_pass", "node.target is torch.tanh", "node.target = torch.sigmoid", False, "", "h"),
    "static": ("post_grad_custom_post_pass", DYNAMIC, SIGMOID, False, ", dynamic=False", ""),
}


def dumped(script: Path, text: str, *, ends_well: bool = True) -> Path:
    script.write_text(text)
    run = script.parent / "run"
    subprocess.run(
        [sys.executable, "-m", "graphdbg", "dump", "-o", str(run), str(script)], check=ends_well, cwd=script.parent
    )
    return run


def found(run: Path, how: How = How()) -> Verdict | None:  # noqa: B008
    with opened(None) as server:
        parted = judge_stages(open_run(run).graphs(), how, server)
    return parted[1] if parted else None


def rows(quick: str, names: Iterable[str]) -> list[Any]:
    """The names, all but one slow: each row is a recording of its own."""
    return [name if name == quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.long
@pytest.mark.parametrize("name", rows("cast", ROWS))
def test_a_wrong_pass_is_named(tmp_path: Path, name: str) -> None:
    hook, when, change, grad, how, node = ROWS[name]
    text, home = PASS.format(when=when, change=change), "script.py"
    program = PROGRAM.format(setting=f"config.{hook} = Mine()", grad=grad, how=how)
    if name == "imported":
        home = "my_passes.py"
        (tmp_path / home).write_text(text)
        text = "import torch\nfrom my_passes import Mine\n"
    run = dumped(tmp_path / "script.py", text + program)
    began = time.monotonic()
    triaged = triage_run(open_run(run))
    judged = triaged.verdict
    assert time.monotonic() - began < 30
    if not node:
        assert found(run) is None
        return
    assert (judged.verdict, judged.kind, judged.fault) == ("fails", "wrong_numbers", "custom_pass"), judged.reason
    assert f"Mine in {home}:6 ({hook})" in judged.reason
    assert judged.where is not None
    assert judged.where.node.startswith(node)
    kept = list(all_known(open_run(run), [(row.id, row.verdict) for row in triaged.graphs]))
    assert f"/{kept[0]} " in f"{judged.minify} "  # what `minify` of the run takes
    assert judged.where.graph.endswith(kept[1])
    where = (text + program).splitlines().index(next(line for line in program.splitlines() if WORDS[node] in line)) + 1
    assert judged.where.line == f"script.py:{where}"


@pytest.mark.slow
def test_a_pass_by_which_the_compile_fails_is_at_fault(tmp_path: Path) -> None:
    text = PASS.format(when=ATEN + "tanh.default", change="raise RuntimeError('no tanh here')")
    program = PROGRAM.format(setting="config.post_grad_custom_pre_pass = Mine()", grad=False, how="")
    saved = open_run(dumped(tmp_path / "script.py", text + program, ends_well=False)).graph("0_0/inference")
    alone = replay(saved, outputs=False).verdict
    assert (alone.verdict, alone.detail) == ("cannot_tell", WITHOUT)
    assert alone.next == [f"graphdbg triage {saved.name} --trust"]
    judged = replay(saved, outputs=False, imports=with_trust((), True)).verdict
    assert (judged.verdict, judged.kind, judged.fault) == ("fails", "crash", "custom_pass"), judged.reason
    assert judged.where is not None
    assert (judged.where.node, judged.where.line) == ("Mine", "script.py:6")


WORDS = {"tanh": "tanh", "h": "tanh", "mm": "x @ w", "add": "x @ w", "sub": "x @ w"}
"""Node -> what the line of the program has."""


OPERATOR = """
@torch.library.custom_op("acme::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5

@half.register_fake
def _(x):
    return torch.empty_like(x)
"""


@pytest.mark.slow
def test_a_wrong_pass_is_named_beside_an_operator(tmp_path: Path) -> None:
    program = PROGRAM.format(setting="config.post_grad_custom_post_pass = Mine()", grad=False, how="")
    program = program.replace("torch.tanh(h)", "half(torch.tanh(h))")
    text = PASS.format(when=f"{ATEN}tanh.default", change=SIGMOID) + OPERATOR + program
    run = dumped(tmp_path / "script.py", text)
    assert found(run) is None  # the operator is missing
    judged = found(run, How(imports=(TRUST,)))
    assert judged is not None
    assert judged.fault == "custom_pass"
    replayed = replay(open_run(run).graph("0_0/inference"), imports=(TRUST,), outputs=False).verdict
    assert (replayed.kind, replayed.fault) == ("wrong_numbers", "custom_pass"), replayed.reason
    assert "right without the run's own pass Mine in script.py:6" in replayed.reason


DECOMPOSITION = """
import torch
from torch._inductor.decomposition import decompositions, register_decomposition

def main():
    decompositions.pop(torch.ops.aten.{op}.default, None)

    @register_decomposition([torch.ops.aten.{op}.default])
    def mine({arguments}):
        return {body}

    m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.SiLU(), torch.nn.Linear(8, 3))

    def step(x):
        y = torch.nn.functional.hardswish(x)
        y = m(y)
        return (y ** 2).mean()

    torch.compile(step)(torch.randn(4, 8)).backward()

main()
"""
SILU = "g * (s := torch.sigmoid(x)) * (1 + x * ({one} - s))"
HARDSWISH = "x * torch.clamp(x + 3, 0, 6) / {six}"
DECOMPOSITIONS = {
    "forward": ("hardswish", "x", HARDSWISH.format(six=5), 15),
    "backward": ("silu_backward", "g, x", SILU.format(one=2), 16),
    "right": ("silu_backward", "g, x", SILU.format(one=1), 0),
}


@pytest.mark.long
@pytest.mark.parametrize("name", rows("backward", DECOMPOSITIONS))
def test_a_wrong_decomposition_is_named(tmp_path: Path, name: str) -> None:
    op, arguments, body, line = DECOMPOSITIONS[name]
    run = dumped(tmp_path / "script.py", DECOMPOSITION.format(op=op, arguments=arguments, body=body))
    judged = found(run)
    if not line:
        assert judged is None
        return
    assert judged is not None
    assert (judged.verdict, judged.kind, judged.fault) == ("fails", "wrong_numbers", "custom_pass"), judged.reason
    assert f"the decomposition of aten.{op}.default, main.<locals>.mine in script.py:8, registered" in judged.reason
    assert judged.where is not None
    assert judged.where.line == f"script.py:{line}"


PARTITION = """
import torch
import torch._inductor.config as config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn

class Cheap(CustomPartitionerFn):
    def __call__(self, gm, joint_inputs, **options):
        halves = min_cut_rematerialization_partition(gm, joint_inputs, **options)
        for node in halves[{half}].graph.find_nodes(op="call_function", target=torch.ops.aten.{op}):
            {change}
        return halves

    def uuid(self):
        return b"cheap"

def main():
    config.custom_partitioner_fn = Cheap()
    m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

    def step(x):
        y = torch.sin(m(x)) * torch.cos(x).sum()
        return (y ** 2).mean()

    torch.compile(step)(torch.randn(4, 8)).backward()

main()
"""
PARTITIONS = {
    "backward": (1, "mul.Tensor", "node.args = (node.args[0], node.args[0])"),
    "forward": (0, "sin.default", "node.target = torch.ops.aten.cos.default"),
    "right": (0, "sin.default", "pass"),
}


@pytest.mark.parametrize("name", rows("", PARTITIONS))
def test_a_wrong_partition_is_named(tmp_path: Path, name: str) -> None:
    half, op, change = PARTITIONS[name]
    judged = found(dumped(tmp_path / "script.py", PARTITION.format(half=half, op=op, change=change)))
    if change == "pass":
        assert judged is None
        return
    assert judged is not None
    assert (judged.verdict, judged.fault) == ("fails", "custom_pass")
    assert "Cheap in script.py:8 (custom_partitioner_fn)" in judged.reason
    assert judged.where is not None
    assert judged.where.node.startswith(op.partition(".")[0])
    assert judged.where.graph == f"0_0/{name}"
    assert judged.where.line.startswith("script.py:2")
