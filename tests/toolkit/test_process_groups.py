"""Graphs with collectives: their groups are recorded, and made again where the graph is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as distributed
import torch.distributed._functional_collectives as funcol

import graphdbg
from graphdbg.dumps.errors import EnvironmentLackError
from graphdbg.toolkit.capture import inference_graph
from graphdbg.toolkit.live.case import Case
from graphdbg.toolkit.live.eager import run_graph
from graphdbg.toolkit.live.process_groups import groups_of, join, peers

TWO = """
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as funcol
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
f = lambda x: funcol.all_reduce(x * 2, "sum", dist.group.WORLD).sin()
with torch.no_grad():
    print(torch.compile(f, backend="aot_eager")(torch.randn(3)).tolist())
dist.destroy_process_group()
"""


def python(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def alone() -> Iterator[None]:
    """No process group before, none after."""
    assert not distributed.is_initialized()
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_groups_of_one_rank_are_made_by_their_names(tmp_path: Path) -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    own, all_ranks = distributed.new_group([0]), distributed.group.WORLD
    x = torch.arange(4.0).reshape(2, 2)
    captured = inference_graph(
        lambda x: funcol.all_reduce(funcol.all_gather_tensor(x, 0, own) * 2, "sum", all_ranks), (x,)
    )
    captured.save(tmp_path / "case")
    distributed.destroy_process_group()

    saved = graphdbg.load_graph(tmp_path / "case")
    groups = groups_of(saved.record)
    assert len(groups) == 2
    assert all(group == {"backend": "gloo", "ranks": [0], "rank": 0, "world_size": 1} for group in groups.values())
    case = Case(saved).live(seed=0)
    (result,) = run_graph(case.gm, case.inputs)
    assert torch.equal(result, x * 2)
    graphdbg.save_graph(case.gm, case.inputs, tmp_path / "again")
    assert groups_of(graphdbg.load_graph(tmp_path / "again").record) == groups


@pytest.mark.slow
def test_the_graphs_of_two_ranks_are_replayed_together(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    dump = ["-m", "graphdbg", "dump", "-o", "run", "--inputs", "first", "--"]
    python(tmp_path, *dump, "torchrun", "--standalone", "--nproc-per-node=2", "two.py")
    saved = graphdbg.open_run(tmp_path / "run").graph("1:0_0/inference")
    assert [peer.id for peer in peers(saved)] == ["0:0_0/inference"]
    outcome = graphdbg.replay(saved, rung="eager")
    assert outcome.ok and outcome.notes == ["replayed together with the graphs of 1 other rank"]
    sums = [graphdbg.open_run(tmp_path / "run").graph(f"{rank}:0_0/inference").inputs()[0] * 2 for rank in (0, 1)]
    assert outcome.outputs is not None and outcome.outputs[0].equal((sums[0] + sums[1]).sin())
    with pytest.raises(EnvironmentLackError, match="communicates with 1 other rank"):
        join(saved.record)
