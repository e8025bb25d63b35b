"""One node as it is shown: its record out of a large file, its detail, partner, kernel, source line, other stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.browse.about import About
from graphdbg.dumps.browse.kernels import Generated
from graphdbg.dumps.browse.node import MOST
from graphdbg.dumps.browse.partner import partners
from graphdbg.dumps.browse.recorded import Recorded
from graphdbg.dumps.browse.sheet import LINK, line_text, text
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.schema import GraphBody
from graphdbg.dumps.store import Run, SavedGraph, load_graph
from graphdbg.dumps.walk import frames

from .autograd_run import CODE, MODEL, autograd_run
from .graphs import chain, new_run
from .layered import layered


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Both sides of autograd."""
    return autograd_run(tmp_path / "myrun", tmp_path / "model.py")


def about(run: Run, graph: str = "0_0/forward") -> About:
    return About(run.graph(graph))


# -- one node of a large file


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SavedGraph:
    """4,200 nodes, compressed, with a subgraph that has nodes of the same names behind them."""
    record = layered(4200)
    record.graph.subgraphs["inner"] = GraphBody(nodes=chain().graph.nodes)
    inner = record.graph.subgraphs["inner"].nodes
    inner[1].name = record.graph.nodes[700].name
    inner[2].args = [{"node": inner[1].name}]
    path = tmp_path_factory.mktemp("large") / "run"
    _, process = new_run(path)
    process.save_graph(record)
    process.close()
    return load_graph(path / "0_0/forward")


def test_a_node_of_a_large_graph_is_read_without_decoding_the_graph(large: SavedGraph) -> None:
    recorded = Recorded(large)
    names = large.table.name
    following = [*names[1:], ""]
    results = {at: recorded.node(names[at], following[at]) for at in (0, 1, 699, 700, 4000, len(names) - 1)}
    assert recorded.large and "record" not in large.__dict__
    whole = load_graph(large.path).record
    assert results == {at: whole.graph.nodes[at] for at in results}
    assert recorded.strings == whole.strings and recorded.symbols == whole.symbols
    assert {item.name: item for item in whole.inputs} == recorded.inputs
    assert recorded.node("nobody") is None


def test_a_file_in_another_form_is_read_whole(tmp_path: Path, large: SavedGraph) -> None:
    folder = tmp_path / "case"
    write_graph_folder(folder, load_graph(large.path).record)
    (folder / "graph.json").write_text(json.dumps(json.loads((folder / "graph.json").read_bytes()), indent=1))
    case = SavedGraph(folder)
    node = Recorded(case).node(case.table.name[50], case.table.name[51])
    assert node == case.record.graph.nodes[50]


def test_a_file_that_is_too_large_is_not_looked_into(large: SavedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdbg.dumps.browse.recorded.MOST_BYTES", 1000)
    shown = text(About(load_graph(large.path)).detail(100))
    assert "MiB: arguments and stacks are not looked up" in shown
    assert "value    float32  [256, 64]" in shown or "value    float32  [64, 256]" in shown


# -- detail


def test_the_detail_tells_what_is_recorded(run: Run) -> None:
    this = about(run)
    shown = text(this.detail(this.position("relu"))).splitlines()
    assert shown[0] == "relu  call_function  aten.relu.default"
    assert "call     aten.relu.default(mm)" in shown
    assert "value    float32  [s0, 8]  stride [8, 1]  offset 0  cpu  128 B" in shown
    assert "symbol   s0 = 4 when recorded  in [2, 64]  L['x'].size()[0]" in shown
    assert "module   body  model.Body" in shown
    assert shown.index("line     model.py:6 in forward  return torch.relu(h)") + 1 == shown.index(
        "         functional.py:9 in relu  return _relu(x)"
    )
    assert "kernel   triton_poi_fused_relu_0" in shown
    assert "inputs 1 mm  f32[s0, 8]  aten.mm.default" in shown
    assert "users 1  output    output" in shown


def test_an_input_has_the_statistics_of_its_execution(run: Run) -> None:
    this = about(run)
    shown = text(this.detail(this.position("primals_1")))
    assert "input    user  L['x']" in shown and "seen     min -1.5  max 2  nan 1  inf 0" in shown
    assert "seen     no statistics" in text(this.detail(this.position("primals_2")))


def test_names_of_nodes_in_the_detail_are_links(run: Run) -> None:
    this = about(run)
    lines = this.detail(this.position("mm")).lines
    links = {
        (span.node, span.graph) for line in lines for span in line if not isinstance(span, str) and span.kind == LINK
    }
    assert {("primals_1", ""), ("relu", ""), ("mm_1", "0_0/backward")} <= links


def test_control_characters_of_a_dump_do_not_reach_the_terminal(tmp_path: Path) -> None:
    record = chain()
    record.strings[0] = '  File "/home/\x1b[31mme/model.py", line 11, in f\x07\n    h = "\x1b]0;x\x07"\n'
    record.graph.nodes[1].meta["note"] = "\x1b[2J"
    write_graph_folder(tmp_path / "case", record)
    shown = text(About(SavedGraph(tmp_path / "case")).detail(1))
    assert "\x1b" not in shown and "\x07" not in shown


def test_many_users_are_counted(tmp_path: Path) -> None:
    record = chain(nodes=3)
    for number in range(MOST + 5):
        record.graph.nodes.insert(-1, chain(nodes=3).graph.nodes[1])
        record.graph.nodes[-2].name = f"more_{number}"
    write_graph_folder(tmp_path / "case", record)
    this = About(SavedGraph(tmp_path / "case"))
    assert "and 6 more" in text(this.detail(0)) and "and 6 more" not in text(this.detail(0, everything=True))


def test_frames_of_the_user_come_first() -> None:
    stack = (
        '  File "/x/site-packages/torch/nn/modules/linear.py", line 1, in forward\n    return F.linear()\n'
        '  File "/home/ann/model.py", line 2, in act\n    a()\n    ^^^\n'
        '  File "/home/ann/train.py", line 3\n'
    )
    assert [(frame.where, frame.function, frame.code, frame.user) for frame in frames(stack)] == [
        ("train.py:3", "", "", True),
        ("model.py:2", "act", "a()", True),
        ("linear.py:1", "forward", "return F.linear()", False),
    ]
    assert frames("") == [] and frames("no frames\n") == []


# -- partners


def told(run: Run, graph: str, name: str) -> list[tuple[str, str]]:
    this = about(run, graph)
    return [(partner.name, partner.how) for partner in partners(this.saved, this.view, this.position(name))]


def test_partners_are_those_of_one_number_and_saved_values(run: Run) -> None:
    assert told(run, "0_0/forward", "mm") == [("mm_1", "same seq_nr"), ("permute", "same seq_nr")]
    assert told(run, "0_0/forward", "relu") == [
        ("le", "same seq_nr"),
        ("where", "same seq_nr"),
        ("relu", "saved value"),
    ]
    assert told(run, "0_0/backward", "where") == [("relu", "same seq_nr")]
    assert told(run, "0_0/backward", "relu") == [("relu", "saved value")]
    assert told(run, "0_0/forward", "primals_1") == [("primals_1", "saved value")]


@pytest.mark.parametrize(
    ("graph", "name", "why"),
    [
        ("0_0/forward", "output", "it is the output"),
        ("0_0/forward", "primals_2", "it is an input that the other side does not take"),
        ("0_0/dynamo", "h", "its stage is dynamo: it is recorded before autograd splits it"),
        ("0_0/post_grad_forward", "mm", "holds no 0_0/post_grad_backward"),
    ],
)
def test_a_node_without_partner_says_why(run: Run, graph: str, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        told(run, graph, name)


def test_a_joint_graph_is_its_own_partner(tmp_path: Path, run: Run) -> None:
    record = run.graph("0_0/forward").record
    nodes = [*record.graph.nodes[:-1], *run.graph("0_0/backward").record.graph.nodes[2:]]
    record.id, record.stage, record.graph.nodes = "0_0/joint", "joint", nodes
    _, process = new_run(tmp_path / "other")
    process.save_graph(record)
    process.close()
    this = About(load_graph(tmp_path / "other/0_0/joint"))
    result = partners(this.saved, this.view, this.position("relu"))
    assert [(item.graph, item.name) for item in result] == [("0_0/joint", "where")]
    assert {partner.name for partner in partners(this.saved, this.view, this.position("where"))} == {
        "relu",
        "le",
    }  # no tangent in le


# -- kernels


def test_the_kernel_is_found_by_the_names_that_inductor_writes(run: Run) -> None:
    this = about(run)
    ((_, use),) = this.uses(this.position("relu"))
    assert (use.kernel, use.sure) == ("triton_poi_fused_relu_0", True)
    ((_, use),) = this.uses(this.position("mm"))
    assert (use.kernel, use.sure, use.start) == ("extern_kernels.mm", True, -1)
    assert this.uses(this.position("primals_1")) == []
    sheet = this.code(this.position("relu"))
    lines = [line_text(sheet.lines[at]).strip() for part in sheet.marked for at in part]
    assert lines[0].startswith("triton_poi_fused_relu_0 = async_compile.triton(")
    assert lines[-1].startswith("triton_poi_fused_relu_0.run(")
    assert sheet.top == sheet.marked[0].start
    assert this.code(0).title == "no kernel of primals_1"


def test_a_graph_without_code_shows_that_of_the_graph_made_of_it(run: Run) -> None:
    this = about(run, "0_0/dynamo")
    sheet = this.code(this.position("h"))
    assert sheet.title == "extern_kernels.mm of 0_0/forward"
    assert "no code was recorded" in text(about(run, "0_0/backward").code(3))


def test_the_other_half_of_a_joint_graph_has_no_kernels_of_a_node(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    this = about(run, "0_0/dynamo")
    assert this.uses(this.position("h"))
    monkeypatch.setattr(SavedGraph, "stage", "post_grad_backward")
    assert about(run, "0_0/dynamo").uses(this.position("h")) == []


def test_a_kernel_called_again_belongs_to_the_nodes_named_above_that_call() -> None:
    again = next(kernel for kernel in Generated(CODE).kernels if kernel.name == "triton_poi_fused_relu_0")
    assert again.nodes == {"relu"}  # mm stands above it as an input
    assert [call.names("relu_1", "relu") for call in again.calls] == [False, True]
    assert [kernel.name for kernel in Generated(CODE).kernels] == ["triton_poi_fused_relu_0", "extern_kernels.mm"]


def test_a_cpp_kernel_is_found_by_op_and_place(run: Run) -> None:
    from graphdbg.dumps.browse.table import GraphView

    code = Generated(
        "cpp_fused_relu_0 = async_compile.cpp_pybinding([], r'''\nvoid kernel() {}\n''')\n"
        "cpp_fused_relu_1 = async_compile.cpp_pybinding([], r'''\nvoid kernel() {}\n''')\n"
        "def call(args):\n    cpp_fused_relu_0(a)\n"
        "    # Topologically Sorted Source Nodes: [h], Original ATen: [aten.mm]\n    extern_kernels.mm(a, b, out=c)\n"
        "    cpp_fused_relu_1(c)\n"
    )
    saved = run.graph("0_0/forward")
    view = GraphView(saved.table)
    uses = code.uses(view, Recorded(saved), view.positions["relu"])
    assert [(use.kernel, use.sure) for use in uses] == [
        ("cpp_fused_relu_1", False)
    ]  # the other runs before its input is there


@pytest.mark.parametrize(
    "odd", ["", "\n", "x = async_compile.triton(", "k = async_compile.triton('k', '''\nnever closed"]
)
def test_odd_code_has_no_kernels_and_no_errors(odd: str) -> None:
    assert all(kernel.end >= kernel.start for kernel in Generated(odd).kernels)


# -- source, stages


def test_the_source_is_the_copy_of_the_run(run: Run) -> None:
    this = about(run)
    sheet = this.source(this.position("relu"))
    assert sheet.title == "model.py:6 in forward" and sheet.notes == [] and sheet.choice == "1/2"
    assert sheet.lines[sheet.top] == "    return torch.relu(h)" and sheet.marked == [range(5, 6)]
    assert "sources" in sheet.path
    other = this.source(this.position("relu"), 1)
    assert other.title == "functional.py:9" and "the run kept no copy of it" in text(other)
    assert "no stack was recorded" in text(this.source(0))


def test_a_copy_that_is_not_what_the_stack_quotes_is_told(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    run = autograd_run(tmp_path / "myrun", model, copy=False)
    this = about(run)
    assert "these are the lines that the stack quotes" in text(this.source(this.position("mm")))
    model.write_text(MODEL)
    sheet = this.source(this.position("mm"))
    assert sheet.path == str(model) and "as it is now" in sheet.notes[0]
    model.write_text("# one line more\n" + MODEL)
    assert "these are the lines that the stack quotes" in text(this.source(this.position("mm")))


def test_the_same_node_at_the_other_stages(run: Run) -> None:
    this = about(run)
    results = {item.stage: (item.name, item.how) for item in this.related.of(this.view, this.position("mm"))}
    assert results == {"dynamo": ("h", "it was made from this"), "post_grad_forward": ("mm", "same name")}
    back = about(run, "0_0/dynamo")
    results = {item.stage: item.name for item in back.related.of(back.view, back.position("l_w_"))}
    assert results == {"forward": "primals_2", "post_grad_forward": "primals_2"}
    shown = text(this.stages(this.position("mm"))).splitlines()
    assert [line.split()[0] for line in shown] == ["dynamo", "forward", "backward", "post_grad_forward"]


def test_a_case_has_no_other_stages(tmp_path: Path) -> None:
    write_graph_folder(tmp_path / "case", chain())
    this = About(SavedGraph(tmp_path / "case"))
    assert "stages" not in this.views
    assert "no other graph" in text(this.stages(1))


def test_a_stage_that_cannot_be_read_is_told_beside_the_others(run: Run) -> None:
    path = run.graph("0_0/post_grad_forward").path / "graph.json"
    path.write_text("{")
    this = about(run)
    shown = text(this.stages(this.position("mm")))
    assert "the file is cut off" in shown and "dynamo             h" in shown


# -- the command


def show(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = command(["show", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_show_node(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    graph = str(run.path / "0_0/forward")
    code, out, _ = show(capsys, graph, "--node", "relu")
    assert code == 0 and "> 6     return torch.relu(h)" in out and "post_grad_forward  relu" in out
    code, out, _ = show(capsys, graph, "--node", "relu", "--json")
    node: dict[str, Any] = json.loads(out)["node"]
    assert node["partners"][0] == {"graph": "0_0/backward", "name": "le", "how": "same seq_nr"}
    assert node["kernels"][0]["kernel"] == "triton_poi_fused_relu_0"
    assert node["source"]["lines"][-1] == "    return torch.relu(h)"
    assert node["symbols"][0]["name"] == "s0" and node["stack"][0]["user"]
    code, out, _ = show(capsys, graph, "--node", "relu", "--code")
    assert code == 0 and "triton_poi_fused_relu_0.run" in out and "extern_kernels.mm" not in out
    code, out, err = show(capsys, graph, "--node", "primals_1", "--code")
    assert code == 0 and out == "" and "in no known kernel" in err


def test_show_node_refuses_what_makes_no_sense(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    graph = str(run.path / "0_0/forward")
    assert show(capsys, graph, "--node", "rel")[0] == 2
    assert "names like it are relu" in show(capsys, graph, "--node", "rel")[2].lower()
    assert show(capsys, graph, "--hops", "2")[0] == 2
    assert show(capsys, graph, "--node", "relu", "--stats")[0] == 2


def test_show_hops_draws_the_neighbourhood(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    graph = str(run.path / "0_0/forward")
    code, out, _ = show(capsys, graph, "--node", "mm", "--hops", "1")
    assert code == 0 and "║ mm " in out and "│ primals_1 " in out and "│ relu" in out
    code, out, _ = show(capsys, graph, "--node", "mm", "--hops", "1", "--json")
    data = json.loads(out)
    assert data["nodes"] == ["primals_1", "primals_2", "mm", "relu"]
    assert sorted(data["edges"]) == [["mm", "relu"], ["primals_1", "mm"], ["primals_2", "mm"]]
