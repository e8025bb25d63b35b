"""A case that enters from the top: what changes in it, what is never proposed, and that every recorded stage gets
there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import load_graph
from graphdbg.minifier.minify import minify_saved
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.passes import pass_of
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

program = pass_of("program")


def case(f: Any, *inputs: Any, **spec: Any) -> Live:
    return Live(make_fx(f)(*inputs), list(inputs), ReplaySpec(**spec))


def calls(case: Live) -> list[str]:
    nodes = [node for node in case.gm.graph.nodes if node.op.startswith("call_")]
    return [node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?") for node in nodes]


def mixed(x: torch.Tensor) -> tuple[Any, ...]:
    return torch.relu(x).view(-1)[1:], torch.softmax(x, -1), torch.ops.aten.gelu_backward(x, x), None


def test_the_graph_enters_from_the_top_with_functions_of_torch() -> None:
    ambient = Ambient(autocast={"cpu": "bfloat16"}, inference_mode=True, grad=False, matmul_precision="high")
    kwargs = {"is_backward": True, "static_input_idxs": [0]}
    x = torch.randn(2, 3)
    given = case(mixed, x, stage="backward", compile_kwargs=kwargs, ambient=ambient)
    given.inputs[0].requires_grad_()
    given.gm.graph.output_node().meta["user_visible_output_idxs"] = [0]
    (plain,), (entered,) = program.propose(given)
    assert (plain, entered) == ("program torch relu view slice_1 _softmax", "program enter")
    result = program.apply(given, plain)
    assert calls(result) == ["relu", "view", "getitem", "softmax", "gelu_backward.default"]
    assert (result.spec.stage, result.spec.compile_kwargs) == ("dynamo", {})
    assert result.spec.ambient == Ambient(matmul_precision="high"), (
        "what the graph has in it already must not come twice"
    )
    assert not result.inputs[0].requires_grad
    assert not result.gm.graph.output_node().meta
    for item, other in zip(result.gm(*result.inputs), given.gm(*given.inputs), strict=False):
        assert torch.equal(item, other)
    assert len(result.gm(*result.inputs)) == 3, "Dynamo returns no None"
    assert judge(result, "decomposed").text == "ok"
    assert program.propose(result) == []
    assert calls(given)[0] == "relu.default", "the case itself is left alone"
    alone = program.apply(given, entered)
    assert (calls(alone)[0], alone.spec.stage) == ("relu.default", "dynamo")
    assert program.propose(alone) == [[plain]], "a graph of Dynamo's, too, may call aten"


def test_a_node_that_is_not_there_is_no_edit() -> None:
    given = case(lambda x: [x + 1], torch.ones(2))
    for edit in ("program torch sub", "program else"):
        with pytest.raises(ValueError, match="there is no"):
            program.apply(given, edit)


def test_what_would_run_other_code_is_not_proposed() -> None:
    x = torch.ones(2)
    halves = {"num_fwd_outputs": 1}
    assert program.propose(case(lambda x: [x + 1, x * 2], x, stage="joint", compile_kwargs=halves)) == []
    half = case(lambda x: [x * 2], x, stage="joint", compile_kwargs={"num_fwd_outputs": 0})
    assert program.propose(half) == [["program torch mul"], ["program enter"]]
    assert program.propose(case(lambda x: [x * 2], x, compile_kwargs={"cudagraphs": {"opaque": ["Boxed", "?"]}})) == []
    drawn = make_fx(lambda: [torch.ops.prims.inductor_seed(torch.device("cpu"))])()
    assert program.propose(Live(drawn, [], ReplaySpec("post_grad_inference"))) == []


@pytest.mark.slow
def test_the_same_crash_has_the_same_signature_from_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import lowering
    from torch._inductor.virtualized import V

    sine = lowering.lowerings[torch.ops.aten.sin.default]

    def broken(*args: Any) -> Any:
        raise AssertionError("no such thing as a sine")

    def broken_backwards(*args: Any) -> Any:
        return broken() if V.graph.is_backward else sine(*args)

    given = case(lambda x: [torch.sin(x) + 1], torch.randn(2, 3), stage="backward")
    entered = program.apply(given, program.propose(given)[0][0])
    results: list[Any] = []
    for lower in (broken, broken_backwards):
        monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, lower)
        results.append([judge(item, "inductor", lean="compile").signature for item in (given, entered)])
    (here, there), (backwards, gone) = results
    assert here.same_as(there)
    assert here.same_as(backwards)
    assert gone is None, "what only a backward shows is not there any more, so the edit is refused"


def test_symbols_stay() -> None:
    seen: list[Live] = []

    def backend(gm: Any, inputs: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        def inner(gm: Any, inputs: Any) -> Any:
            seen.append(Live(gm, [], ReplaySpec("inference", dynamic=True)))
            return gm

        return aot_autograd(fw_compiler=inner)(gm, inputs)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(lambda x: x.relu() * x.size(0), backend=backend, dynamic=True)(torch.randn(3, 4))
    (given,) = seen
    places = given.gm.graph.find_nodes(op="placeholder")
    given.inputs = [
        torch.randn(3, 4) if isinstance(node.meta["val"], torch.Tensor) else (3, 4)[at]
        for at, node in enumerate(places)
    ]
    (plain,), _ = program.propose(given)
    result = program.apply(given, plain)
    (x,) = (
        node
        for node in result.gm.graph.find_nodes(op="placeholder")
        if isinstance(node.meta["example_value"], torch.Tensor)
    )
    assert [str(size) for size in x.meta["example_value"].shape] == [str(size) for size in places[-1].meta["val"].shape]
    assert result.spec.dynamic
    assert judge(result, "decomposed").text == "ok"


SCRIPT = """
import torch
import torch._inductor.config as config

config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.relu(ctx.saved_tensors[0])


def net(x, one, two):
    return torch.tanh(Gate.apply(torch.relu(x @ one) * 2 + 1) @ two)


torch.manual_seed(0)
x, one, two = torch.randn(5, 4), torch.randn(4, 6, requires_grad=True), torch.randn(6, 3, requires_grad=True)
step = torch.compile(net)
step(x, one, two).sum().backward()
with torch.no_grad():
    step(x, one, two)
net(x, one, two).sum().backward()
"""


STAGES = (
    "dynamo",
    "pre_grad",
    "joint",
    "joint_passed",
    "forward",
    "backward",
    "inference",
    "compiled_autograd",
    "post_grad_forward",
    "post_grad_backward",
    "post_grad_inference",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A graph of each stage, from one run whose relu is compiled wrongly; its backward, too, has one."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(SCRIPT)
    words = ["dump", "-o", "run", "--inputs", "first", "--compiled-autograd", "train.py"]
    subprocess.run([sys.executable, "-m", "graphdbg", *words], cwd=folder, check=True, capture_output=True)
    results: dict[str, Path] = {}
    for path in sorted((folder / "run").rglob("graph.json")):
        results.setdefault(load_graph(path.parent).record.stage, path.parent)
    return results


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_that_is_recorded_ends_as_a_plain_program(
    stage: str, recorded: dict[str, Path], tmp_path: Path
) -> None:
    options = MinifyOptions(without=("needs",), max_queries=80)
    result = minify_saved(load_graph(recorded[stage]), out=tmp_path / "out", options=options)
    saved = load_graph(tmp_path / "out/case")
    assert [node.target for node in saved.record.graph.nodes if node.op.startswith("call_")] == ["torch.relu"]
    assert saved.record.stage == "dynamo"
    assert json.loads((tmp_path / "out/case/case.json").read_text())["spec"].get("recorded_at", "dynamo") == stage
    assert result.verified == (3, 3)
    words = [sys.executable, "-m", "graphdbg", "replay", tmp_path / "out/case"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1, "it fails"
