"""What a captured graph keeps of the function: its lines, buffers that it assigns, the order of effects, subclasses,
roles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._functorch.aot_autograd import aot_export_module

import graphdbg
from graphdbg import cli
from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.capture import inference_graph, joint_graph

from . import programs
from .scaled import Scaled

HERE = Path(__file__).parent


def line_of(node: Any) -> str:
    return str(node.meta.get("stack_trace", "")).rstrip().splitlines()[-1].strip() if "stack_trace" in node.meta else ""


def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.add_(1)  # the write
    return x * y


@pytest.mark.parametrize("keep", [False, True])
def test_a_write_keeps_its_line(keep: bool) -> None:
    captured = inference_graph(adds, (torch.randn(2), torch.randn(2)), keep_mutations=keep)
    written = [node for node in captured.module.graph.nodes if node.name in ("add", "copy_")]
    assert [line_of(node) for node in written] == ["y.add_(1)  # the write"] * (2 if keep else 1)


def test_a_backward_node_has_the_line_of_its_forward() -> None:
    captured = joint_graph(lambda x: programs.Cubed.apply(x.sin()).sum(), (programs.leaf(3),))
    of = {node.name: line_of(node) for node in captured.module.graph.nodes}
    assert of["pow_1"] == "return x**3"
    assert of["pow_2"] == "return grads[0] * 3 * ctx.saved_tensors[0] ** 2"
    assert of["cos"] == of["sin"] != ""


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = programs.Counts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@pytest.mark.parametrize(("module", "name"), [(programs.Counts(), "seen"), (Inner(), "inner.seen")])
def test_an_assigned_buffer_is_an_output(module: torch.nn.Module, name: str, tmp_path: Path) -> None:
    x = torch.randn(1, 2)
    captured = inference_graph(module, (x,))
    assert captured.mutated == [name]
    assert (captured.outputs_described[0].kind, captured.outputs_described[0].source) == ("mutation", name)
    assert captured.raw_metadata.num_mutated_inp_runtime_indices == 1
    saved = graphdbg.load_graph(captured.save(tmp_path / "case"))
    result = saved.module()(*saved.inputs())
    assert module.get_buffer(name) == 0  # capture leaves the module as it was
    expected = module(x)
    assert torch.equal(result[0], module.get_buffer(name)) and torch.equal(result[1], expected)
    module.get_buffer(name).zero_()


def test_an_assigned_buffer_is_where_torch_export_puts_it() -> None:
    class Root(torch.nn.Module):
        """What torch.export hands to AOTAutograd: a module that holds the exported one."""

        def __init__(self, root: torch.nn.Module) -> None:
            super().__init__()
            self._export_root = root

        def forward(self, x: torch.Tensor) -> Any:
            return (self._export_root(x),)

    module, x = programs.Counts(), torch.randn(1, 2)
    theirs: Any = aot_export_module(Root(module), (x,), trace_joint=False)[0]
    ours = inference_graph(module, (x,)).module
    assert [(n.op, str(n.target), str(n.args)) for n in ours.graph.nodes] == [
        (n.op, str(n.target), str(n.args)) for n in theirs.graph.nodes
    ]


def test_what_a_graph_does_not_hold_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    counts, keeps = programs.Counts(), programs.Keeps()
    joint = joint_graph(counts, (torch.randn(1, 2),))
    assert "seen is reassigned" in joint.notes[0] and "copy_" in joint.notes[0]
    assert torch.equal(counts.get_buffer("seen"), torch.zeros(()))
    captured = inference_graph(keeps, (torch.randn(2),))
    assert captured.notes == ["the function sets last to a tensor; the graph does not contain that"]
    assert "last" not in keeps.__dict__, "a fake tensor was left on the module"
    captured.save(tmp_path / "case")
    assert "sets last to a tensor" in capsys.readouterr().err


def test_effects_keep_their_order() -> None:
    programs.CALLS.clear()
    captured = joint_graph(programs.in_order, (programs.leaf(3),))
    assert [item.role for item in captured.inputs_described] == ["token", "user", "tangent"]
    assert [output.kind for output in captured.outputs_described] == ["token", "user", "gradient"]
    effects = [node for node in captured.module.graph.nodes if "with_effects" in str(node.target)]
    assert [node.args[-1] for node in effects] == ["first", "second"]
    assert effects[1].args[0].args[0] is effects[0], "the second takes the first's token"
    values = captured.values()
    captured.module(values[:2], values[2:])
    assert programs.CALLS == ["first", "second"]


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return programs.announce(grads[0], "backward")


def test_an_effect_of_the_backward_has_a_token_of_its_own() -> None:
    captured = joint_graph(lambda x: InBackward.apply(programs.announce(x, "forward")).sum(), (programs.leaf(3),))
    assert [item.role for item in captured.inputs_described] == ["token", "user", "tangent", "token"]
    assert [output.kind for output in captured.outputs_described] == ["token", "user", "gradient", "token"]
    assert len(captured.values()) == 4


def test_tokens_are_made_inside_where_torch_is_told_so() -> None:
    with torch._functorch.config.patch(unlift_effect_tokens=True):
        captured = inference_graph(programs.in_order, (programs.leaf(3),))
    assert [item.role for item in captured.inputs_described] == ["user"]
    assert [(output.kind, output.source) for output in captured.outputs_described] == [("user", "output[0]")]
    targets = [str(node.target) for node in captured.module.graph.nodes]
    assert "prims._make_token.default" in targets and "prims._sink_tokens.default" in targets


def test_a_subclass_is_taken_apart_and_computes_the_same() -> None:
    x, y = Scaled.of(torch.randn(2, 3)).requires_grad_(), torch.randn(2, 3)
    captured = inference_graph(programs.two, (x, y))
    assert [item.source for item in captured.inputs_described] == ["args[0].values_", "args[0].scale_", "args[1]"]
    values = captured.values()
    assert values[0].dtype == torch.float8_e4m3fn
    assert torch.equal(captured.module(*values)[0], programs.two(x, y).detach())


def test_arguments_of_one_storage_keep_their_values(tmp_path: Path) -> None:
    f, args, _ = programs.arguments("one storage, written")
    before = args[0]._base.clone()
    captured = inference_graph(f, args)
    assert [item.source for item in captured.inputs_described] == ["args[0]._base", "args[2]"]
    assert torch.equal(captured.values()[0], before)
    result = captured.module(*captured.values())
    assert torch.equal(result[1], f(*args).detach())
    assert torch.equal(result[0], args[0]._base)


def test_show_tells_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joint_graph(programs.batch_norm(), (torch.randn(3, 4),)).save(tmp_path / "case")
    assert cli.run(["show", str(tmp_path / "case")]) == 0
    out = capsys.readouterr().out
    for text in (
        "parameter 0.weight",
        "buffer 1.running_mean",
        "user args[0]",
        "tangent of output[0]",
        "mutation of 1.running_var",
        "gradient of 1.bias",
    ):
        assert text in out
    assert cli.run(["show", str(tmp_path / "case"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["nodes"][0]["role"] == "parameter 0.weight"
    assert document["outputs"][3] == {"index": 3, "name": "relu", "kind": "user", "of": "output[0]"}
    assert document["outputs"][-1]["of"] == "1.bias" and len(document["outputs"]) == 8


@pytest.mark.slow
def test_two_ranks_of_dtensors(tmp_path: Path) -> None:
    """Two processes with gloo; the cases are loaded in a third one."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[2])}
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                str(HERE / "dtensor_rank.py"),
                str(rank),
                str(tmp_path / "meet"),
                str(tmp_path / f"case{rank}"),
            ],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    for rank in range(2):
        document = json.loads((tmp_path / f"case{rank}.json").read_text())
        assert document["equal"] and document["is_dtensor"] and document["local"] == [3, 4]
        assert document["collectives"] == [
            "_c10d_functional.all_reduce.default",
            "_c10d_functional.wait_tensor.default",
        ]
        saved = graphdbg.load_graph(tmp_path / f"case{rank}")
        assert [item.role for item in saved.record.inputs] == ["parameter"] * 4 + ["user", "tangent"]
        assert [node.name for node in saved.module().graph.nodes if "c10d" in str(node.target)] == [
            "all_reduce",
            "wait_tensor",
        ]
        assert [list(value.shape) for value in saved.inputs()] == [[3, 4], [3], [2, 3], [2], [3, 4], [3, 2]]


def test_an_object_that_a_node_computes_with_cannot_be_saved() -> None:
    from graphdbg.toolkit.capture.aot import without_objects

    gm = torch.fx.symbolic_trace(lambda mesh, x: (torch.add(x, mesh), mesh))
    with pytest.raises(UsageError, match="add computes with mesh"):
        without_objects(gm, [object(), torch.ones(2)])
    passed, places = without_objects(torch.fx.symbolic_trace(lambda mesh, x: (x + 1, mesh)), [object(), torch.ones(2)])
    assert places == [1] and passed(torch.ones(2))[1] is None
