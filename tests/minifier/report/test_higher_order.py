"""Higher-order operators, collectives and autograd functions in a repro: in the form that torch.compile takes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.program import function
from graphdbg.dumps.program.entering import group_lines
from graphdbg.dumps.program.function import program_of
from graphdbg.dumps.schema import GraphBody, GraphRecord, NodeRecord, StoredTensor
from graphdbg.minifier.report.trying import candidates
from graphdbg.toolkit.isolation import fresh
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import CRASH, call, case_of, node, record_of, relu_record, tensor

NEVER = Signature("crash", "compile", "NeverError", "never", raw="never")


def with_bodies(bodies: dict[str, GraphBody], node_record: NodeRecord, inputs: dict[str, Any]) -> GraphRecord:
    """A graph of one call of a higher-order operator, and its bodies."""
    attributes = [NodeRecord(name=name, op="get_attr", target=name) for name in bodies]
    first = call("first", "operator.getitem", node(node_record.name), 0)
    record = record_of(inputs, [*attributes, node_record, first], ["first"])
    record.graph = GraphBody(record.graph.nodes, subgraphs=bodies)
    return record


def body(inputs: list[str], calls: list[NodeRecord], outputs: list[str], **more: Any) -> GraphBody:
    """A nested graph."""
    return record_of({name: tensor(3) for name in inputs}, calls, outputs, **more).graph


def step() -> GraphBody:
    """carry, x -> carry + x, sin(x)."""
    add = call("add", "aten.add.Tensor", node("carry"), node("x"))
    return body(["carry", "x"], [add, call("sin", "aten.sin.default", node("x"))], ["add", "sin"])


def scanned() -> GraphRecord:
    """A running sum."""
    result = call("made", "higher_order.scan", node("step"), [node("init")], [node("xs")], {"tuple": []})
    return with_bodies({"step": step()}, result, {"init": tensor(3), "xs": tensor(5, 3)})


def regions() -> GraphRecord:
    """One compiled region that is called twice, under two names."""
    body_ = body(["x"], [call("sin", "aten.sin.default", node("x"))], ["sin"])
    record = with_bodies(
        {"one": body_, "two": body_}, call("a", function.REGION, node("one"), "r0", node("x")), {"x": tensor(3)}
    )
    nodes = record.graph.nodes
    nodes.insert(-1, call("b", function.REGION, node("two"), "r0", node("first")))
    nodes[-1].args = [{"tuple": [node("b")]}]
    return record


def test_a_scan_goes_through_the_function_of_that_name() -> None:
    source = program_of(scanned()).source
    assert source.startswith("def scan(combine, init, xs, extra):")
    assert "    made = scan(step, [init], [xs], ())" in source
    assert program_of(scanned()).imports == {"torch._higher_order_ops"}


def test_a_region_is_written_once_and_marked() -> None:
    source = program_of(regions()).source
    assert source.count("@torch.compiler.nested_compile_region\ndef region_r0(x):") == 1
    assert "a = region_r0(x)" in source
    assert "b = region_r0(first)" in source


def test_flex_attention_has_its_buffers_in_its_functions() -> None:
    block = "(128, 128, mask_fn)"
    plain = function.rewritten(
        "higher_order.flex_attention", ["q", "k", "v", "score", block, "0.5", "{}", "()", "()"], []
    )
    assert plain is not None
    assert plain.text == "torch.ops.higher_order.flex_attention(q, k, v, score, (128, 128, mask_fn), 0.5, {})"
    closed = function.rewritten(
        "higher_order.flex_attention", ["q", "k", "v", "score", block, "0.5", "{}", "(w,)", "()"], []
    )
    assert closed is not None
    assert "v, lambda *at: score(*at, *(w,)), (128" in closed.text


def test_what_a_loop_gives_back_is_copied() -> None:
    add = call("add", "aten.add.Tensor", node("i"), 1)
    bodies = {
        "cond": body(["i", "y"], [call("lt", "aten.lt.Scalar", node("i"), 4)], ["lt"]),
        "loop": body(["i", "y"], [add], ["add", "y"]),
    }
    result = call(
        "made", "higher_order.while_loop", node("cond"), node("loop"), {"tuple": [node("n"), node("x")]}, {"tuple": []}
    )
    source = program_of(with_bodies(bodies, result, {"n": tensor(), "x": tensor(3)})).source
    assert "    def loop(i, y):\n        y = y.clone()\n" in source
    assert "def cond(i, y):\n        lt" in source


def test_a_constant_of_a_nested_graph_is_a_parameter() -> None:
    weight = NodeRecord(name="weight", op="get_attr", target="weight")
    inner = body(["y"], [weight, call("mul", "aten.mul.Tensor", node("y"), node("weight"))], ["mul"])
    inner.attrs["weight"] = StoredTensor("", tensor(3))
    result = call("made", "higher_order.cond", node("p"), node("yes"), node("yes"), {"tuple": [node("x")]})
    record = with_bodies({"yes": inner}, result, {"p": tensor(), "x": tensor(3)})
    program = program_of(record)
    assert program.constants == {"weight": "yes.weight"}
    assert "def graph(p, x, weight):" in program.source
    assert "torch.randn(3)]" in next(candidates(case_of(record, CRASH))).text


def test_an_autograd_function_is_one_again() -> None:
    forward = body(["x"], [call("sin", "aten.sin.default", node("x"))], ["sin"])
    forward.nodes[-1].args = [{"tuple": [{"tuple": [node("sin")]}, {"tuple": [node("x")]}]}]
    backward = body(["grad", "x"], [call("mul", "aten.mul.Tensor", node("grad"), node("x"))], ["mul"])
    result = call(
        "made",
        function.FUNCTION,
        node("fwd"),
        node("bwd"),
        node("x"),
        non_differentiable_idx=[],
        saved_for_backward_idx=[0],
    )
    source = program_of(with_bodies({"fwd": forward, "bwd": backward}, result, {"x": tensor(3)})).source
    assert "class region_autograd_fwd_function(torch.autograd.Function):" in source
    assert "made = region_autograd_fwd_function.apply(x)" in source
    compile(source, "repro.py", "exec")


@pytest.mark.parametrize(
    ("size", "backend"), [(1, '"gloo", store=torch.distributed.HashStore()'), (4, '"fake", store=FakeStore()')]
)
def test_process_groups_are_made(size: int, backend: str) -> None:
    gather = call("y", "_c10d_functional.all_gather_into_tensor.default", node("x"), size, "1")
    record = record_of({"x": tensor(2)}, [gather], ["y"])
    lines, reported = group_lines(record)
    assert any(f"init_process_group({backend}, rank=0, world_size={size})" in line for line in lines)
    assert lines[-1] == f"    torch.distributed.new_group(list(range({size})))"
    assert reported[0] in next(candidates(case_of(record, CRASH))).text.split('"""')[1]
    assert group_lines(relu_record()) == ([], [])


def test_an_item_is_set_by_a_statement() -> None:
    result = call("y", "operator.setitem", node("x"), {"tuple": [0, {"slice": [None, None, None]}]}, 1.0)
    assert (
        "    x[0, slice(None, None, None)] = 1.0\n"
        in program_of(record_of({"x": tensor(2, 2)}, [result], ["x"])).source
    )


@pytest.mark.parametrize("kind", ["accuracy", "crash", "nan", "metadata"])
def test_five_nodes_take_sixty_lines(kind: str) -> None:
    names = ["x", "a", "b", "c", "d", "e"]
    calls = [call(new, "aten.sin.default", node(old), value=tensor(4, 8)) for old, new in pairwise(names)]
    record = record_of({"x": tensor(4, 8)}, calls, ["e"])
    assert (
        len(next(candidates(case_of(record, Signature(kind, "compare", detail="", raw="it")))).text.splitlines()) <= 60
    )  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("result", [scanned, regions])
def test_they_run_with_torch_alone(result: Any, tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text(next(candidates(case_of(result(), NEVER, rung="nop"))).text)
    trial = fresh.run_once(path)
    assert trial.code == fresh.GONE, trial.output
