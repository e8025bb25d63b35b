"""Inputs from saved metadata: layout, aliasing, values and dtypes as recorded; functorch's pickles read without running
them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg import GraphdbgError, load_graph, save_graph
from graphdbg.dumps.errors import RefusedError, UnreadableError
from graphdbg.dumps.graph_folder import encode
from graphdbg.dumps.live import observe
from graphdbg.dumps.schema import InputsRecord
from graphdbg.toolkit.compilers import get_inputs


def identity(count: int) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(tuple(graph.placeholder(f"x{place}") for place in range(count)))
    return fx.GraphModule({}, graph)


def saved(tmp_path: Path, inputs: list[Any]) -> Path:
    """A saved graph of which metadata and statistics are known, and no values of floating tensors."""
    path = save_graph(identity(len(inputs)), inputs, tmp_path / "case")
    seen = observe(load_graph(path).record, inputs, "index", None)
    for item in seen.inputs:
        item.stored = None
    (path / "inputs.json").write_bytes(encode(InputsRecord(format=seen.format, policy="index", inputs=seen.inputs)))
    return path


def test_layout_and_aliasing_are_as_recorded(tmp_path: Path) -> None:
    base = torch.randn(40)
    overlapping, view, other = base.as_strided((3, 4), (1, 2), 5), base[10:20:2], torch.randn(2, 3).t()
    inputs = get_inputs(saved(tmp_path, [overlapping, view, other, 7, torch.randn(1).expand(3, 2)]))
    for result, wanted in zip(inputs, [overlapping, view, other, 7, torch.empty(1).expand(3, 2)], strict=True):
        if isinstance(wanted, torch.Tensor):
            assert (result.shape, result.stride(), result.storage_offset()) == (
                wanted.shape,
                wanted.stride(),
                wanted.storage_offset(),
            )
        else:
            assert result == wanted
    assert inputs[0].untyped_storage().data_ptr() == inputs[1].untyped_storage().data_ptr()
    assert inputs[0].untyped_storage().data_ptr() != inputs[2].untyped_storage().data_ptr()


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def test_every_dtype_family_keeps_its_range_and_the_seed_decides(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = [(torch.rand(200) * 20 + 5).to(dtype) for dtype in DTYPES]
    inputs.append(torch.quantize_per_tensor(torch.rand(50), 0.1, 3, torch.quint8))
    path = saved(tmp_path, inputs)
    result, again, other = get_inputs(path, 1), get_inputs(path, seed=1), get_inputs(path, seed=2)
    for first, second, wanted in zip(result, again, inputs, strict=True):
        assert first.dtype == wanted.dtype
        assert torch.equal(number(first), number(second))
        low, high = number(wanted).min(), number(wanted).max()
        if not wanted.dtype.is_complex:
            assert low <= number(first).min()
            assert number(first).max() <= high
    changed = [not torch.equal(number(first), number(second)) for first, second in zip(result, other, strict=True)]
    assert all(changed[1:])  # every bool was True
    assert result[-1].q_zero_point() == 3


def number(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor)
    return tensor.dequantize() if tensor.is_quantized else tensor.double()


class Elsewhere(torch.Tensor):
    pass


def meta(tensor: torch.Tensor) -> tuple[Any, ...]:
    """As functorch writes it."""
    return type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def pickled(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "net_forward_0.input"
    path.write_bytes(pickle.dumps(content))
    return path


def test_functorch_files_are_read(tmp_path: Path) -> None:
    tensors = [
        torch.randn(3, 4).t(),
        torch.nn.Parameter(torch.randn(2)),
        torch.ones(3, dtype=torch.int32),
        torch.ones(2) > 0,
    ]
    path = pickled(tmp_path, [*map(meta, tensors), (int,), (float,)])
    result = get_inputs(path)
    for item, wanted in zip(result[:4], tensors, strict=True):
        assert (item.shape, item.stride(), item.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
    assert isinstance(result[1], torch.nn.Parameter)
    assert (type(result[4]), type(result[5])) == (int, float)
    assert torch.equal(result[0], get_inputs(path.parent)[0])  # the folder that holds it


def test_what_stock_functorch_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._functorch.compilers import graph_dumper_aot

    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: (x @ w).sin().sum(), backend=graph_dumper_aot("net", "dumps"))
    compiled(torch.ones(2, 3), torch.ones(4, 3).t())  # with gradients it fails on torch 2.13 (num_fwd_outputs)
    (folder,) = Path("dumps/net").iterdir()
    assert [(tensor.shape, tensor.stride()) for tensor in get_inputs(folder)] == [((2, 3), (3, 1)), ((3, 4), (1, 3))]


def test_the_two_parts_of_a_joint_graph_stay_two(tmp_path: Path) -> None:
    result = get_inputs(pickled(tmp_path, [[meta(torch.ones(2)), (int,)], [meta(torch.ones(3))]]))
    assert [len(part) for part in result] == [2, 1]
    assert result[1][0].shape == (3,)


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("place", ["alone", "inside"])
def test_a_malicious_pickle_is_refused_by_name_and_never_run(tmp_path: Path, place: str) -> None:
    target = tmp_path / "was_here"
    bad = Malicious(target)
    path = pickled(
        tmp_path, bad if place == "alone" else [(torch.Tensor, bad, (1,), torch.float32, torch.device("cpu"))]
    )
    with pytest.raises(RefusedError, match=r"it asks for (posix|nt)\.system"):
        get_inputs(path)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps([(torch.Tensor, torch.Size([1]))]),
        pickle.dumps({"a": 1}),
        pickle.dumps([3]),
        pickle.dumps([(torch.Tensor, ("x",), (1,), torch.float32, torch.device("cpu"))]),
        b"\x80\x04cbuiltins\nint\n(\x8c\x0599999tR.",  # calls int
        b"\x80\x04cbuiltins\neval\n(\x8c\x031+1tR.",
        b"\x80\x04ctorch\nload\n.",
        pickle.dumps([(torch.Tensor, torch.Size([1 << 50]), (1,), torch.float32, torch.device("cpu"))]),
        pickle.dumps([(Elsewhere, torch.Size([1]), (1,), torch.float32, torch.device("cpu"))]),
    ],
)
def test_anything_else_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.input"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match=r"cannot read .*x\.input"):
        get_inputs(path)


def test_parts_are_asked_of_joint_graphs_only(tmp_path: Path) -> None:
    with pytest.raises(GraphdbgError, match=r"has no parts: it is a \w+ graph"):
        get_inputs(saved(tmp_path, [torch.ones(2)]), parts=True)
    with pytest.raises(GraphdbgError, match="neither a run"):
        get_inputs(tmp_path / "nowhere")
