"""Values that are no plain tensors: sparse and quantised ones, ragged sizes, device meshes, replaced symbols."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.immutable_collections import immutable_list

import graphdbg
from graphdbg.dumps import live
from graphdbg.dumps.errors import EnvironmentLackError, RefusedError, UnreadableError
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord, OpaqueValue, SymbolRecord, TensorValue
from graphdbg.dumps.torchside import live_values, values
from graphdbg.dumps.torchside.live_values import Symbols
from graphdbg.toolkit.capture import inference_graph


def record_of(*nodes: NodeRecord, **more: Any) -> GraphRecord:
    return GraphRecord(
        format=FORMAT, id="x0_0/inference", stage="inference", graph=GraphBody(nodes=list(nodes)), **more
    )


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([[0.0, 1.5, 0.0], [2.0, 0.0, -3.0]]).to_sparse(),
        torch.tensor([[0.0, 1.5, 0.0], [2.0, 0.0, -3.0]]).to_sparse_csr(),
        torch.tensor([[0, 1, 0], [2, 0, -3]]).to_sparse_csc(),
        torch.zeros(2, 0, 3).to_sparse(),
    ],
    ids=["coo", "csr", "csc", "empty"],
)
def test_a_sparse_input_comes_back(value: torch.Tensor, tmp_path: Path) -> None:
    graphdbg.save_graph(torch.fx.symbolic_trace(lambda x: x), [value], tmp_path / "case")
    (result,) = graphdbg.load_graph(tmp_path / "case").inputs()
    assert (result.layout, result.dtype, result.shape) == (value.layout, value.dtype, value.shape)
    assert torch.equal(result.to_dense(), value.to_dense())


def test_bytes_that_make_no_sparse_tensor_are_refused() -> None:
    value = TensorValue(dtype="float32", shape=[2, 2], layout="sparse_coo")
    far = torch.tensor([7, 7]).view(torch.uint8)
    for wrong in (torch.zeros(5, dtype=torch.uint8), torch.cat([far, torch.zeros(4, dtype=torch.uint8)])):
        with pytest.raises(UnreadableError):
            live_values.unpacked(wrong.untyped_storage(), value, torch.float32, "case")


def test_a_quantised_input_is_loaded_and_refused_where_it_would_be_traced(tmp_path: Path) -> None:
    value = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.qint8)
    graphdbg.save_graph(torch.fx.symbolic_trace(lambda q: q.dequantize()), [value], tmp_path / "case")
    saved = graphdbg.load_graph(tmp_path / "case")
    assert torch.equal(saved.module()(*saved.inputs()), value.dequantize())
    with pytest.raises(EnvironmentLackError, match="cannot trace quantised"):
        live.fake_module(saved.record, saved.tensors)


def test_the_ragged_size_of_a_nested_tensor_is_kept_as_its_number() -> None:
    ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged).size(1)
    gm = torch.fx.symbolic_trace(lambda n: n)
    (seen,) = live.observe(gm, [ragged], "first", None).inputs
    assert seen.scalar == ragged.node.nested_int()


def test_a_mesh_that_is_only_handed_through_has_a_stand_in() -> None:
    mesh = NodeRecord(name="mesh", op="placeholder", target="mesh", value=OpaqueValue(type=values.TRACED))
    out = NodeRecord(name="output", op="output", target="output", args=[{"tuple": [{"node": "mesh"}]}])
    record = record_of(mesh, out)
    (real,) = live.inputs(record, None, None)
    assert live.module(record, None)(real) == (real,)
    assert type(live.fake_module(record, None)[1][0]).__name__ == "FakeScriptObject"


def test_a_mesh_that_is_used_is_refused_by_its_name() -> None:
    mesh = NodeRecord(name="mesh", op="placeholder", target="mesh", value=OpaqueValue(type=values.TRACED))
    call = NodeRecord(name="size", op="call_method", target="size", args=[{"node": "mesh"}])
    out = NodeRecord(name="output", op="output", target="output", args=[{"node": "size"}])
    with pytest.raises(RefusedError, match="FakeScriptObject cannot be saved"):
        live.inputs(record_of(mesh, call, out), None, None)


def test_a_symbol_that_was_replaced_is_replaced_after_loading() -> None:
    u0 = SymbolRecord(name="u0", backed=False, assume="integer")
    u1 = SymbolRecord(name="u1", backed=False, assume="integer", replacement="u0")
    symbols = Symbols(record_of(symbols=[u0, u1]), "case")
    assert str(symbols.sym("int", "u1").node.expr) == "u0"


def test_what_a_write_was_traced_with_has_lists_of_the_kind_that_arguments_have(tmp_path: Path) -> None:
    library = torch.library.Library("graphdbg_odd_values", "DEF")
    library.define("add_into(Tensor x, Tensor(a!) out) -> ()")

    def add_into(x: torch.Tensor, out: torch.Tensor) -> None:
        out.add_(x)

    library.impl("add_into", add_into, "CompositeExplicitAutograd")

    def function(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        mine = out + 1
        torch.ops.graphdbg_odd_values.add_into(x, mine)
        return mine * 2

    inference_graph(function, (torch.ones(2), torch.ones(2))).save(tmp_path / "case")
    saved = graphdbg.load_graph(tmp_path / "case")
    gm, _, _ = live.fake_module(saved.record, saved.tensors)
    (node,) = [node for node in gm.graph.nodes if "auto_functionalized" in node.name]
    _, keywords = node.meta["eager_input_vals"]
    assert type(keywords["_all_bases"]) is immutable_list is type(node.kwargs["_all_bases"])
