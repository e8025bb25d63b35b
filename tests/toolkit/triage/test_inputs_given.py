"""What is said of a graph's inputs, when two graphs are the same, and that a command that waits says so."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

import graphdbg
from graphdbg.dumps.store import open_run
from graphdbg.toolkit.isolation import heartbeat
from graphdbg.toolkit.triage.run import candidates
from graphdbg.toolkit.verdicts.ladder_records import REAL, inputs_given


def _recorded(folder: Path, policy: str) -> Path:
    torch.compiler.reset()
    layer = torch.nn.Linear(3, 3)
    compiled = [
        torch.compile(item, backend="aot_eager")
        for item in (lambda x: layer(x).sin(), lambda x: layer(x).sin(), lambda x: layer(x).sin())
    ]
    with graphdbg.record(str(folder), inputs=policy):
        for function, requires_grad in zip(compiled, (False, False, True), strict=True):
            function(torch.ones(3, requires_grad=requires_grad))
    return folder


def test_a_parameter_without_its_bytes_is_synthesised(tmp_path: Path) -> None:
    for policy, real in (("index", False), ("first", True)):
        graph = next(
            graph for graph in open_run(_recorded(tmp_path / policy, policy)).graphs() if graph.stage == "dynamo"
        )
        assert (inputs_given(graph) == REAL) is real, inputs_given(graph)


def test_the_same_graph_has_the_same_requires_grad(tmp_path: Path) -> None:
    first, second, third = candidates(open_run(_recorded(tmp_path / "run", "index")), ())
    assert second.same_as == first.graph.id
    assert not third.same_as


def test_graphs_with_other_numbers_are_others(tmp_path: Path) -> None:
    torch.compiler.reset()
    steps = [
        torch.compile(item, backend="aot_eager")
        for item in (lambda x, by: x.sin() * by, lambda x, by: x.sin() * by, lambda x, by: x.sin() * by)
    ]
    with graphdbg.record(str(tmp_path / "run")):
        for function, by in zip(steps, (0.5, 0.5, 0.0), strict=True):
            function(torch.ones(3), torch.tensor(by))
    first, second, third = candidates(open_run(tmp_path / "run"), ())
    assert (second.same_as, third.same_as) == (first.graph.id, "")


ONE = {"path": "/r/pid1/graphs/0_0/forward", "rung": "inductor"}
TWO = {"before": "/r/pid1/graphs/0_0/pre_grad", "forward": "", "after": "/r/pid1/graphs/0_0/joint"}


@pytest.mark.parametrize(
    ("asked", "what"), [(ONE, "inductor of 0_0/forward"), (TWO, "comparing 0_0/joint with 0_0/pre_grad")]
)
def test_lines_come_while_it_waits(asked: dict[str, str], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    done = threading.Event()
    lines: list[str] = []

    def tell(text: str) -> None:
        lines.append(text)
        if len(lines) == 2:
            done.set()

    for begun in (True, False):
        ready = threading.Event()
        if begun:
            ready.set()
        with heartbeat.beating(tell):
            heartbeat.waited(done, ready, "package.task:run", asked, 300.0)
        done.clear()
        assert lines == [f"{what}: 0 s so far, 300 s at most" if begun else f"{heartbeat.STARTING}: 0 s so far"] * 2
        lines.clear()
