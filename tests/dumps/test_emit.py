"""graph.py: a program of torch alone that computes what the graph computes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule

import graphdbg
from graphdbg.dumps import live
from graphdbg.dumps.errors import GraphdbgError
from graphdbg.dumps.program import module
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord

from .live_graphs import Block, caught, fresh, same
from .test_roundtrip import MODELS, Tower


def run(folder: Path) -> tuple[Any, list[Any]]:
    """Runs graph.py's own functions in this process; returns its graph and its inputs."""
    path = folder / "graph.py"
    scope: dict[str, Any] = {"__name__": "graph", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["Graph"](), scope["inputs"]()


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_the_program_computes_the_same(name: str, tmp_path: Path) -> None:
    function, args, backward = MODELS[name]
    for number, (stage, gm, _) in enumerate(caught(function, *args, backward=backward)):
        record = live.encode(gm, id=f"0_0/{stage}", stage=stage)
        inputs = live.inputs(record, None, None, 0)
        live.save_graph(gm, inputs, tmp_path / str(number), like=record)
        graph, own = run(tmp_path / str(number))
        assert same([t.detach() if isinstance(t, torch.Tensor) else t for t in own], fresh(inputs))
        torch.manual_seed(1)
        expected = gm(*fresh(inputs))
        torch.manual_seed(1)
        assert same(graph(*fresh(inputs)), expected)


def test_leaf_modules_and_constants(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(Tower().eval())
    inputs = [torch.randn(2, 3, 8, 8), torch.randint(0, 7, (2, 3))]
    live.save_graph(gm, inputs, tmp_path / "case")
    graph, own = run(tmp_path / "case")
    assert same(graph(*own), gm(*inputs))


def test_an_input_that_is_no_finite_number(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(lambda x, low, odd: (x * low, x * odd))
    live.save_graph(gm, [torch.ones(2), -math.inf, math.nan], tmp_path / "case")
    graph, own = run(tmp_path / "case")
    assert own[1] == -math.inf and math.isnan(own[2])
    assert same(graph(*own)[0], torch.full((2,), -math.inf))


@pytest.mark.slow
def test_it_runs_by_itself_without_graphdbg(tmp_path: Path) -> None:
    stage, gm, _ = caught(Block(), torch.randn(4, 8, requires_grad=True), dynamic=True)[1]
    live.save_graph(gm, live.inputs(live.encode(gm, id="0_0/forward", stage=stage), None, None, 0), tmp_path / "case")
    program = tmp_path / "case/graph.py"
    assert "graphdbg." not in program.read_text().replace("saved by graphdbg", "")
    done = subprocess.run([sys.executable, "-I", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output[0]: torch.float32")
    (tmp_path / "case/inputs.json").unlink()  # then the inputs are made up
    assert subprocess.run([sys.executable, "-I", str(program)], capture_output=True).returncode == 0


def test_what_has_no_form_in_a_program_is_named(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(lambda y: y, (x,)))
    gm = GraphModule({}, graph)
    with pytest.raises(GraphdbgError, match="lambda"):
        module.program(live.encode(gm, id="0_0/forward", stage="forward"))
    live.save_graph(gm, [torch.randn(2)], tmp_path / "case")  # the graph is saved nevertheless
    assert graphdbg.load_graph(tmp_path / "case").record.graph.nodes


def test_names_that_the_program_needs_are_not_hidden(tmp_path: Path) -> None:
    graph = Graph()
    names = ["torch", "operator", "constant", "self_1", "Graph"]
    inputs = [graph.placeholder(name) for name in names]
    total = inputs[0]
    for value in inputs[1:]:
        total = graph.call_function(torch.ops.aten.add.Tensor, (total, value))
    graph.output((total,))
    gm = GraphModule({}, graph)
    values = [torch.full((2,), float(i)) for i in range(len(names))]
    live.save_graph(gm, values, tmp_path / "case")
    module, own = run(tmp_path / "case")
    assert module(*own)[0].tolist() == [10.0, 10.0]


HOSTILE = [
    NodeRecord(name="x\n", op="placeholder", target="x"),
    NodeRecord(name="a", op="call_method", target="f()\nimport os", args=[1]),
    NodeRecord(name="a", op="call_function", target="os.system('x')"),
    NodeRecord(name="a", op="call_function", target="builtins.eval", args=["1"]),
    NodeRecord(name="a", op="call_function", target="aten.sin.default", kwargs={"a=1, b": 1}),
    NodeRecord(name="a", op="call_function", target="aten.sin.default", args=[{"dtype": "float32, evil()"}]),
    NodeRecord(name="a", op="call_function", target="aten.sin.default", args=[{"device": "cpu') or evil('"}]),
    NodeRecord(name="a", op="call_function", target="aten.sin.default", args=[{"sym": ["int", "evil()"]}]),
    NodeRecord(name="a", op="get_attr", target="w\nimport os"),
]


@pytest.mark.parametrize("node", HOSTILE, ids=lambda node: repr((node.name, node.target))[:40])
def test_nothing_but_checked_names_reaches_the_program(node: NodeRecord) -> None:
    end = NodeRecord(name="output", op="output", target="output", args=[1])
    record = GraphRecord(format=FORMAT, id="0_0/forward", stage="forward", graph=GraphBody(nodes=[node, end]))
    with pytest.raises(GraphdbgError):
        module.program(record)


def test_texts_of_the_record_stay_texts() -> None:
    text = '"""\nimport os\nos.system("x")\n#'
    node = NodeRecord(name="a", op="call_function", target="aten.sin.default", args=[text], stack=0)
    record = GraphRecord(
        format=FORMAT,
        id="0_0/forward",
        stage="forward",
        strings=[f'  File "a.py", line 1, in f\n    {text}'],
        versions={"torch": text},
        graph=GraphBody(nodes=[node, NodeRecord(name="output", op="output", target="output")]),
    )
    import ast

    tree = ast.parse(module.program(record))
    imported = {name.name for item in ast.walk(tree) if isinstance(item, ast.Import) for name in item.names}
    assert "os" not in imported
