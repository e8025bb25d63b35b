"""The normal form in which a replay's graphs and code are compared with the recorded ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.dumps.live import encode
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord, SequenceValue, TensorValue
from graphdbg.dumps.tensors import TensorStore
from graphdbg.toolkit.replaying.fidelity import CompiledArtifacts, _as_kept, code_lines, graph_lines


def lines(stride: int, storage: int | None) -> list[str]:
    value = TensorValue(dtype="float32", shape=[2, 2], stride=[stride, 1], storage=storage)
    node = NodeRecord(name="x", op="placeholder", target="x", value=SequenceValue(kind="tuple", items=[value]))
    return graph_lines(GraphRecord(format=FORMAT, id="0_0/forward", stage="forward", graph=GraphBody(nodes=[node])))


def test_numbers_of_storages_inside_tuples_are_not_compared_and_strides_are() -> None:
    assert lines(2, 4) == lines(2, None)
    assert lines(2, 4) != lines(4, 4)


def test_the_benchmark_behind_the_code_is_not_compared_and_the_code_is() -> None:
    code = "def call(args):\n    buf0 = empty(3)\n"
    assert code_lines(code + "\ndef get_args():\n    arg0_1 = 42\n") == code_lines(code)
    assert code_lines(code.replace("3", "4")) != code_lines(code)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_constant_is_compared_by_its_bytes_where_the_run_kept_them(tmp_path: Path, keeps: bool) -> None:
    def with_constant(values: list[int]) -> fx.GraphModule:
        owner, graph = torch.nn.Module(), fx.Graph()
        owner.register_buffer("held", torch.tensor(values))
        graph.output((graph.get_attr("held"),))
        return fx.GraphModule(owner, graph)

    class Some(TensorStore):
        def accepts(self, size_bytes: int) -> bool:
            return keeps

    record = encode(with_constant([0, -1]), id="0_0/x", stage="post_grad_inference", sink=Some(tmp_path))
    recorded = graph_lines(record)
    for values in ([0, -1], [0, 1]):
        replayed = CompiledArtifacts()
        replayed._post_grad(with_constant(values))
        same = values == [0, -1] or not keeps
        assert (_as_kept(replayed.graphs[0], recorded) == recorded) is same


def test_where_a_constant_tensor_lies_in_memory_is_not_compared_and_its_layout_is() -> None:
    code = "_tensor_constant0 = None  # device(type='cpu') torch.int64 (3, 4) (4, 1) 7f7ffc747390\n"
    assert code_lines(code.replace("7f7ffc747390", "560a12")) == code_lines(code)
    assert code_lines(code.replace("(3, 4)", "(4, 3)")) != code_lines(code)


def test_a_graph_without_kernels_has_no_code_to_compare(tmp_path: Path) -> None:
    file = tmp_path / "output_code.py"
    file.write_text("def call(args):\n    buf0 = empty(3)\n")
    run: Any = [("backward", SimpleNamespace(id="0_0/backward", stage="backward", code_files=lambda: [file]))]
    replayed = CompiledArtifacts()
    for text in ("", file.read_text()):  # the forward returns its inputs
        replayed._source(text)
    assert replayed._compared(run, whole=True, code=True) == "same"
