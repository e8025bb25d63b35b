"""A program that has compiled autograd on itself: its backwards are recorded whole, can be loaded, and say why they
exist."""

from __future__ import annotations

import json

import pytest
import torch

import graphdbg
from graphdbg.dumps import why
from graphdbg.dumps.why import text

from .conftest import SCRIPTS

pytestmark = pytest.mark.long  # all share one recording

SCRIPT = SCRIPTS / "stock_backward.py"
FIRST, SECOND = "ca0_1_0/dynamo", "ca1_2_0/dynamo"


@pytest.fixture(scope="module")
def run(runner):
    done = runner.dump("stock", "--inputs", "first", "--", str(SCRIPT))
    assert done.code == 0, done.stderr
    assert "not recorded" not in done.stderr, done.stderr
    return done


def test_dynamos_graphs_hold_operators_alone_and_give_the_gradients(run):
    printed = [sorted(map(float, line.split()[1:])) for line in run.stdout.decode().splitlines()]
    for name, gradients in zip((FIRST, SECOND), printed, strict=True):
        saved = graphdbg.open_run(run.run).graph(name)
        assert not [node.target for node in saved.record.graph.nodes if node.target.startswith("opaque:")]
        result = saved.module()(*saved.inputs(seed=0))
        assert sorted(value.sum().item() for value in result) == pytest.approx(gradients, rel=1e-5)


def test_the_graph_that_aotautograd_made_of_it_is_made_again(run):
    opened = graphdbg.open_run(run.run)
    saved = opened.graph(FIRST)
    from graphdbg.toolkit.capture import inference_graph

    with torch.no_grad():
        again = inference_graph(saved.module(), saved.inputs(seed=0))
    recorded = [
        node.target for node in opened.graph("ca0_1_0/inference").record.graph.nodes if node.op == "call_function"
    ]
    built = [str(node.target) for node in again.module.graph.nodes if node.op == "call_function"]
    assert built == recorded


def test_nodes_have_their_autograd_nodes_and_compiled_parts_are_inside(run, runner):
    done = runner.python("-m", "graphdbg", "show", f"{run.run}/{FIRST}", "--json", "--full")
    document = json.loads(done.stdout)
    nodes = {node["name"]: node for node in document["nodes"]}
    part = [node for name, node in nodes.items() if name.startswith("aot0_")]
    assert part and all(node["autograd_node"] == "CompiledFunctionBackward0 (NodeCall 6)" for node in part), part
    origins = {node.get("autograd_node", "").partition(" ")[0] for node in document["nodes"]}
    assert {
        "MeanBackward0",
        "PowBackward0",
        "MmBackward0",
        "SinBackward0",
        "torch::autograd::AccumulateGrad",
    } <= origins
    hooks = {hook["hook"].partition(" ")[0]: hook for hook in document["hooks"]}
    assert hooks["__main__.clip"]["operators"] == 1 and hooks["__main__.count"]["operators"] == 0
    assert (
        hooks["__main__.count"]["kind"] == "tensor_pre_hook"
        and "AccumulateGrad (NodeCall " in hooks["__main__.count"]["node"]
    )
    log = graphdbg.open_run(run.run).graph(FIRST).path / "code" / "compiled_autograd.txt"
    assert "class CompiledAutograd0(" in log.read_text() and "SinBackward0 (NodeCall 5)" in log.read_text()


def test_why_it_was_captured_again_and_what_became_dynamic(run):
    reported = " ".join(text.render(why.of_run(graphdbg.open_run(run.run))).split())
    assert reported.count("captured again:") == 1
    assert "captured again: at CompiledFunctionBackward (NodeCall 6), it differs from earlier ones" in reported


@pytest.mark.slow
def test_it_is_replayed(run):
    saved = graphdbg.open_run(run.run).graph(SECOND)
    for rung in ("debug_nop", "decomposed", "inductor"):
        assert graphdbg.replay(saved, rung=rung).text == "ok", rung
