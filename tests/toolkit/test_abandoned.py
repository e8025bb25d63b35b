"""What Dynamo starts over or leaves to eager is no failure: it is counted, and by its id it is cannot_tell with that
reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphdbg.dumps.store import load_graph, open_run
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.replaying.replay import replay
from graphdbg.toolkit.triage.ladder import triage
from graphdbg.toolkit.triage.run import triage_run

SCRIPT = """
import torch

@torch.compile
def at(x, i):
    return x[i] + 1

@torch.compile
def scaled(x, factor):
    return (x * factor).sum()

at(torch.randn(4, 4), torch.tensor(2))
for step in range(3):
    scaled(torch.randn(3), 0.5**step)
"""


@pytest.fixture(scope="module")
def server(warm_inductor_cache: Path) -> Iterator[ForkServer]:
    with ForkServer(warm_inductor_cache, threads=2) as server:
        yield server


@pytest.mark.long
def test_graphs_that_dynamo_gave_up_are_left_out_and_counted(
    recorded_script: Callable[..., Path], server: ForkServer
) -> None:
    run = open_run(recorded_script(SCRIPT))
    assert [graph.id for graph in run.graphs() if graph.status == "skipped"][:2] == ["0_0/dynamo", "0_0/pre_grad"]
    result = triage_run(run, server=server)
    assert (result.verdict.verdict, result.verdict.exit_code) == ("ok", 0), result.summary
    assert "2 graphs that Dynamo abandoned" in result.summary
    given_up = triage(load_graph(run.path / "0_0/dynamo"), server=server)
    assert (given_up.verdict.exit_code, "Dynamo abandoned this graph" in given_up.verdict.reason) == (4, True)
    kept = next(graph for graph in run.graphs() if graph.id == "1_1/dynamo")  # a float that is a symbol from now on
    assert replay(kept, outputs=False, server=server).ok
