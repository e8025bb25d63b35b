"""Comparing two graphs, each case as text before and after: what departs, in what, and what merely follows."""

from __future__ import annotations

import pytest

from graphdbg.dumps.diff.compare import compare
from graphdbg.dumps.schema import Ambient, GraphBody, GuardRecord, NodeRecord, StoredTensor

from .graph_text import compared, graph, symbol, tensor, told

BASE = """
x: [8, 4]
w: [4, 4]
mm = aten.mm.default(x, w) [8, 4] @ model.py:3
half = aten.mul.Tensor(mm, 0.5) [8, 4] @ model.py:4
relu = aten.relu.default(half) [8, 4] @ model.py:5
flat = aten.view.default(relu, [32]) [32] @ model.py:6
return flat
"""


def changed(*swaps: tuple[str, str]) -> list[str]:
    other = BASE
    for old, new in swaps:
        assert old in other
        other = other.replace(old, new)
    return compared(BASE, other)


def test_a_graph_is_the_same_as_itself() -> None:
    assert changed() == []


def test_names_and_lines_of_code_are_no_difference() -> None:
    assert changed(("mm", "mm_7"), ("aten.mm_7", "aten.mm"), ("half", "mul_3"), ("model.py:4", "other.py:40")) == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "aten.relu.default",
            "aten.tanh.default",
            "changed relu | relu; target: aten.relu.default -> aten.tanh.default",
        ),
        ("0.5", "0.25", "changed half | half; argument 1: 0.5 -> 0.25"),
        ("(half)", "(half, inplace=True)", "changed relu | relu; argument inplace: nothing -> True"),
        ("(half)", "(mm)", "changed relu | relu; argument 0: half -> mm"),
        ("(mm, 0.5)", "(0.5, mm)", "changed half | half; argument 0: mm -> 0.5; argument 1: 0.5 -> mm"),
    ],
)
def test_one_change_is_one_departure(old: str, new: str, line: str) -> None:
    assert changed((old, new)) == [line]


def test_one_and_one_point_zero_are_not_the_same_constant() -> None:
    a = "x: [4]\ny = aten.add.Tensor(x, 1) [4]\nreturn y"
    assert compared(a, a.replace("1)", "1.0)")) == ["changed y | y; argument 1: 1 -> 1.0"]


def test_an_inserted_node_and_who_uses_it() -> None:
    new = "neg = aten.neg.default(half) [8, 4] @ model.py:5\nrelu = aten.relu.default(neg)"
    assert changed(("relu = aten.relu.default(half)", new)) == [
        "added - | neg",
        "changed relu | relu; argument 0: half -> neg follows neg",
    ]


def test_a_removed_node() -> None:
    assert changed(("relu = aten.relu.default(half) [8, 4] @ model.py:5\n", ""), ("(relu, ", "(half, ")) == [
        "removed relu | -",
        "changed flat | flat; argument 0: relu -> half follows relu",
    ]


def test_a_node_replaced_by_several() -> None:
    new = (
        "a = aten.sigmoid.default(half) [8, 4] @ model.py:5\n"
        "b = aten.mul.Tensor(half, a) [8, 4] @ model.py:5\nrelu = aten.neg.default(b) [8, 4]"
    )
    result = changed(("relu = aten.relu.default(half) [8, 4]", new))
    assert result[0] == "replaced relu | a,b,relu"
    assert result[1].endswith("follows relu")


def test_a_moved_node_is_no_difference() -> None:
    a = "x: [4]\na = aten.sin.default(x) [4]\nb = aten.cos.default(x) [4]\nc = aten.add.Tensor(a, b) [4]\nreturn c"
    b = "x: [4]\nb = aten.cos.default(x) [4]\na = aten.sin.default(x) [4]\nc = aten.add.Tensor(a, b) [4]\nreturn c"
    comparison = compare(graph(a), graph(b))
    assert (comparison.same, comparison.counts["moved"]) == (True, 1)


def test_swapped_inputs_are_a_difference() -> None:
    a = "x: [4] = L['x']\ny: [4] = L['y']\nc = aten.sub.Tensor(x, y) [4]\nreturn c"
    assert compared(a, a.replace("(x, y)", "(y, x)")) == ["changed c | c; argument 0: x -> y; argument 1: y -> x"]


def test_a_shape_that_comes_from_an_input_is_told_with_its_origin() -> None:
    assert changed(("[8, 4]", "[12, 4]"), ("[32]", "[48]")) == [
        "changed x | x; shape: [8, 4] -> [12, 4]",
        "changed mm | mm; shape: [8, 4] -> [12, 4] follows x",
        "changed half | half; shape: [8, 4] -> [12, 4] follows x",
        "changed relu | relu; shape: [8, 4] -> [12, 4] follows x",
        "changed flat | flat; argument 1[0]: 32 -> 48; shape: [32] -> [48] follows x",
    ]


def test_a_constant_changed_besides_the_shapes_is_a_departure_of_its_own() -> None:
    result = changed(("[8, 4]", "[12, 4]"), ("[32]", "[48]"), ("0.5", "0.25"))
    assert [line for line in result if "follows" not in line] == [
        "changed x | x; shape: [8, 4] -> [12, 4]",
        "changed half | half; argument 1: 0.5 -> 0.25; shape: [8, 4] -> [12, 4]",
    ]


def test_another_view_of_the_same_tensor_explains_nothing() -> None:
    result = changed(("view.default(relu, [32]) [32]", "view.default(relu, [4, 8]) [4, 8]"))
    assert result == ["changed flat | flat; argument 1: [32] -> [4, 8]; shape: [32] -> [4, 8]"]


def test_a_dtype_follows_from_the_cast_that_brought_it() -> None:
    new = (
        "cast = aten.to.dtype(mm) float16[8, 4] @ model.py:4\nhalf = aten.mul.Tensor(cast, 0.5) float16[8, 4] @ "
        "model.py:4"
    )
    other = BASE.replace("half = aten.mul.Tensor(mm, 0.5) [8, 4] @ model.py:4", new)
    other = other.replace("default(half) [8", "default(half) float16[8").replace("[32]) [32]", "[32]) float16[32]")
    assert compared(BASE, other) == [
        "added - | cast",
        "changed half | half; argument 0: mm -> cast; dtype: float32 -> float16 follows cast",
        "changed relu | relu; dtype: float32 -> float16 follows cast",
        "changed flat | flat; dtype: float32 -> float16 follows cast",
    ]


def test_a_size_that_became_symbolic_is_the_inputs_doing() -> None:
    a = "x: [8, 4]\ny = aten.sin.default(x) [8, 4]\nz = aten.view.default(y, [8, 2, 2]) [8, 2, 2]\nreturn z"
    b = "s: s0\nx: [s0, 4]\ny = aten.sin.default(x) [s0, 4]\nz = aten.view.default(y, [s, 2, 2]) [s0, 2, 2]\nreturn z"
    result = compared(a, b)
    assert result[0] == "added - | s follows x"
    assert result[1] == "changed x | x; shape: [8, 4] -> [s0, 4]"
    assert all(line.endswith("follows x") for line in result[2:])
    assert "argument 1[0]: 8 -> s" in result[3]


def test_symbols_of_other_names_for_the_same_size_are_no_difference() -> None:
    text = "x: [s0, 4]\ny = aten.sin.default(x) [s0, 4]\nreturn y"
    a, b = graph(text, symbols=[symbol("s0")]), graph(text.replace("s0", "s77"), symbols=[symbol("s77", hint=12)])
    assert compare(a, b).same
    b.symbols[0].lower = 9
    assert compare(a, b).also == ["symbol s0: 2 <= s0 = L['x'].size()[0] -> 9 <= s77 = L['x'].size()[0]"]


def test_another_number_of_the_same_kind_of_device_is_a_note() -> None:
    a, b = graph(BASE), graph(BASE)
    for record, device in ((a, "cuda:0"), (b, "cuda:1")):
        for node in record.graph.nodes[:-1]:
            node.value.device = device  # type: ignore[union-attr]
    comparison = compare(a, b)
    assert (comparison.same, comparison.notes) == (True, ["device cuda:0 -> cuda:1 everywhere"])


def test_another_device_is_a_difference() -> None:
    a, b = graph(BASE), graph(BASE)
    for node in b.graph.nodes[:-1]:
        node.value.device = "cuda:0"  # type: ignore[union-attr]
    comparison = compare(a, b)
    assert [comparison.a.nodes[i].name for d in comparison.departures if d.follows is None for i in d.a] == ["x", "w"]


def test_an_output_more_is_told_as_such() -> None:
    assert changed(("return flat", "return flat, relu")) == ["changed output | output; outputs: nothing -> relu"]
    a = BASE.replace("return flat", "return flat, relu")
    assert compared(a, BASE.replace("return flat", "return relu, flat"))[0].startswith(
        "changed output | output; outputs of"
    )


def test_constants_are_compared_by_their_bytes() -> None:
    def with_constant(name: str, storage: str) -> GraphBody:
        record = graph("x: [4]\ny = aten.add.Tensor(x, x) [4]\nreturn y")
        value = tensor(None, "[4]")
        record.graph.nodes.insert(1, NodeRecord(name=name, op="get_attr", target=name, value=value))
        record.graph.nodes[2].args[1] = {"node": name}
        record.graph.attrs[name] = StoredTensor(storage, value)
        return record.graph

    a, b = graph("x: [4]"), graph("x: [4]")
    a.graph, b.graph = with_constant("c0", "aa"), with_constant("c1", "aa")
    assert compare(a, b).same
    b.graph = with_constant("c1", "bb")
    assert compare(a, b).departures[0].changes[0].text() == "content: c0 -> c1"


def test_a_changed_subgraph_is_the_departure_of_the_node_that_holds_it() -> None:
    def with_branch(target: str) -> GraphBody:
        record = graph("x: [4]\ny = higher.cond(x) [4]\nreturn y")
        record.graph.nodes.insert(1, NodeRecord(name="branch", op="get_attr", target="branch"))
        record.graph.nodes[2].args.append({"node": "branch"})
        record.graph.subgraphs["branch"] = graph(f"a: [4]\nb = {target}(a) [4]\nreturn b").graph
        return record.graph

    a, b = graph("x: [4]"), graph("x: [4]")
    a.graph, b.graph = with_branch("aten.sin.default"), with_branch("aten.sin.default")
    assert compare(a, b).same
    b.graph = with_branch("aten.cos.default")
    assert [d.changes[0].aspect for d in compare(a, b).departures] == ["subgraph"]


def test_settings_are_told_apart_from_nodes() -> None:
    a, b = graph(BASE), graph(BASE)
    b.ambient = Ambient(matmul_precision="high", seed=7)
    b.config = {"inductor": {"max_autotune": True}}
    b.compile_kwargs = {"graph_id": 3, "cudagraphs": True}
    b.guards = [GuardRecord("Eq(s0, 4)")]
    b.versions, a.versions = {"torch": "2.13.0"}, {"torch": "2.12.0"}
    comparison = compare(a, b)
    assert (comparison.verdict, comparison.departures) == ("settings", [])
    assert comparison.also == [
        "guard Eq(s0, 4): only in B",
        "compiler argument cudagraphs: unset -> True",
        "ambient matmul_precision: 'highest' -> 'high'",
        "config inductor max_autotune: unset -> True",
    ]
    assert comparison.notes == ["torch 2.12.0 -> 2.13.0"]


def test_the_stack_s_own_settings_of_a_stage_are_no_difference_of_two_stages() -> None:
    a, b = graph(BASE, "0_0/dynamo"), graph(BASE, "0_0/forward", ambient=Ambient(grad=False))
    for node in a.graph.nodes[:-1]:
        node.value.requires_grad = True  # type: ignore[union-attr]
    assert compare(a, b).same


def test_stages_before_and_after_autograd_are_joined_by_what_nodes_became() -> None:
    traced = graph(
        "x: [4] = L['x']\na = torch.nn.functional.gelu(x) [4]\nb = operator.getitem(a, 0) [4]\n"
        "c = operator.neg(b) [4]\nreturn c",
        "0_0/dynamo",
    )
    later = graph(
        "p: [4] = L['x']\nt: [4]\nm = aten.mul.Tensor(p, 0.5) [4]\ng = aten.erf.default(m) [4]\n"
        "n = aten.neg.default(g) [4]\ngrad = operator.getitem(t, 0) [4]\nreturn n, grad",
        "0_0/joint",
    )
    for name, source in (("m", "a"), ("g", "a"), ("n", "c")):
        next(node for node in later.graph.nodes if node.name == name).from_node = [source]
    wanted = ["replaced a | m,g", "removed b | -", "replaced c | n", "added - | t,grad"]
    assert told(compare(traced, later))[:4] == wanted
    result = told(compare(later, traced))
    assert [line for line in result if line.startswith("replaced")] == ["replaced m,g | a", "replaced n | c"]


def test_graphs_without_nodes_in_common() -> None:
    assert compared("x: [4]\nreturn x", "a: int64 [2]\nb = aten.sin.default(a) [2]\nreturn b")
    assert compared("x: [4]\nreturn x", "q: [4]\nreturn q") == []
