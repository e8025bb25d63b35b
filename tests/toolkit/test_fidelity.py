"""The normal form in which a replay's graphs and code are compared with the recorded ones."""

from __future__ import annotations

from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord, SequenceValue, TensorValue
from graphdbg.toolkit.replaying.fidelity import code_lines, graph_lines


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
