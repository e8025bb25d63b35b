"""Input expressions give tensors with the wanted form, and literals the very same bits."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from graphdbg.dumps.program.inputs import InputSource, Slot, sidecar_bytes, slots_of, source_of
from graphdbg.dumps.program.text import CannotExpressError
from graphdbg.dumps.schema import ConstValue, InputRecord, SymbolRecord, SymValue, TensorValue
from graphdbg.dumps.sidecar import ITEM_BYTES

from ...dumps.graphs import MemoryTensors
from .cases import call, node, record_of, stored, tensor


def made(source: InputSource, **given: Any) -> list[Any]:
    """Runs the source as make_inputs() would."""
    space: dict[str, Any] = {"torch": torch, **given}
    space["stored"] = {name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, data in source.file.items()}
    for statement in source.statements:
        exec(statement, space)
    return [eval(expression, space) for expression in source.expressions]


@pytest.mark.parametrize(
    ("shape", "stride", "offset", "text"),
    [
        ([2, 3], [3, 1], 0, "torch.randn(2, 3)"),
        ([], [], 0, "torch.randn(())"),
        ([5], [1], 0, "torch.randn(5)"),
        ([2, 3], [1, 2], 0, "torch.randn(3, 2).permute(1, 0)"),
        ([2, 3, 4, 5], [60, 1, 15, 3], 0, "torch.randn(2, 4, 5, 3).permute(0, 3, 1, 2)"),
        ([2, 3], [0, 1], 0, "torch.randn(1, 3).expand(2, 3)"),
        ([2, 3], [8, 2], 4, "torch.randn(17).as_strided((2, 3), (8, 2), 4)"),
        ([3], [2], 0, "torch.randn(5).as_strided((3,), (2,))"),
        ([0, 4], [4, 1], 0, "torch.randn(0, 4)"),
        ([1, 4], [1, 1], 0, "torch.randn(4).as_strided((1, 4), (1, 1))"),
    ],
)
def test_seeded_forms(shape: list[int], stride: list[int], offset: int, text: str) -> None:
    source = source_of([Slot("x", TensorValue("float32", list(shape), list(stride), offset))], "seeded")
    assert source.expressions == [text]
    (value,) = made(source)
    assert (list(value.shape), list(value.stride()), value.storage_offset()) == (shape, stride, offset)


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_every_dtype_has_a_seeded_form(dtype: str) -> None:
    (value,) = made(source_of([Slot("x", tensor(4, 2, dtype=dtype))], "seeded"))
    assert value.dtype == getattr(torch, dtype)
    assert value.shape == (4, 2)
    assert value.element_size() == ITEM_BYTES[dtype]


@pytest.mark.parametrize(
    ("dtype", "statistics", "text"),
    [
        ("float32", {"min": 1.0, "max": 1.0}, "torch.ones(4)"),
        ("bfloat16", {"min": 0.0, "max": 0.0}, "torch.zeros(4, dtype=torch.bfloat16)"),
        ("float32", {"min": 0.5, "max": 0.5}, "torch.full((4,), 0.5)"),
        ("float32", {"min": 0.0, "max": 3.0}, "torch.rand(4)"),
        ("int64", {"min": 2, "max": 9}, "torch.randint(2, 10, (4,))"),
        ("int32", {"min": 2, "max": 2}, "torch.full((4,), 2, dtype=torch.int32)"),
        ("bool", {"min": 0, "max": 1}, "torch.randint(0, 2, (4,), dtype=torch.bool)"),
    ],
)
def test_seeded_values_keep_the_range_that_was_seen(dtype: str, statistics: dict[str, Any], text: str) -> None:
    source = source_of([Slot("x", tensor(4, dtype=dtype), statistics=statistics)], "seeded")
    assert source.expressions == [text]
    made(source)


def test_the_memory_around_a_view_is_made_where_an_operator_may_reach_it() -> None:
    slot = Slot("x", TensorValue("int64", [10], [1], 0, storage_bytes=160), statistics={"min": 0, "max": 1})
    assert source_of([slot], "seeded").expressions == ["torch.randint(0, 2, (10,))"]
    source = source_of([slot], "seeded", whole=True)
    assert source.expressions == ["torch.randint(0, 2, (20,)).as_strided((10,), (1,))"]
    assert made(source)[0].untyped_storage().nbytes() == 160


def test_inputs_that_alias_share_one_storage() -> None:
    first = TensorValue("int64", [4, 16], [17, 1], 0, storage=0, storage_bytes=68 * 8)
    second = TensorValue("int64", [4, 16], [17, 1], 1, storage=0, storage_bytes=68 * 8)
    item, other = made(source_of([Slot("a", first), Slot("b", second)], "seeded"))
    assert item.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert item.untyped_storage().nbytes() == 68 * 8
    assert torch.equal(item[:, 1:], other[:, :-1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "uint8", "bool", "int32"])
def test_literals_give_the_same_bits(dtype: str) -> None:
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    value = torch.randn(3, 4).mul(100).to(kind) if dtype != "bool" else torch.rand(3, 4) > 0.5
    if value.is_floating_point():
        value.view(-1)[:5] = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 1e-7]).to(kind)
    data = value.contiguous().numpy().tobytes()
    store = MemoryTensors()
    slot = Slot("x", tensor(3, 4, dtype=dtype), stored=stored(store, data, tensor(3, 4, dtype=dtype)))
    source = source_of([slot], "literal", store.get)
    assert not source.file
    (back,) = made(source)
    assert back.dtype == kind
    assert back.numpy().tobytes() == data


def test_large_or_strided_tensors_go_to_the_file_beside(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    store = MemoryTensors()
    values = torch.arange(100, dtype=torch.float32)
    view = TensorValue("float32", [3, 4], [20, 2], 5)
    held = stored(store, values.numpy().tobytes(), view)
    source = source_of([Slot("x", view, stored=held), Slot("y", view, stored=held)], "literal", store.get)
    item, other = made(source)
    assert torch.equal(item, values.as_strided((3, 4), (20, 2), 5))
    assert item.data_ptr() == other.data_ptr()
    path = tmp_path / "repro.safetensors"
    path.write_bytes(sidecar_bytes(source.file))
    assert torch.equal(load_file(path)["0"].view(torch.float32), values)


def test_a_literal_without_bytes_is_seeded() -> None:
    assert source_of([Slot("x", tensor(2))], "literal", MemoryTensors().get).expressions == ["torch.randn(2)"]


def test_symbolic_sizes_get_their_numbers() -> None:
    value = TensorValue("float32", ["s0", "2*s0"], ["2*s0", 1])
    symbols = [SymbolRecord("s0", hint=3)]
    record = record_of({"x": value, "n": SymValue("int", "s0")}, [], [], symbols=symbols)
    source = source_of(slots_of(record, None, {}, grad=False)[0], "seeded", None, {"s0": 3})
    assert source.expressions == ["torch.randn(3, 6)", "3"]


def test_an_index_stays_inside_its_table() -> None:
    embed = call("e", "aten.embedding.default", node("table"), node("ids"))
    record = record_of({"table": tensor(5, 2), "ids": tensor(4, dtype="int64")}, [embed], ["e"])
    source = source_of(slots_of(record, None, {}, grad=False)[0], "seeded")
    assert source.expressions[1] == "torch.randint(0, 5, (4,))"


def test_requires_grad_only_where_autograd_is_replayed() -> None:
    record = record_of({"x": tensor(2, requires_grad=True)}, [], [])
    assert source_of(slots_of(record, None, {}, grad=True)[0], "seeded").expressions == [
        "torch.randn(2).requires_grad_()"
    ]
    assert source_of(slots_of(record, None, {}, grad=False)[0], "seeded").expressions == ["torch.randn(2)"]


@pytest.mark.parametrize(
    "value", [tensor(2, layout="sparse_coo"), tensor(2, dtype="qint8"), tensor(2, quantizer={"scale": 1.0}), None]
)
def test_what_has_no_form_is_named(value: Any) -> None:
    with pytest.raises(CannotExpressError, match="'x'"):
        source_of([Slot("x", value)], "seeded")


def test_scalars_come_from_the_execution() -> None:
    record = record_of({"n": SymValue("int", "s0", 3)}, [], [])
    record.inputs.append(InputRecord(name="n", scalar=7))
    assert source_of(slots_of(record, None, {}, grad=False)[0], "seeded").expressions == ["7"]


@pytest.mark.parametrize("text", ["inf", "-inf", "nan"])
def test_a_number_that_is_not_finite_has_a_form(text: str) -> None:
    source = source_of([Slot("k", ConstValue({"float": text}))], "seeded")
    assert source.expressions == [f'float("{text}")'] and str(made(source)[0]) == text


def test_the_file_is_the_same_for_the_same_tensors() -> None:
    data = {"0": struct.pack("<4f", 1, 2, 3, 4), "1": b"\x00"}
    assert sidecar_bytes(data) == sidecar_bytes(dict(data))


@pytest.mark.parametrize("way", ["seeded", "literal", "stored"])
@pytest.mark.parametrize("leaf", [False, True])
def test_views_are_views_of_the_base_that_autograd_knew(way: Any, leaf: bool) -> None:
    store = MemoryTensors()
    data = struct.pack("<24f", *range(24))
    base = tensor(4, 6, requires_grad=True, leaf=leaf, storage=0, storage_bytes=96)
    part = tensor(2, 6, requires_grad=True, leaf=False, storage=0, offset=6, base=base)
    slots = [Slot("x", value, stored=stored(store, data, value), requires_grad=True) for value in (base, part)]
    source = source_of(slots, way, store.get, views=True, moved=True)
    whole, row = made(source, to=torch.Tensor.double)
    assert row._base is whole
    assert whole._base is None
    assert whole.is_leaf == leaf
    assert whole.requires_grad and row.requires_grad and row.dtype == torch.float64
    assert (row.shape, row.stride(), whole.shape) == ((2, 6), (6, 1), (4, 6))
    if way != "seeded":
        assert row.tolist() == [[float(6 * at + place) for place in range(6)] for at in (1, 2)]
