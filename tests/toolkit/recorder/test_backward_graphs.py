"""`graphdbg dump --compiled-autograd` on a script that compiles nothing: the script is as it was, its backwards are
graphs."""

from __future__ import annotations

import json

import pytest

import graphdbg

pytestmark = pytest.mark.long  # all share one recording


@pytest.fixture(scope="module")
def plain(runner):
    return runner.script("eager_backward.py")


@pytest.fixture(scope="module")
def run(runner, plain):
    from .conftest import SCRIPTS

    done = runner.dump(
        "backwards", "--inputs", "first", "--compiled-autograd", "--", str(SCRIPTS / "eager_backward.py")
    )
    assert done.code == 0, done.stderr
    return done


def test_the_script_is_as_it_was(plain, run):
    assert run.stdout == plain.stdout
    assert "not recorded" not in run.stderr


def test_each_new_backward_is_a_graph(run):
    assert run.graphs() == {"ca0_0/compiled_autograd", "ca1_0/compiled_autograd"}
    assert "is fed with [2, 7, 3] instead of [2, 5, 3]" in run.stderr


def test_nodes_have_autograd_nodes_hooks_and_lines(run):
    record = graphdbg.open_run(run.run).graph("ca0_0/compiled_autograd").record
    calls = [node for node in record.graph.nodes if node.op == "call_function"]
    assert all("(NodeCall " in node.meta["autograd_node"] for node in calls)
    relu = next(node for node in calls if node.target == "aten.relu.default")
    assert relu.meta["hook"].startswith("__main__.clip (eager_backward.py:")
    norm = next(node for node in calls if node.target == "aten.native_layer_norm_backward.default")
    assert 'eager_backward.py", line 33' in record.strings[norm.stack]
    assert record.ambient.grad is False


def test_show_names_inputs_gradients_and_passes(run, runner):
    done = runner.python("-m", "graphdbg", "show", f"{run.run}/ca0_0/compiled_autograd", "--json")
    document = json.loads(done.stdout)
    assert {"kind": "gradient", "of": "3.bias", "index": 0, "name": "grad_3_bias"} in document["outputs"]
    assert "parameter 1.weight (a view)" in {node.get("role") for node in document["nodes"]}
    text = runner.python("-m", "graphdbg", "show", f"{run.run}/ca0_0/compiled_autograd")
    assert "accumulate_grad_in_eager_order moved" in text.stderr
    assert "clip (eager_backward.py:" in text.stdout.decode()


def test_it_is_replayed(run):
    saved = graphdbg.open_run(run.run).graph("ca1_0/compiled_autograd")
    assert graphdbg.replay(saved, rung="decomposed").text == "ok"


@pytest.mark.slow
def test_it_is_replayed_by_compilers(run):
    saved = graphdbg.open_run(run.run).graph("ca0_0/compiled_autograd")
    for rung in ("eager", "debug_nop", "torchscript", "inductor_nofuse", "inductor"):
        assert graphdbg.replay(saved, rung=rung).text == "ok", rung


def test_it_is_drawn_beside_its_forward(run):
    from graphdbg.toolkit.drawing import picture

    forward, backward, links = picture.of(graphdbg.open_run(run.run).graph("ca0_0/compiled_autograd"))
    names = {node.base for node in forward.graph.nodes}
    assert {"embedding", "addmm", "native_layer_norm", "square", "mean"} <= names
    view = picture.side_by_side(forward, backward, links)
    assert links and any("gradient of native_layer_norm" in line for box in view.boxes for line in box.lines)


@pytest.mark.slow  # any other recorded training run has no such graph, and its test says which it has
def test_without_the_flag_nothing_of_it_is_recorded(runner):
    from .conftest import SCRIPTS

    done = runner.dump("without", "--", str(SCRIPTS / "eager_backward.py"))
    assert done.code == 0 and done.graphs() == set()


def test_a_stage_that_is_left_out_is_told_at_once():
    from graphdbg.dumps.errors import UsageError
    from graphdbg.toolkit.recorder.options import Options, checked

    with pytest.raises(UsageError, match="--compiled-autograd would record nothing"):
        checked(Options(run="r", stages=["forward"], compiled_autograd=True))
    assert checked(Options(run="r", stages=["forward", "compiled_autograd"], compiled_autograd=True)).compiled_autograd
