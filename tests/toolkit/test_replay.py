"""A recorded run, replayed: every stage is judged, compiles to the same code, and a planted change is seen."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from graphdbg.dumps import reading
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.store import SavedGraph, load_graph, open_run
from graphdbg.toolkit.commands.replay import rank
from graphdbg.toolkit.commands.replay import replay as command
from graphdbg.toolkit.compilers.get_inputs import get_inputs
from graphdbg.toolkit.isolation import JUDGING, ForkServer, raise_refusal
from graphdbg.toolkit.isolation.protocol import ChildError, TaskResult
from graphdbg.toolkit.live.how import How
from graphdbg.toolkit.replaying import fidelity
from graphdbg.toolkit.replaying.replay import dies_at, replay
from graphdbg.toolkit.verdicts.outcome import Outcome
from graphdbg.toolkit.verdicts.signature import Kind, Signature
from graphdbg.toolkit.verdicts.verdict import judged
from graphdbg.toolkit.verdicts.verdict_words import DRAWS

SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.25), torch.nn.Linear(16, 4))
compiled = torch.compile(model)
for batch in (4, 6):
    compiled(torch.randn(batch, 8)).square().mean().backward()
"""


NUMBERS = """
import torch
import torch._inductor.config as config

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.scale = torch.nn.LayerNorm(8), 0.125

    def forward(self, x):
        return self.norm(x) * self.scale

def broken(graph):
    raise RuntimeError("no such pass")

config.post_grad_custom_pre_pass = broken
with torch.no_grad():
    try:
        torch.compile(Net(), dynamic=True)(torch.randn(4, 8))
    except Exception as error:
        assert "no such pass" in str(error)
"""


@pytest.fixture(scope="module")
def recorded(recorded_script: Callable[..., Path]) -> Path:
    return recorded_script(SCRIPT)


@pytest.fixture(scope="module")
def server(warm_inductor_cache: Path) -> Iterator[ForkServer]:
    with ForkServer(warm_inductor_cache, threads=2, preload=JUDGING) as server:
        yield server


@pytest.mark.parametrize("stage", ["dynamo", "joint", "forward", "backward", "post_grad_backward"])
def test_a_stage_replays_to_the_same_code(recorded: Path, server: ForkServer, stage: str) -> None:
    outcome = replay(load_graph(recorded / "0_0" / stage), server=server, outputs=False)
    assert (outcome.ok, outcome.text) == (True, "ok")
    assert outcome.fidelity == "same"
    assert (DRAWS in outcome.notes) == (stage in ("dynamo", "joint"))  # the others draw as kernels do


@pytest.mark.long
@pytest.mark.parametrize("stage", ["joint", "joint_passed", "backward"])
def test_a_graph_that_saves_sizes_for_its_backward(recorded: Path, server: ForkServer, stage: str) -> None:
    saved = load_graph(recorded / "0_1" / stage)
    assert saved.record.symbols
    outcome = replay(saved, server=server, outputs=False)
    assert (outcome.ok, outcome.text, outcome.fidelity) == (True, "ok", "same")


def edit(path: Path, old: str, new: str) -> None:
    """Replaces the first `old` in a text of a run, which may be compressed."""
    result = reading.stored(path)
    assert result is not None
    text = reading.read(result).decode()
    assert old in text
    data = text.replace(old, new, 1).encode()
    result.write_bytes(gzip.compress(data) if result.suffix == reading.SUFFIX else data)


@pytest.mark.long
def test_a_planted_change_in_graph_or_code_is_seen(recorded: Path, server: ForkServer, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    saved = open_run(run).graph("0_0/forward")
    edit(saved.path / "code" / "output_code.py", "static_cast<float>(", "static_cast<float>(1 + ")
    result = replay(saved, server=server, outputs=False).fidelity
    assert result is not None
    assert result.startswith("different code of 0_0/forward")
    assert "1 + " in result
    edit(open_run(run).graph("0_0/post_grad_forward").path / "graph.json", "aten.relu.default", "aten.neg.default")
    result = replay(open_run(run).graph("0_0/forward"), server=server, outputs=False).fidelity
    assert result is not None
    assert result.startswith("different post-grad graph of 0_0/post_grad_forward")
    assert "-%" in result
    assert "aten.neg.default" in result


def test_outputs_come_back(recorded: Path, server: ForkServer) -> None:
    outcome = replay(load_graph(recorded / "0_0/forward"), rung="eager", server=server)
    assert outcome.outputs is not None
    assert tuple(outcome.outputs[0].shape) == (4, 4)
    assert outcome.fidelity is None


def test_another_seed_gives_other_inputs_and_the_same_seed_the_same(recorded: Path, server: ForkServer) -> None:
    import torch

    saved = load_graph(recorded / "0_0/forward")
    first, again, other = (replay(saved, rung="eager", seed=seed, server=server).outputs for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])


def test_a_wrong_rung_is_told_before_anything_starts(recorded: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean"):
        replay(load_graph(recorded / "0_0/forward"), rung="inducter")


def test_a_time_limit_is_a_hang(recorded: Path, server: ForkServer) -> None:
    outcome = replay(load_graph(recorded / "0_0/dynamo"), server=server, limit_s=0.05, outputs=False)
    assert not outcome.ok
    assert outcome.signature is not None
    assert outcome.signature.kind == "hang"


def test_a_refusal_in_the_child_is_the_users_error() -> None:
    with pytest.raises(UsageError, match="no such"):
        raise_refusal(TaskResult(1, "exception", error=ChildError("graphdbg.dumps.errors.UsageError", "no such graph")))


def test_the_command_ranks_a_run(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(command, [str(recorded), "--rung", "eager", "--json", "--full"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["graphs"]
    assert {row["id"] for row in rows} >= {"0_0/forward", "0_0/backward", "0_0/joint"}
    assert all(row["verdict"] == "ok" for row in rows)


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--rung", "eager"),
        ("triage", "--rungs", "eager"),
        pytest.param(("replay",), marks=pytest.mark.slow),
        pytest.param(("triage",), marks=pytest.mark.slow),
        pytest.param(("bisect",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_the_process_of_a_command_imports_no_torch(recorded: Path, words: tuple[str, ...]) -> None:
    """It would cost a second, beside the fork server's."""
    graph = str(recorded / "0_0/forward")
    code = (
        "import atexit, os, sys, graphdbg.cli\n"
        "atexit.register(lambda: 'torch' in sys.modules and os._exit(9))\n"
        "sys.exit(graphdbg.cli.run(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words, graph], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_the_command_tells_verdict_seconds_and_exit_code(recorded: Path) -> None:
    done = CliRunner().invoke(command, [str(recorded / "0_0/forward"), "--rung", "nop", "--limit", "120"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:3] == ["OK", "", "verdict    ok"]
    assert done.stdout.splitlines()[3].startswith("seconds ")


def test_failing_graphs_come_first() -> None:
    def one(
        name: str, kind: Kind | None, stage: str = "forward", size: float | None = None
    ) -> tuple[SavedGraph, Outcome]:
        signature = None if kind is None else Signature(kind, "compare", size=size)
        outcome = Outcome() if signature is None else Outcome(judged(signature), signature)
        return cast("SavedGraph", SimpleNamespace(id=name, stage=stage)), outcome

    rows = [
        one("fine", None),
        one("small", "accuracy", size=0.1),
        one("outer", "crash", "dynamo"),
        one("inner", "crash"),
        one("large", "accuracy", size=3.0),
        one("unknown", "error"),
    ]
    order = [saved.id for saved, _ in sorted(rows, key=rank)]
    assert order == ["inner", "outer", "large", "small", "unknown", "fine"]


def test_code_in_normal_form() -> None:
    source = """
# AOT ID: ['0_forward']
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
#include "/tmp/a/2r/c2rnilspx43ivnzu4uieul65kx65dfhfbptbh5og4wk6rqebuxoo.h"
// a comment
#pragma omp parallel num_threads(2)
    auto tmp1 = tmp0 + 1;
''')
call(cpp_fused_relu_0)
"""
    other = (
        source.replace("cpp_fused_relu_0", "cpp_fused_max_7")
        .replace("/tmp/a/", "/home/x/")
        .replace("['0_forward']", "['3_x']")
    )
    assert fidelity.code_lines(source) == fidelity.code_lines(other)
    assert fidelity.code_lines(source) != fidelity.code_lines(source.replace("+ 1", "+ 2"))
    assert fidelity.code_lines(source) != fidelity.code_lines(source.replace("num_threads(2)", "num_threads(3)"))


def test_floats_that_dynamo_hands_in_as_tensors_are_known_before_the_graph_runs(
    recorded_script: Callable[..., Path],
) -> None:
    run = recorded_script(NUMBERS)
    for graph in ("0_0/dynamo", "0_0_a1/inference"):
        given = [float(value) for value in get_inputs(run / graph) if getattr(value, "shape", None) == ()]
        assert 0.125 in given
        program = (load_graph(run / graph).path / "graph.py").read_text()
        assert all(f"'filled': {number}" in program for number in given)
        if graph.endswith("dynamo"):
            assert 1e-05 in given


def test_a_run_of_eagers_that_does_not_end_is_told_with_the_operator_that_it_came_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = {"node": "spin", "line": "net.py:8", "operator": "mine.spin.default"}
    asked: list[float] = []

    def ask(task: str, payload: object, limit_s: float, server: object) -> SimpleNamespace:
        asked.append(limit_s)
        return SimpleNamespace(end=lambda: TaskResult(0, "timeout", event=event))

    monkeypatch.setattr("graphdbg.toolkit.replaying.replay.ask", ask)
    seen = Signature("hang", "eager")
    how = cast(How, SimpleNamespace(payload=lambda saved: {}, limit_s=600.0))
    outcome = dies_at(cast(SavedGraph, None), how, cast(ForkServer, None), Outcome(judged(seen), seen, seconds=600.2))
    assert (outcome.verdict.verdict, outcome.verdict.where.line, asked) == ("cannot_tell", "net.py:8", [60.0])
    assert outcome.verdict.reason.endswith("it was at mine.spin.default, net.py:8 after 60 s")
