"""A long compile is looked at while it goes on: the pass and the stack, seldom; what has ended is not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from graphdbg.toolkit.recorder import session


def a_slow_pass(until: Any) -> None:
    limit = time.monotonic() + 20
    while not until() and time.monotonic() < limit:
        time.sleep(0.01)


def test_the_innermost_graph_is_noted_with_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FIRST_S", 0.1)
    noted: list[tuple[str, dict[str, Any]]] = []
    stacks = session.Stacks(lambda graph, **fields: noted.append((graph, fields)))
    for graph in ("0_0/dynamo", "0_0/forward"):
        stacks.event("compiling", graph)
    a_slow_pass(lambda: len(noted) > 1)
    for graph in ("0_0/forward", "0_0/dynamo"):
        stacks.event("compiled", graph)
    count = len(noted)
    time.sleep(0.4)
    assert len(noted) <= count + 1  # one may have been on its way
    assert {graph for graph, _ in noted} == {"0_0/forward"}
    assert any("a_slow_pass, " in line for line in noted[0][1]["stack"])
    assert 0.1 <= noted[0][1]["after"] <= noted[1][1]["after"]
