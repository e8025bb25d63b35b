"""`graphdbg.assert_graphs`: what it counts, what it says, and that caches change no number."""

from __future__ import annotations

import functools

import pytest
import torch

import graphdbg
from graphdbg.dumps.store import open_run
from graphdbg.toolkit.recorder.asserting import counting

compiled = functools.partial(torch.compile, backend="eager")


@pytest.fixture(autouse=True)
def kept_runs(tmp_path, monkeypatch):
    """Where the runs of what differs stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def broken(x):
    y = x.sin()
    print("here")
    return y + 1


def sized(x):
    return x.cos() * 2


def said(*args, **options) -> str:
    with pytest.raises(AssertionError) as caught:
        graphdbg.assert_graphs(*args, **options)
    return str(caught.value)


def test_one_graph_is_as_it_should_be_also_the_second_time() -> None:
    function = compiled(sized)
    for _ in range(2):
        assert torch.equal(graphdbg.assert_graphs(function, torch.ones(3)), sized(torch.ones(3)))


def test_a_break_is_told_with_its_line_and_reason_and_a_command_that_works(tmp_path) -> None:
    reported = said(compiled(broken), torch.ones(3))
    assert reported.startswith("broken compiled to 1 graph break, not 0; 2 graphs, not 1\n")
    assert f'test_asserting.py:{broken.__code__.co_firstlineno + 2}: print("here"): ' in reported
    run = reported.partition("graphdbg ls ")[2].partition(" --why")[0]
    assert len(open_run(run).rows) >= 2
    assert "if this is intended: breaks=1, graphs=2" in reported
    graphdbg.assert_graphs(compiled(broken), torch.ones(3), breaks=1, graphs=2)


def test_recompiles_of_later_calls_are_told_with_their_guard() -> None:
    more = [(torch.ones(5),), (torch.ones(7),)]
    reported = said(compiled(sized), torch.ones(3), then=more)
    assert "1 recompile, not 0" in reported and "x.size()[0] was 3, is now 5" in reported and "graph," not in reported
    graphdbg.assert_graphs(compiled(sized), torch.ones(3), then=more, recompiles=1)
    graphdbg.assert_graphs(compiled(sized), torch.ones(3), then=more, recompiles=None)


def test_what_compiles_nothing_and_what_raises() -> None:
    assert "0 graphs, not 1" in said(compiled(lambda x: 3), torch.ones(3))
    with pytest.raises(ZeroDivisionError):
        graphdbg.assert_graphs(lambda x: 1 / 0, torch.ones(3), as_is=True)


@pytest.mark.slow
def test_kernels_are_those_of_forward_and_backward_whatever_the_caches_hold(warm_inductor_cache) -> None:
    def step(x):
        torch.compile(sized)(x).sum().backward()

    for _ in range(2):
        reported = said(step, torch.ones(3, requires_grad=True), as_is=True, kernels=9)
        assert reported.startswith("test_kernels") and "2 kernels, not 9" in reported
        assert " of 0_0/forward" in reported and " of 0_0/backward" in reported


def test_a_counting_around_it_counts_what_is_compiled_in_it() -> None:
    with counting() as counts:
        graphdbg.assert_graphs(compiled(sized), torch.ones(3))
        compiled(broken)(torch.ones(3))
    assert counts.numbers() == {"breaks": 1, "recompiles": 0, "graphs": 3, "nodes": 10, "kernels": 0}
    assert not counts.run.exists()


def test_graphs_of_the_programs_own_pipeline_are_no_compiles() -> None:
    with counting() as counts:
        graphdbg.observe(torch.fx.symbolic_trace(lambda x: x + 1), stage="mine")
    assert not any(counts.numbers().values())
