"""Which inputs are looked at, by torch's own answer, and the copy of misaligned ones, on real tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from graphdbg.toolkit import torch_private as t
from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.inputs import aligning, in_wrapper


def fakes(device: str) -> list[Any]:
    """Inputs of every kind: aligned, offset by 4, 8 and 16 bytes, of one byte each, no tensor, empty."""

    def window(count: int, offset: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(64, dtype=dtype, device=device).as_strided((count,), (1,), offset)

    with FakeTensorMode():
        floats = [window(8, offset) for offset in (0, 1, 2, 4)]
        bytes_ = [window(8, offset, torch.int8) for offset in (15, 16)]
        halves = [window(8, offset, torch.float16) for offset in (8, 4)]
        scalar, overlapping = (
            torch.empty((), device=device),
            torch.empty(64, device=device).as_strided((8, 8), (2, 1), 4),
        )
        return [*floats, *bytes_, *halves, 7, 2.5, window(0, 0), scalar, overlapping, torch.empty(3)]


@pytest.mark.parametrize("assume", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("static", [(), (0, 1, 3, 8), tuple(range(14))])
def test_gpu_inputs_are_looked_at_unless_they_stay_aligned(device: str, static: tuple[int, ...], assume: bool) -> None:
    inputs = fakes(device)
    with t.inductor_config.patch(assume_aligned_inputs=assume):
        result = t.get_input_idxs_to_check(inputs, static)
    assert bool(result) == (device == "cuda" and (len(static) < 14 or assume))


def symbolic_offset(offset: int) -> tuple[list[torch.Tensor], ShapeEnv]:
    """A fake CUDA tensor whose storage offset is a symbol that was `offset` when traced, and one of four times the
    symbol."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    real = torch.empty(64, offset + 1)
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.STATIC, DimDynamic.DYNAMIC])
    size = mode.from_tensor(real, symbolic_context=context).shape[1]
    with mode:
        memory = torch.empty(4096, device="cuda")
        return [memory.as_strided((4,), (1,), size - 1), memory.as_strided((4,), (1,), 4 * size)], env


def test_symbolic_offsets_add_no_guards() -> None:
    inputs, env = symbolic_offset(8)
    before = len(env.guards)
    assert list(t.get_input_idxs_to_check(inputs, ())) == [1]
    assert len(env.guards) == before


def misaligned(*sizes: int, stride: tuple[int, ...] | None = None) -> torch.Tensor:
    count = torch.Size(sizes).numel()
    return torch.arange(4 * count + 64.0).as_strided(sizes, stride or torch.empty(sizes).stride(), 1)


def test_misaligned_input_is_copied_with_its_strides_and_told_once() -> None:
    seen: list[torch.Tensor] = []
    messages: list[str] = []
    run = aligning(lambda inputs: seen.append(inputs[1]), [1], (), ["x", "y (model.w)"], messages.append)
    given = misaligned(3, 4, stride=(1, 3))
    assert given.data_ptr() % 16 == 4
    run([1, given])
    run([1, given])
    run([1, given.clone()])
    assert [item.data_ptr() % 16 for item in seen] == [0, 0, 0]
    assert seen[0].stride() == (1, 3) and torch.equal(seen[0], given)
    assert messages == ["y (model.w) did not start on 16 bytes: copied where that is so"]


def test_aligned_input_is_handed_on_itself() -> None:
    x = torch.zeros(4)
    assert aligning(lambda inputs: inputs[0], [0])([x]) is x
    call = len
    assert aligning(call, []) is call


def test_what_is_written_to_a_copy_is_written_back_only_where_mutated() -> None:
    def write(inputs: list[torch.Tensor]) -> None:
        for value in inputs:
            value.add_(1)

    a, b = misaligned(5), misaligned(5)
    before = a.clone()
    aligning(write, [0, 1], mutated=[0])([a, b])
    assert torch.equal(a, before + 1) and torch.equal(b, before)


def test_only_written_inputs_are_left_to_the_wrapper_where_code_copies_by_itself() -> None:
    assert in_wrapper([0, 2, 3], {2}, deferred=True) == [2]
    assert in_wrapper([0, 2, 3], {2}, deferred=False) == [0, 2, 3]


def report(function: Any, *inputs: Any) -> list[str]:
    pipeline = Pipeline()

    def backend(gm: Any, given: Any) -> Any:
        return compile_fx(gm, given, pipeline=pipeline)

    torch._dynamo.reset()
    with torch._functorch.config.patch(enable_autograd_cache=False), torch.no_grad():
        compiled = torch.compile(function, backend=backend)(*inputs)
    torch.testing.assert_close(compiled, function(*inputs))
    return [note for item in pipeline.reports if item.stage == "align" for note in item.notes]


def test_report_on_the_cpu() -> None:
    window = torch.arange(9.0).as_strided((3, 3), (2, 1))
    assert report(lambda signal: signal * 2, window) == [
        "arg0_1 (signal) overlaps itself (a window: sizes (3, 3), strides (2, 1))",
        "nothing to check: CPU kernels load from anywhere",
    ]


def test_cpu_kernels_take_misaligned_inputs() -> None:
    """What the report claims: vectors are loaded from anywhere."""
    assert report(lambda x: torch.relu(x) + 1, misaligned(64, 64)) == [
        "nothing to check: CPU kernels load from anywhere"
    ]
