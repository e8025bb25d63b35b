"""Inputs that are made up, and what is kept of real ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphdbg.dumps import live
from graphdbg.dumps.schema import (
    FORMAT,
    GraphBody,
    GraphRecord,
    InputRecord,
    InputsRecord,
    NodeRecord,
    SymbolRecord,
    SymValue,
    TensorValue,
)

from .graphs import MemoryTensors

_DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 "
    "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 complex32 complex64 complex128 quint8 "
    "qint8 qint32 bits8"
)
DTYPES = [name for name in _DTYPES.split() if hasattr(torch, name)]


def graph_of(
    *values: Any, symbols: list[SymbolRecord] | None = None, nodes: list[NodeRecord] | None = None
) -> GraphRecord:
    placeholders = [NodeRecord(name=f"x_{i}", op="placeholder", target=f"x_{i}", value=v) for i, v in enumerate(values)]
    output = NodeRecord(name="output", op="output", target="output", args=[{"tuple": []}])
    return GraphRecord(
        format=FORMAT,
        id="0_0/forward",
        stage="forward",
        graph=GraphBody(nodes=[*placeholders, *(nodes or []), output]),
        symbols=symbols or [],
    )


def one(of: TensorValue, seed: int = 0, **seen: Any) -> torch.Tensor:
    inputs = InputsRecord(format=FORMAT, inputs=[InputRecord(name="x_0", **seen)]) if seen else None
    return live.inputs(graph_of(of), inputs, None, seed)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    value = TensorValue(dtype=dtype, shape=[3, 4], stride=[4, 1])
    result = one(value)
    assert str(result.dtype) == f"torch.{dtype}"
    assert result.shape == (3, 4)
    bits = [t.contiguous().untyped_storage().tolist() for t in (result, one(value), one(value, seed=1))]
    assert bits[0] == bits[1]
    assert bits[0] != bits[2]
    assert len(set(bits[0])) > 1


@pytest.mark.parametrize(
    ("shape", "stride", "offset"),
    [
        ([2, 3], [3, 1], 0),
        ([2, 3], [1, 2], 0),
        ([2, 3], [0, 1], 0),
        ([4, 4], [1, 1], 5),
        ([], [], 7),
        ([0, 3], [3, 1], 0),
        ([2, 3, 4, 5], [60, 1, 15, 3], 2),
        ([5], [0], 0),
    ],
)
def test_stride_offset_and_overlap_are_true(shape: list[int], stride: list[int], offset: int) -> None:
    result = one(TensorValue(dtype="float32", shape=[*shape], stride=[*stride], offset=offset))
    assert (list(result.shape), list(result.stride()), result.storage_offset()) == (shape, stride, offset)


def test_storages_larger_than_the_view_can_be_seen_through() -> None:
    result = one(TensorValue(dtype="float32", shape=[2], stride=[1], storage_bytes=64))
    assert result.untyped_storage().nbytes() == 64
    assert result.as_strided((16,), (1,)).shape == (16,)


def test_inputs_of_one_group_share_memory() -> None:
    a = TensorValue(dtype="float32", shape=[4, 4], stride=[4, 1], storage=0)
    b = TensorValue(dtype="float32", shape=[4], stride=[5], storage=0)
    c = TensorValue(dtype="int32", shape=[2], stride=[1], offset=3, storage=0)
    result = live.inputs(graph_of(a, b, c), None, None, 0)
    result[0].fill_(3.0)
    assert result[1].tolist() == [3.0] * 4
    assert result[2].tolist() == [0x40400000] * 2


def test_statistics_steer_the_values() -> None:
    value = TensorValue(dtype="float32", shape=[1000], stride=[1])
    result = one(value, value=value, statistics={"min": 2.0, "max": 6.0, "mean": 4.0, "std": 0.5, "nan": 3, "inf": 2})
    finite = result[torch.isfinite(result)]
    assert float(finite.min()) >= 2.0
    assert float(finite.max()) <= 6.0
    assert abs(float(finite.mean()) - 4.0) < 0.1
    assert int(result.isnan().sum()) in (2, 3)
    ints = TensorValue(dtype="int64", shape=[1000], stride=[1])
    drawn = one(ints, value=ints, statistics={"min": -3, "max": 5})
    assert {int(v) for v in drawn.unique()} == set(range(-3, 6))


@pytest.mark.parametrize("target", ["gather", "scatter_", "index_add_"])
@pytest.mark.parametrize("named", [False, True])
def test_indices_of_a_method_in_place_or_by_name_stay_inside(target: str, named: bool) -> None:
    table, index = TensorValue("float32", [7, 3], [3, 1]), TensorValue("int64", [50], [1])
    given = {"args": [{"node": "x_0"}], "kwargs": {"dim": 1, "index": {"node": "x_1"}}}
    given = given if named else {"args": [{"node": "x_0"}, 1, {"node": "x_1"}]}
    call = NodeRecord(name="e", op="call_method", target=target, **given)  # type: ignore[arg-type]
    tensor = live.inputs(graph_of(table, index, nodes=[call]), None, None, 0)[1]
    assert tensor.unique().tolist() == [0, 1, 2]


def test_indices_stay_inside_what_they_index() -> None:
    table, index = TensorValue("float32", [7, 3], [3, 1]), TensorValue("int64", [50], [1])
    nodes = [
        NodeRecord(name="view", op="call_function", target="aten.view.default", args=[{"node": "x_1"}, [50]]),
        NodeRecord(
            name="e", op="call_function", target="aten.embedding.default", args=[{"node": "x_0"}, {"node": "view"}]
        ),
    ]
    tensor = live.inputs(graph_of(table, index, nodes=nodes), None, None, 0)[1]
    assert int(tensor.max()) == 6
    assert int(tensor.min()) == 0


def test_symbols_take_their_hints_or_what_was_seen() -> None:
    symbols = [SymbolRecord("s0", hint=5, lower=2), SymbolRecord("u1", backed=False, lower=0)]
    record = graph_of(
        SymValue("int", "s0", 5),
        TensorValue("float32", ["s0", "2*s0 + 1"], ["2*s0 + 1", 1]),
        TensorValue("float32", ["u1"], [1]),
        symbols=symbols,
    )
    count, matrix, vector = live.inputs(record, None, None, 0)
    assert (count, matrix.shape, vector.shape) == (5, (5, 11), (4,))
    seen = InputsRecord(format=FORMAT, inputs=[InputRecord(name="x_0", scalar=3)])
    assert live.inputs(record, seen, None, 0)[1].shape == (3, 7)


def test_dropping_an_input_does_not_change_the_others() -> None:
    value = TensorValue("float32", [5], [1])
    both = live.inputs(graph_of(value, value), None, None, 0)
    assert torch.equal(live.inputs(graph_of(value), None, None, 0)[0], both[0])
    assert not torch.equal(both[0], both[1])


REAL: dict[str, torch.Tensor] = {
    "plain": torch.randn(3, 4),
    "transposed view": torch.randn(4, 5).t()[1:, ::2],
    "expanded": torch.randn(3, 1).expand(3, 7),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "imaginary part": torch.randn(3, dtype=torch.complex64).conj().imag,
    "float8": torch.randn(4).to(torch.float8_e4m3fn),
    "empty": torch.empty(0, 3),
    "number": torch.tensor(2.5),
    "quantised": torch.quantize_per_tensor(torch.randn(3, 2), 0.1, 3, torch.quint8),
    "quantised by channel": torch.quantize_per_channel(
        torch.randn(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
    ),
    "parameter": torch.nn.Parameter(torch.randn(2)),
}


@pytest.mark.parametrize("name", REAL)
def test_stored_inputs_come_back_whole(name: str) -> None:
    real = REAL[name]
    record = graph_of(None)
    sink = MemoryTensors()
    seen = live.observe(record, [real], "first", sink)
    (again,) = live.inputs(record, seen, sink, 0)
    assert type(again) is type(real)
    assert (again.dtype, again.shape, again.stride(), again.storage_offset()) == (
        real.dtype,
        real.shape,
        real.stride(),
        real.storage_offset(),
    )
    assert (again.is_conj(), again.is_neg(), again.requires_grad) == (real.is_conj(), real.is_neg(), real.requires_grad)
    left, right = (t.dequantize() if t.is_quantized else t for t in (again, real))
    assert torch.equal(left.to(torch.complex64), right.to(torch.complex64))


def test_stored_inputs_keep_their_aliasing() -> None:
    base = torch.randn(4, 4)
    record, sink = graph_of(None, None, None), MemoryTensors()
    seen = live.observe(record, [base, base.t(), base.clone()], "all", sink)
    a, b, c = live.inputs(record, seen, sink, 0)
    a.zero_()
    assert not b.any()
    assert torch.equal(c, base)
    assert len(sink.storages) == 1


def test_policies_keep_what_they_say() -> None:
    record = graph_of(None, None, None)
    values = [torch.randn(3), torch.tensor([1, 5]), 7]
    kept = {}
    for policy in ("none", "meta", "index", "first"):
        seen = live.observe(record, values, policy, MemoryTensors())
        kept[policy] = [(item.statistics is not None, item.stored is not None) for item in seen.inputs[:2]]
        assert seen.inputs[2].scalar == 7
        assert isinstance(seen.inputs[0].value, TensorValue)
    assert kept == {
        "none": [(False, False), (False, False)],
        "meta": [(False, False), (False, False)],
        "index": [(True, False), (True, True)],
        "first": [(True, True), (True, True)],
    }
    result = (
        live.observe(record, [torch.tensor([1.0, float("nan"), 3.0]), *values[1:]], "index", None).inputs[0].statistics
    )
    assert result == {"min": 1.0, "max": 3.0, "mean": 2.0, "std": 1.0, "nan": 1, "inf": 0}


def test_statistics_of_pieces_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdbg.dumps.torchside import observed

    value = torch.randn(50, 7) * 3 + 100
    value[3, 2], value[4, 4] = float("inf"), float("nan")
    whole = observed.statistics(value)
    monkeypatch.setattr(observed, "_PIECE", 20)
    pieces = observed.statistics(value)
    assert whole is not None
    assert pieces == pytest.approx(whole, rel=1e-5)
    finite = value[torch.isfinite(value)]
    assert pieces["std"] == pytest.approx(float(finite.std(correction=0)), rel=1e-4)
    assert observed.statistics(torch.arange(100)) == {"min": 0, "max": 99}
    assert observed.statistics(torch.tensor([True, False, True, True])) == {"min": 0, "max": 1, "mean": 0.75}
