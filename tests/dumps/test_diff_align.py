"""Alignment on generated graphs: names play no part, one planted change is the first departure, large graphs stay
near-linear."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdbg.dumps.diff.align import common_run, increasing
from graphdbg.dumps.diff.compare import GraphDiff, compare
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord

from .layered import calls, copied, insert_after, layered, remove, renumbered, scattered, value

TARGETS = ("aten.sin.default", "aten.add.Tensor", "aten.mul.Tensor")


@st.composite
def graphs(draw: st.DrawFn) -> GraphRecord:
    """Small random graphs with many equal nodes, unused ones too, and inputs without a source."""
    rng = random.Random(draw(st.integers(0, 10_000)))
    nodes = [
        NodeRecord(name=f"x{k}", op="placeholder", target=f"x{k}", value=value(4)) for k in range(rng.randint(1, 3))
    ]
    for k in range(draw(st.integers(1, 25))):
        inputs = [{"node": rng.choice(nodes[-6:]).name} for _ in range(rng.randint(1, 2))]
        constant = [rng.choice([1, 2])] if len(inputs) == 1 else []
        target = rng.choice(TARGETS)
        nodes.append(
            NodeRecord(name=f"n{k}", op="call_function", target=target, args=inputs + constant, value=value(4))
        )
    returned = [{"node": node.name} for node in rng.sample(nodes, min(3, len(nodes)))]
    nodes.append(NodeRecord(name="output", op="output", target="output", args=[{"tuple": returned}]))
    return GraphRecord(format=FORMAT, id="0_0/forward", stage="forward", graph=GraphBody(nodes=nodes))


def first_names(graph_diff: GraphDiff) -> tuple[list[str], list[str]]:
    first = graph_diff.first
    assert first is not None
    return [graph_diff.a.nodes[i].name for i in first.a], [graph_diff.b.nodes[j].name for j in first.b]


@given(graphs())
def test_a_graph_is_the_same_as_itself_under_other_names(record: GraphRecord) -> None:
    comparison = compare(record, renumbered(record))
    assert (comparison.same, comparison.departures, comparison.alignment.to_b) == (
        True,
        [],
        list(range(len(record.graph.nodes))),
    )


@given(graphs(), st.integers(0, 1000), st.sampled_from(["target", "constant", "dtype"]))
def test_a_planted_change_is_the_first_departure(record: GraphRecord, pick: int, kind: str) -> None:
    other = renumbered(record)
    places = calls(record)
    index = places[pick % len(places)]
    node = other.graph.nodes[index]
    if kind == "target":
        node.target = "aten.cos.default"
    elif kind == "constant":
        node.kwargs = {"alpha": 7}
    else:
        node.value = value(4, dtype="float16")
    comparison = compare(record, other)
    assert first_names(comparison) == ([record.graph.nodes[index].name], [node.name])
    assert [departure.follows for departure in comparison.departures] == [None]


@given(st.integers(0, 1000), st.booleans())
@settings(max_examples=30)
def test_a_node_more_or_less_is_the_first_departure(pick: int, more: bool) -> None:
    record = layered(120)
    other = renumbered(record)
    places = calls(record)
    index = places[pick % len(places)]
    if more:
        result = insert_after(other, index)
        assert first_names(compare(record, other)) == ([], [result.name])
    else:
        remove(other, index)
        assert first_names(compare(record, other)) == ([record.graph.nodes[index].name], [])


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_another_order_of_the_same_nodes_is_no_difference(seed: int) -> None:
    record, rng = layered(100), random.Random(seed)
    other = renumbered(record)
    nodes = other.graph.nodes
    for _ in range(200):
        k = rng.randrange(len(nodes) - 2)
        first, second = nodes[k], nodes[k + 1]
        if {"node": first.name} not in second.args:
            nodes[k], nodes[k + 1] = second, first
    comparison = compare(record, other)
    assert comparison.same
    assert comparison.counts["moved"] > 0


def test_a_permutation_of_inputs_without_source_is_found_by_their_use() -> None:
    record = layered(100)
    record.inputs = []
    other = renumbered(record)
    other.graph.nodes[1], other.graph.nodes[2] = other.graph.nodes[2], other.graph.nodes[1]
    assert compare(record, other).same


def test_many_changes_in_a_large_graph_stay_apart() -> None:
    """Not a benchmark: far above the goal, far below what anything quadratic would need."""
    record = layered(4000)
    other = scattered(renumbered(record), 80, seed=3)
    began = time.process_time()
    comparison = compare(record, other)
    assert time.process_time() - began < 5
    own = sum(departure.follows is None for departure in comparison.departures)
    assert 70 <= own <= 85
    assert comparison.counts["only_a"] + comparison.counts["only_b"] <= 80


@pytest.mark.parametrize("length", [400, 3000])
def test_a_chain_of_equal_nodes_with_changes_is_no_trap(length: int) -> None:
    record = layered(20)
    x = record.graph.nodes[0].name
    chain = [NodeRecord(name="s0", op="call_function", target="aten.sin.default", args=[{"node": x}])]
    for k in range(1, length):
        chain.append(
            NodeRecord(name=f"s{k}", op="call_function", target="aten.sin.default", args=[{"node": f"s{k - 1}"}])
        )
    output = NodeRecord(name="output", op="output", target="output", args=[{"tuple": [{"node": f"s{length - 1}"}]}])
    record.graph.nodes = [record.graph.nodes[0], *chain, output]
    record.inputs = record.inputs[:1]
    other = copied(record)
    for k in range(10, length, length // 20):
        other.graph.nodes[1 + k].target = "aten.cos.default"
    remove(other, length // 2 + 3)
    other = renumbered(other)
    comparison = compare(record, other)
    assert first_names(comparison)[1] == [other.graph.nodes[1 + 10].name]
    assert len(comparison.departures) < 80


def test_large_graphs_with_nothing_in_common_are_no_trap() -> None:
    def fan(target: str) -> GraphRecord:
        x = NodeRecord(name="x", op="placeholder", target="x", value=value(4))
        built = [
            NodeRecord(name=f"n{k}", op="call_function", target=target, args=[{"node": "x"}, k], value=value(4))
            for k in range(3000)
        ]
        returned = {"tuple": [{"node": node.name} for node in built]}
        output = NodeRecord(name="output", op="output", target="output", args=[returned])
        body = GraphBody(nodes=[x, *built, output])
        return GraphRecord(format=FORMAT, id="0_0/forward", stage="forward", graph=body)

    began = time.perf_counter()
    assert not compare(fan("aten.mul.Tensor"), fan("aten.add.Tensor")).same
    assert compare(fan("aten.mul.Tensor"), layered(3000)).counts["only_a"] >= 3000
    assert time.perf_counter() - began < 8


@given(st.lists(st.integers(0, 20), unique=True))
def test_the_longest_increasing_run(values: list[int]) -> None:
    best = [1] * len(values)
    for k in range(len(values)):
        best[k] = max([best[m] + 1 for m in range(k) if values[m] < values[k]], default=1)
    results = [values[k] for k in increasing(values)]
    assert results == sorted(results)
    assert len(results) == max(best, default=0)


def test_a_common_run_of_long_sequences_is_found_greedily() -> None:
    a = list(range(1000))
    b = [*a[:300], -1, -2, *a[300:700], *a[720:]]
    assert len(common_run(a, b)) >= 975
