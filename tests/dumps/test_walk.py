"""One walker knows every kind of argument and every graph in a graph."""

from __future__ import annotations

from typing import Any

import pytest

from graphdbg.dumps.arguments import KINDS, NESTED
from graphdbg.dumps.schema import GraphBody, ModuleRecord, NodeRecord, StoredTensor
from graphdbg.dumps.walk import (
    bodies,
    contents,
    given,
    leaves,
    map_argument,
    nodes,
    plain,
    references,
    returned,
    tag_of,
    tensors,
    used,
)

from .graphs import tensor_value

NODE: dict[str, Any] = {"node": "a"}


@pytest.mark.parametrize("tag", sorted(KINDS))
def test_a_tag_is_a_leaf_or_its_parts_are_visited(tag: str) -> None:
    arg = {tag: KINDS[tag].example}
    assert tag_of(arg) == (tag, KINDS[tag].example)
    assert list(references([arg])) == (["a"] if tag in NESTED - {"complex"} | {"node"} else [])
    if tag not in NESTED:
        assert list(leaves(arg)) == [arg] and list(contents([[arg]], tag)) == [KINDS[tag].example]
    seen: list[Any] = []
    assert map_argument([arg], lambda leaf: seen.append(leaf) or leaf) == [arg]
    assert [leaf for leaf in seen if leaf != "key"] == list(leaves(arg))


def test_leaves_are_changed_in_place_of_others() -> None:
    arg = {"dict": [["k", {"tuple": [1, [NODE]]}]]}
    assert map_argument(arg, lambda leaf: {"node": "b"} if leaf == NODE else leaf) == {
        "dict": [["k", {"tuple": [1, [{"node": "b"}]]}]]
    }


@pytest.mark.parametrize(
    "arg", [{"dict": 5}, {"dict": ["x", None, []]}, {"tuple": None}, {"a": 1, "node": "b"}, {}, {"node": 3}]
)
def test_damaged_arguments_do_no_harm(arg: Any) -> None:
    list(leaves(arg)), list(references(arg)), map_argument(arg, lambda leaf: leaf)
    assert list(references([arg, NODE])) == ["a"]


def test_arguments_as_plain_values() -> None:
    arg = {"dict": [["x", {"tuple": [1, {"float": "inf"}, {"dtype": "float32"}]}], ["y", {"sym": ["int", "s0"]}]]}
    assert plain(arg) == {"x": [1, float("inf"), "float32"], "y": {"sym": ["int", "s0"]}}


@pytest.mark.parametrize(
    "args", [[{"tuple": [NODE, None]}], [[NODE, None]], [{"tuple": [{"tuple": [NODE, None]}]}][0]["tuple"]]
)
def test_what_an_output_node_returns(args: list[Any]) -> None:
    assert returned(args) == [NODE, None]


def test_graphs_in_graphs_with_their_nodes_and_tensors() -> None:
    stored = StoredTensor("0" * 40, tensor_value(2))
    inner = GraphBody(
        nodes=[NodeRecord("b", "call_function", "f", kwargs={"x": NODE})],
        attrs={"w": stored},
        modules={"lin": ModuleRecord("torch.nn.Linear", state={"weight": stored})},
    )
    outer = GraphBody(nodes=[NodeRecord("a", "placeholder", "a")], attrs={"c": stored}, subgraphs={"body_0": inner})
    assert list(bodies(outer)) == [outer, inner]
    assert [node.name for node in nodes(outer)] == ["a", "b"]
    assert [path for path, _ in tensors(outer)] == ["c", "body_0.w", "body_0.lin.weight"]
    assert (given(inner.nodes[0]), used(nodes(outer))) == ([NODE], {"a"})
