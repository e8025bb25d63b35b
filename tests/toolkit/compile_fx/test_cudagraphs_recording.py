"""What a recording does around the GPU, on the CPU: copies, static inputs, writes, deferral. The capture here runs the
call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.compile_fx.recording import CallBuffer, Recording, Targets, by_integers, deferred, refusal


def on_cpu(call: Callable[..., Any], inputs: list[Any]) -> tuple[Callable[[], None], Sequence[Any]]:
    """As a CUDA graph: one warm-up that writes, a recording that writes nothing, a replay of the same memory."""
    call(list(inputs))
    outputs = call([value.clone() if isinstance(value, torch.Tensor) else value for value in inputs])

    def replay() -> None:
        for kept, result in zip(outputs, call(list(inputs)), strict=True):
            if isinstance(kept, torch.Tensor):
                kept.copy_(result)

    return replay, outputs


def record(call: Callable[..., Any], inputs: list[Any], static: Sequence[int] = (), **options: Any) -> Recording:
    return Recording(call, inputs, static, names=["x", "y (model.w)", "z"], capture=on_cpu, **options)


DIMS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=3)


@settings(max_examples=60)
@given(DIMS, st.integers(0, 3))
def test_any_layout_gets_into_its_buffer(dims: list[tuple[int, int]], offset: int) -> None:
    sizes, strides = [size for size, _ in dims], [stride for _, stride in dims]
    first, second = (torch.randn(120).as_strided(sizes, strides, offset) for _ in range(2))
    targets = Targets([CallBuffer(first, 0)])
    for value in (first, second):
        targets.fill([value])
        assert torch.equal(targets.all[0].buffer, value) and targets.all[0].buffer.stride() == value.stride()
    targets.all[0].hand_back(first)
    assert torch.equal(first, second)


def test_expanded_dimensions_are_written_once_and_windows_as_memory() -> None:
    expanded, window, dense = torch.randn(4).expand(3, 4), torch.randn(9).as_strided((3, 3), (2, 1)), torch.randn(3, 3)
    kinds = [
        (target.dims, target.as_memory, target.is_plain)
        for target in (CallBuffer(x, 0) for x in (expanded, window, dense))
    ]
    assert kinds == [([0], False, False), ([], True, False), ([], False, True)]
    assert CallBuffer(expanded, 0).buffer.untyped_storage().nbytes() == 16


def test_replay_takes_new_values_and_static_inputs_where_they_are() -> None:
    x, weight = torch.randn(3), torch.randn(3)
    run = record(lambda given: [given[0] * given[1]], [x, weight], static=[1])
    assert torch.equal(run([x, weight])[0], x * weight)
    other = torch.randn(3)
    weight.add_(1)
    inputs = [other, weight]
    first = run(inputs)[0]
    assert torch.equal(first, other * weight) and inputs == []
    assert run([other + 1, weight])[0] is first  # the memory of the outputs is the same in each call


def test_moved_static_input_is_named() -> None:
    x, weight = torch.randn(3), torch.randn(3)
    run = record(lambda given: [given[0] * given[1]], [x, weight], static=[1])
    with pytest.raises(UsageError, match=r"y \(model.w\) was recorded as staying in place, and its memory has moved"):
        run([x, weight.clone()])
    unchecked = record(lambda given: [given[0] * given[1]], [x, weight], static=[1], check_sizes=False)
    assert torch.equal(
        unchecked([x, weight.clone() + 1])[0], x * weight
    )  # as stock without size_asserts: the recorded memory


def test_other_sizes_are_named() -> None:
    run = record(lambda given: [given[0] * 2], [torch.randn(3)])
    with pytest.raises(UsageError, match=r"x has sizes \(1,\).*recorded with \(3,\)"):
        run([torch.randn(1)])
    with pytest.raises(UsageError, match="takes 1 input and got 2"):
        run([torch.randn(3), torch.randn(3)])


def test_static_input_that_is_misaligned_is_copied_and_told() -> None:
    weight = torch.randn(8)[1:5]
    run = record(lambda given: [given[0] * given[1]], [torch.randn(4), weight], static=[1])
    assert run.static == [] and "since they do not start on 16 bytes: y (model.w)" in run.summary()
    moved = torch.randn(4)
    assert torch.equal(run([torch.ones(4), moved])[0], moved)


@pytest.mark.parametrize("static", [(), (0,)])
def test_a_call_writes_once(static: tuple[int, ...]) -> None:
    """The warm-up has written already: its writes are undone."""

    def count(given: list[torch.Tensor]) -> list[torch.Tensor]:
        given[0].add_(1)
        return [given[0] * 2]

    seen = torch.zeros(2)
    run = record(count, [seen], static, mutated=[0])
    for calls in (1, 2, 3):
        assert run([seen])[0].tolist() == [2.0 * calls] * 2
        assert seen.tolist() == [calls] * 2


def test_what_cannot_be_recorded_is_named() -> None:
    memory = torch.empty(9, device="meta")
    names = ["a", "b"]
    assert refusal([memory[:5], memory[5:]], (), (0,), names) == ""
    assert refusal([memory[:5], memory[4:]], (), (), names) == ""
    assert refusal([memory[:5], memory[4:]], (0, 1), (0,), names) == ""
    assert refusal([memory[:5], memory[4:]], (0,), (1,), names).startswith("a and b overlap and b is written to")
    assert refusal([memory, torch.zeros(())], (), (), names).startswith("b is on the CPU")


def test_recorded_at_the_first_real_call_in_each_thread() -> None:
    built: list[int] = []

    def make(inputs: list[Any]) -> Any:
        built.append(threading.get_ident())
        torch.rand(3)  # what a warm-up draws is given back
        return record(lambda given: [given[0] + 1], inputs)

    call = deferred(lambda given: [given[0] + 1], make)
    with FakeTensorMode() as mode:
        assert call([mode.from_tensor(torch.empty(3))])[0].shape == (3,)
    assert built == []
    torch.manual_seed(0)
    call([torch.zeros(3)])
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(1), drawn)
    thread = threading.Thread(target=lambda: [call([torch.zeros(3)]) for _ in range(2)])
    thread.start()
    thread.join()
    call([torch.zeros(3)])
    assert len(built) == 2 and len(set(built)) == 2


def test_integers_have_recordings_of_their_own() -> None:
    built: list[int] = []

    def make(inputs: list[Any]) -> Any:
        built.append(inputs[0])
        return record(lambda given: [given[1] * given[0]], inputs)

    run = by_integers([2, torch.ones(2)], make)
    assert [run([factor, torch.ones(2)])[0].tolist() for factor in (2, 3, 2)] == [[2, 2], [3, 3], [2, 2]]
    assert built == [2, 3]
