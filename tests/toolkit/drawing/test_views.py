"""What the views hold: groups, modules, neighbourhoods, forward and backward joined, families. No picture is rendered
here."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.names import Level, levels, module_path
from graphdbg.dumps.short import shorten
from graphdbg.dumps.store import Run
from graphdbg.toolkit.drawing import nodes, overview, picture
from graphdbg.toolkit.drawing.dot import Edge, View, family
from graphdbg.toolkit.drawing.nodes import frames
from graphdbg.toolkit.drawing.overview import BUNDLES, MOST
from graphdbg.toolkit.drawing.source import DrawnGraph, of_record, of_saved, value_text

from ...dumps.graph_text import graph, tensor
from ...dumps.layered import layered

FAMILY = {
    "aten.addmm.default": "matmul",
    "torch.nn.functional.linear": "matmul",
    "aten.convolution_backward.default": "convolution",
    "torch.nn.functional.conv2d": "convolution",
    "aten.sum.dim_IntList": "reduction",
    "aten.mul.Tensor": "pointwise",
    "operator.add": "pointwise",
    "aten.view.default": "view",
    "operator.getitem": "view",
    "aten.clone.default": "movement",
    "prims.convert_element_type.default": "movement",
    "aten.embedding.default": "indexing",
    "aten.full.default": "creation",
    "prims.inductor_random.default": "random",
    "torch.nn.functional.dropout": "random",
    "aten.relu_.default": "pointwise",
    "aten._scaled_dot_product_flash_attention_for_cpu.default": "attention",
    "higher_order.flex_attention": "attention",
    "higher_order.cond": "control",
    "_c10d_functional.all_reduce.default": "collective",
    "mylib.thing.default": "custom",
    "aten.native_layer_norm.default": "normalisation",
    "torch.nn.functional.batch_norm": "normalisation",
    "prims._low_memory_max_pool_with_offsets.default": "pooling",
    "aten.sym_size.int": "scalar",
    "aten.linalg_vector_norm.default": "reduction",
    "aten.copy_.default": "movement",
    "aten._softmax.default": "reduction",
}


@pytest.mark.parametrize("target", FAMILY)
def test_ops_are_in_their_family(target: str) -> None:
    assert family("call_function", target) == FAMILY[target]


def test_inputs_and_methods_have_families_too() -> None:
    assert family("placeholder", "primals_1", "parameter") == "parameter"
    assert family("placeholder", "tangents_1") == "tangent"
    assert family("call_method", "transpose") == "view"
    assert family("call_function", "operator.mul", is_scalar=True) == "scalar"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("L['self']._modules['blocks']._modules['0']._parameters['weight']", "blocks.0.weight"),
        ("L['self']._modules['slots'].__dict__['_modules']['q']._parameters['bias']", "slots.q.bias"),
        ("L['self'].blocks.0.attention", "blocks.0.attention"),
        ("L['fn']", ""),
        ("L['self']._orig_mod.up", "up"),
        ("G['model'].layers[3].mlp", "layers.3.mlp"),
    ],
)
def test_module_paths_are_written_as_people_write_them(text: str, path: str) -> None:
    assert module_path(text) == path


def test_the_root_module_is_no_level() -> None:
    assert levels("L['fn']: torch.nn.Sequential\nL['fn'].0: torch.nn.modules.conv.Conv2d") == (Level("0", "Conv2d"),)


def test_values_are_short() -> None:
    assert value_text(tensor("bfloat16", "[8, s0]")) == "bf16[8, s0]"
    assert len(value_text(tensor("float32", "[a*b*c*d*e, f*g*h*i*j*k*l*m*n*o*p]"))) <= 34
    assert shorten("abcdefghij", 7) == "abcd…ij"


def test_a_frame_around_one_box_or_saying_the_same_is_left_out() -> None:
    a, b = (Level("a", "A"),), (Level("a", "A"), Level("a.b", "B"))
    clusters, homes = frames({"1": b, "2": b})
    assert [cluster.label for cluster in clusters] == ["a.b: B"]
    clusters, homes = frames({"1": a, "2": b, "3": ()})
    assert [cluster.label for cluster in clusters] == ["a: A"]
    assert (homes["2"].depth, homes["3"].cluster) == (1, "")


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 6))
def test_groups_never_need_each_other_in_a_circle(seed: int, count: int, kinds: int) -> None:
    rng = random.Random(seed)
    inputs = [rng.sample(range(i), min(i, rng.randrange(3))) for i in range(count)]
    keys = [rng.choice([None, *range(kinds)]) for _ in range(count)]
    groups = overview.acyclic(keys, inputs)
    assert sorted(index for group in groups for index in group.members) == [
        i for i in range(count) if keys[i] is not None
    ]
    assert all(keys[index] == group.key for group in groups for index in group.members)
    home = overview.homes(groups)
    ordered = overview.in_order(groups, inputs)
    place = {group.number: position for position, group in enumerate(ordered)}
    for user in range(count):
        for maker in inputs[user]:
            if user in home and maker in home:
                assert place[groups[home[maker]].number] <= place[groups[home[user]].number]


def test_nodes_of_one_key_stay_together_where_they_can() -> None:
    groups = overview.acyclic(["a", "b", "a", "b"], [[], [], [0], [1]])
    assert [group.members for group in groups] == [[0, 2], [1, 3]]


def test_what_a_group_comes_to_need_late_counts_for_the_groups_before_it() -> None:
    groups = overview.acyclic([*"abacbc"], [[], [], [1], [], [3], [2]])
    assert [group.members for group in groups] == [[0, 2], [1, 4], [3], [5]]


def named(view: View) -> dict[str, str]:
    """The box of each node that is in the picture."""
    return {name: box.id for box in view.boxes for name in box.nodes}


@pytest.mark.parametrize("size", [30, 500, 3_000])
def test_an_overview_holds_every_node_in_few_boxes(size: int) -> None:
    drawn = of_record(layered(size))
    view = overview.overview(drawn)
    assert len(view.boxes) <= MOST
    assert set(named(view)) == {node.name for node in drawn.nodes}
    assert sum(len(box.nodes) for box in view.boxes) == len(drawn.nodes)
    ids = {box.id for box in view.boxes}
    assert all(edge.source in ids and edge.target in ids and edge.source != edge.target for edge in view.edges)
    assert edges_of(drawn, view) == {(edge.source, edge.target) for edge in view.edges}


def edges_of(drawn: DrawnGraph, view: View) -> set[tuple[str, str]]:
    """Which boxes are joined, from the graph itself."""
    home = named(view)
    pairs = {
        (home[drawn.nodes[used].name], home[node.name])
        for node in drawn.nodes
        for used in node.inputs
        if node.name in home
    }
    return {(a, b) for a, b in pairs if a != b}


def test_an_overview_of_many_thousand_alike_modules_bundles_neighbours() -> None:
    view = overview.overview(of_record(layered(10_000)))
    assert 8 <= len(view.boxes) <= BUNDLES + 1
    assert view.boxes[0].title.startswith("blocks.0 … blocks.")
    assert view.boxes[0].lines[0].startswith("Block ×")


def test_an_overview_without_modules_goes_by_lines_then_by_runs() -> None:
    drawn = of_record(layered(3_000))
    for node in drawn.nodes:
        node.modules = ()
    by_line = overview.overview(drawn)
    assert "by line" in by_line.title
    assert 8 <= len(by_line.boxes) <= MOST
    for node in drawn.nodes:
        node.frames = ()
    by_run = overview.overview(drawn)
    assert "by runs of nodes" in by_run.title
    assert 8 <= len(by_run.boxes) <= MOST
    assert edges_of(drawn, by_run) == {(edge.source, edge.target) for edge in by_run.edges}


def test_an_overview_of_a_real_graph_opens_modules_and_names_them(real_run: Run) -> None:
    view = overview.overview(of_saved(real_run.graph("0_0/forward")))
    titles = {box.title: box for box in view.boxes}
    assert {"norm", "qkv", "out", "up", "down"} <= set(titles)
    assert titles["qkv"].lines[0] == "Linear"
    assert "2 parameters" in titles["qkv"].lines[1]
    assert titles["qkv"].family == "matmul"


def test_a_module_called_twice_is_two_boxes() -> None:
    record = graph(
        "x: [4]\na = aten.sin.default(x) [4]\nb = aten.cos.default(a) [4]\nc = aten.sin.default(b) [4]\nreturn c"
    )
    drawn = of_record(record)
    for node, path in zip(drawn.nodes, ("", "one", "two", "one", ""), strict=True):
        node.modules = (Level(path, "M"),) if path else ()
    titles = [box.title for box in overview.overview(drawn).boxes]
    assert titles == ["one", "two", "one (call 2)", "x", "output"]


TEXT = """
x: [4]
w: [4]
a = aten.sin.default(x) [4] @ model.py:3
b = aten.mul.Tensor(a, w) [4] @ model.py:4
c = aten.cos.default(b) [4]
d = aten.exp.default(c) [4]
return d
"""


def test_the_neighbourhood_of_a_node_is_what_is_so_many_steps_away() -> None:
    drawn = of_record(graph(TEXT))
    assert set(named(nodes.around(drawn, "b", 0))) == {"b"}
    assert set(named(nodes.around(drawn, "b", 1))) == {"a", "w", "b", "c"}
    assert set(named(nodes.around(drawn, "b", 2))) == {"x", "a", "w", "b", "c", "d"}
    view = nodes.around(drawn, "b", 1)
    hidden = {box.title: box.hidden for box in view.boxes}
    assert hidden == {"a": 1, "w": 0, "b": 0, "c": 1}
    assert [box.title for box in view.boxes if box.focus] == ["b"]


def test_a_neighbourhood_that_is_too_large_is_cut_to_the_nearest() -> None:
    view = nodes.around(of_record(layered(2_000)), "output", 400, most=50)
    assert sum(len(box.nodes) for box in view.boxes) == 50
    assert any("nearest 50" in note for note in view.notes)


def test_nobody_is_everybodys_neighbour_through_the_output(real_run: Run) -> None:
    drawn = of_saved(real_run.graph("1_0/backward"))
    node = drawn.nodes[drawn.outputs[0].node]
    view = nodes.around(drawn, node.name, 2)
    assert len(view.boxes) < len(drawn.nodes) / 2


def test_an_unknown_node_is_refused_with_names_like_it() -> None:
    with pytest.raises(UsageError, match="no node 'bb'") as caught:
        nodes.around(of_record(graph("x: [4]\nbbb = aten.sin.default(x) [4]\nreturn bbb")), "bb", 1)
    assert "bbb" in str(caught.value)


def test_many_outputs_are_marked_instead_of_drawn(real_run: Run) -> None:
    drawn = of_saved(real_run.graph("0_0/forward"))
    assert len(drawn.outputs) > nodes.MOST_OUTPUT_EDGES
    view = nodes.whole(drawn)
    lines = {name: box.lines for box in view.boxes for name in box.nodes}
    assert "output" not in lines
    for item in drawn.outputs:
        assert ("saved for backward" if item.saved else f"output {item.number}") in lines[drawn.nodes[item.node].name]
    assert sum(item.saved for item in drawn.outputs) == len(drawn.outputs) - 1


@pytest.mark.parametrize("compiled", ["0_0", "1_0"])
@pytest.mark.parametrize("by_module", [False, True])
def test_forward_and_backward_are_joined_by_what_is_saved(real_run: Run, compiled: str, by_module: bool) -> None:
    forward, backward, joined = picture.of(real_run.graph(f"{compiled}/backward"))
    saved = [node for node in backward.graph.nodes if node.op == "placeholder" and node.family != "tangent"]
    assert len(joined) == len(saved) > 3
    assert all(forward.graph.nodes[a].name == backward.graph.nodes[b].name for a, b in joined)
    assert all(forward.graph.nodes[a].value == backward.graph.nodes[b].value for a, b in joined)
    view = picture.side_by_side(forward, backward, joined, by_module=by_module)
    dashed = {(edge.source, edge.target) for edge in view.edges if edge.saved}
    home = {(box.id[0], name): box.id for box in view.boxes for name in box.nodes}
    wanted = {(home["f", forward.graph.nodes[a].name], home["b", backward.graph.nodes[b].name]) for a, b in joined}
    assert dashed == wanted
    assert [cluster.label for cluster in view.clusters if cluster.kind == "side"] == ["forward", "backward"]


def test_saved_tensors_under_other_names_are_joined_in_order(real_run: Run) -> None:
    forward, backward, joined = picture.of(real_run.graph("0_0/forward"))
    for node in backward.graph.nodes:
        node.name = f"other_{node.name}"
    assert sorted(picture.links(forward.graph, backward.graph)) == sorted(joined)


def test_gradients_name_the_forward_op_and_recomputed_nodes_say_so(real_run: Run) -> None:
    view = picture.side_by_side(*picture.of(real_run.graph("0_0/forward")))
    lines = {box.nodes[0]: box.lines for box in view.boxes if box.id.startswith("b")}
    graph_of = {node.name: node for node in picture.of(real_run.graph("0_0/forward"))[1].graph.nodes}
    marked = [(name, line) for name, said in lines.items() for line in said if line.startswith("gradient of ")]
    gradients = {name: line.removeprefix("gradient of ") for name, line in marked}
    assert len(gradients) > 10
    assert {graph_of[name].base for name, of in gradients.items() if of == "relu"} >= {"where"}
    summed = {name for name, said in lines.items() if "sum of gradients" in said}
    assert summed
    assert all(graph_of[name].base == "add" for name in summed)
    recomputed = {name for name, said in lines.items() if "recomputed" in said}
    assert recomputed == {name for name, node in graph_of.items() if node.recomputed and not node.is_input}


def test_the_halves_of_a_joint_graph_are_its_forward_and_its_backward(real_run: Run) -> None:
    forward, backward, joined = picture.of(real_run.graph("0_0/joint"))
    of_forward = {forward.graph.nodes[index].name for index in forward.chosen}
    assert {"addmm", "relu"} <= of_forward
    assert any(name.startswith("tangents") for name in {backward.graph.nodes[index].name for index in backward.chosen})
    assert all(a in set(forward.chosen) and b in set(backward.chosen) for a, b in joined)
    view = picture.view_of(of_saved(real_run.graph("0_0/joint")), picture.Wanted(by_module=True))
    assert {cluster.label for cluster in view.clusters} >= {"forward", "backward"}


def test_sizes_have_no_edges_to_everything_that_uses_them() -> None:
    uses = "\n".join(f"v{i} = aten.full.default([n, 2], 1.0) [n, 2]" for i in range(6))
    drawn = of_record(graph(f"n: n\n{uses}\nt = aten.cat.default([v0, v1, v2, v3, v4, v5]) [n, 12]\nreturn t"))
    view = nodes.whole(drawn)
    assert [edge for edge in view.edges if edge.source == "n0"] == []
    assert any("sizes that more than" in note for note in view.notes)
    assert next(box for box in view.boxes if box.title == "v3").lines[0] == "aten.full [n, 2], 1"
    assert "n0" in {edge.source for edge in nodes.around(drawn, "n", 1).edges}
    few = of_record(graph("n: n\nv = aten.full.default([n, 2], 1.0) [n, 2]\nreturn v"))
    assert nodes.whole(few).edges[0] == Edge("n0", "n1", "Sym(n)")
    by_module = overview.overview(drawn)
    assert "n" not in named(by_module)
    assert any("sizes that are handed in" in note for note in by_module.notes)


GRADIENTS = """
tangents_1: [4]
q = aten.sin.default(tangents_1) [4] @ model.py:17
k = aten.cos.default(tangents_1) [4] @ model.py:17
total = aten.add.Tensor(q, k) [4] @ model.py:17
more = aten.add.Tensor(tangents_1, total) [4] @ model.py:17
rest = aten.exp.default(more) [4]
return rest
"""


@pytest.mark.parametrize(("stage", "modules"), [("backward", [Level("layers.1", "Layer")]), ("forward", [])])
def test_sums_of_gradients_lie_in_the_module_that_used_the_value_twice(stage: str, modules: list[Level]) -> None:
    """Autograd notes on them the user's line and no module; in a forward graph no module means the root."""
    record = graph(GRADIENTS, f"0_0/{stage}")
    frames = ((30, "layer(x)"), (17, "q + k"))
    record.strings.append("".join(f'  File "/me/model.py", line {at}, in forward\n    {code}\n' for at, code in frames))
    for node in record.graph.nodes:
        if node.stack >= 0:
            node.stack = len(record.strings) - 1
        if node.name in "qk":
            node.module = len(record.strings)
            record.strings.append(f"L['self'].layers.1: model.Layer\nL['self'].layers.1.{node.name}: torch.nn.Linear")
    drawn = {node.name: node for node in of_record(record).nodes}
    assert list(drawn["total"].modules) == modules
    assert list(drawn["more"].modules) == modules
    assert [level.path for level in drawn["q"].modules] == ["layers.1", "layers.1.q"]


def test_small_graphs_are_drawn_whole_and_large_ones_by_module() -> None:
    assert picture.view_of(of_record(layered(250)), picture.Wanted()).kind == "nodes"
    assert picture.view_of(of_record(layered(400)), picture.Wanted()).kind == "by-module"
    assert picture.view_of(of_record(layered(400)), picture.Wanted(around="output")).kind == "around"
