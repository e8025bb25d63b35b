"""The search by cuts on made-up graphs: faults of one node, of a pattern, damped ones, many at once; and its cost."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from graphdbg.toolkit.blame import node_asking
from graphdbg.toolkit.blame.bisect_records import Clock
from graphdbg.toolkit.blame.node_asking import Narrowing, NodeBlame, Spent


class Chain:
    """A chain of atoms. A fault is a set of atoms that must be compiled together; its last one is wrong, and so is the
    end of what is compiled, unless that is an atom that damps.
    """

    def __init__(self, size: int, faults: list[set[int]], damped: set[int] = frozenset(), most: int = 10_000) -> None:  # type: ignore[assignment]
        self.size, self.faults, self.damped, self.most = size, faults, damped, most
        self.asked = 0

    def ancestors(self, atom: int) -> set[int]:
        return set(range(atom))

    def descendants(self, atom: int) -> set[int]:
        return set(range(atom + 1, self.size))

    def ask(self, keep: list[int]) -> list[int] | None:
        if self.asked >= self.most:
            raise Spent
        self.asked += 1
        there = set(keep)
        active = [max(fault) for fault in self.faults if fault <= there]
        last = keep[-1]
        seen = [at for at in active if not (last in self.damped and last > at)]
        return [last] if seen else None


@pytest.mark.parametrize("seed", range(20))
def test_one_node_is_found_within_the_bound(seed: int) -> None:
    size = random.Random(seed).randint(400, 1500)
    at = random.Random(seed + 100).randrange(size)
    chain = Chain(size, [{at}])
    narrowing = Narrowing(range(size), chain.ask, chain.ancestors, chain.descendants)
    assert narrowing.run()
    assert narrowing.window == [at]
    assert chain.asked <= 2 * math.log2(size) + 2


@pytest.mark.parametrize("seed", range(20))
def test_a_pattern_is_the_window(seed: int) -> None:
    rng = random.Random(seed)
    size, at = rng.randint(400, 1500), rng.randint(20, 380)
    chain = Chain(size, [{at, at + rng.randint(1, 6)}])
    narrowing = Narrowing(range(size), chain.ask, chain.ancestors, chain.descendants)
    assert narrowing.run()
    assert narrowing.window[0] == at
    assert narrowing.window[-1] == max(chain.faults[0])
    assert chain.asked <= 2 * math.log2(size) + 2


def test_of_many_faults_the_search_ends_at_one() -> None:
    faults = [{at, at + 1} for at in range(10, 500, 40)]
    chain = Chain(512, faults)
    narrowing = Narrowing(range(512), chain.ask, chain.ancestors, chain.descendants)
    assert narrowing.run()
    assert set(narrowing.window) == faults[0]


def test_a_fault_that_is_damped_for_a_while_is_found_by_its_start() -> None:
    chain = Chain(512, [{100}], damped=set(range(105, 300)))
    narrowing = Narrowing(range(512), chain.ask, chain.ancestors, chain.descendants)
    assert narrowing.run()
    assert narrowing.window[0] == 100


def test_what_was_found_stands_when_compiles_run_out() -> None:
    chain = Chain(512, [{77}], most=10)
    narrowing = Narrowing(range(512), chain.ask, chain.ancestors, chain.descendants)
    assert not narrowing.run()
    assert 77 in narrowing.window
    assert len(narrowing.window) < 512


def test_a_graph_is_judged_whatever_related_graphs_have_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(node_asking, "ask", lambda *_, **__: SimpleNamespace(end=lambda: "answer"))
    saved = SimpleNamespace(id="0_0/dynamo", record=SimpleNamespace(graph=SimpleNamespace(nodes=[])))
    how = SimpleNamespace(payload=lambda saved: {}, limit_s=1.0)
    facts = {"rung": "inductor", "check": "auto", "how": how, "server": None, "narrate": print, "clock": Clock()}
    blame = NodeBlame(cast(Any, saved), cast(Any, SimpleNamespace(**facts)), tmp_path, spent=99)
    assert cast(Any, blame.compile("the whole graph", "whole", {})) == "answer"
    with pytest.raises(Spent):
        blame.compile("a part", "part", {})
