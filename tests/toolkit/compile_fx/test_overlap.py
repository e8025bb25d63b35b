"""Overlaps inside and between inputs, held against an enumeration of every element's address."""

from __future__ import annotations

from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from graphdbg.toolkit.compile_fx.inputs import (
    SharedMemory,
    described,
    expanded_dims,
    overlaps_itself,
    shared,
    without_expanded,
)

DIMS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=4)


def addresses(tensor: torch.Tensor) -> list[int]:
    """The first byte of every element."""
    indices = product(*(range(size) for size in tensor.size()))
    return [
        (tensor.storage_offset() + sum(i * s for i, s in zip(index, tensor.stride(), strict=True))) * tensor.itemsize
        for index in indices
    ]


@given(DIMS)
def test_overlap_inside_a_tensor_is_exact(dims: list[tuple[int, int]]) -> None:
    tensor = torch.empty(200).as_strided([size for size, _ in dims], [stride for _, stride in dims])
    places = addresses(tensor)
    assert overlaps_itself(tensor) == (len(set(places)) < len(places))
    first = addresses(without_expanded(tensor, expanded_dims(tensor))) if tensor.numel() else []
    assert overlaps_itself(tensor, expanded=False) == (len(set(first)) < len(first))


@given(DIMS, DIMS, st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_overlap_of_two_tensors_is_exact(
    items: list[tuple[int, int]], other: list[tuple[int, int]], first: int, second: int, halves: bool
) -> None:
    memory = torch.empty(400)
    a = memory.as_strided([size for size, _ in items], [stride for _, stride in items], first)
    b = (memory.view(torch.float16) if halves else memory).as_strided(
        [n for n, _ in other], [s for _, s in other], second
    )
    bytes_of = [{place + byte for place in addresses(x) for byte in range(x.itemsize)} for x in (a, b)]
    assert bool(shared([a, b])) == bool(bytes_of[0] & bytes_of[1])


def test_pairs_that_lie_beside_each_other_in_one_storage() -> None:
    memory = torch.empty(6, 6)
    left, right, all_of_it = memory[:, :3], memory[:, 3:], memory
    assert shared([left, 3, right, all_of_it, memory.view(6, 6), torch.empty(6)]) == [
        SharedMemory(0, 3, "overlap"),
        SharedMemory(0, 4, "overlap"),
        SharedMemory(2, 3, "overlap"),
        SharedMemory(2, 4, "overlap"),
        SharedMemory(3, 4, "the same memory"),
    ]


def test_thousands_of_views_of_one_storage_make_no_pairs() -> None:
    views = list(torch.empty(20_000).split(4))
    assert shared([*views, views[7]]) == [SharedMemory(7, 5000, "the same memory")]


def test_fake_tensors_say_it_too_and_touch_no_symbols() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    fake = mode.from_tensor(torch.empty(12, 5))
    with mode:
        views = [fake[2:], fake.expand(3, 12, 5), fake.t()]
    before = len(env.guards)
    assert [overlaps_itself(view) for view in views] == [False, True, False]
    assert {(item.first, item.second, item.how) for item in shared(views)} == {
        (0, 1, "overlap"),
        (0, 2, "overlap"),
        (1, 2, "overlap"),
    }
    assert len(env.guards) == before


def test_report_names_them() -> None:
    memory = torch.empty(12)
    inputs = [memory.as_strided((3, 3), (2, 1)), torch.empty(3).expand(4, 3), memory[4:8], memory[8:], memory[8:]]
    assert described(inputs, ["w", "e (model.e)", "p", "q", "r"], most=5) == [
        "w overlaps itself (a window: sizes (3, 3), strides (2, 1))",
        "e (model.e) overlaps itself (expanded along dimension 0: sizes (4, 3), strides (0, 1))",
        "w and p overlap",
        "q and r are the same memory",
    ]
    assert described([memory.expand(2, 12)] * 3, "abc", most=2)[-1] == "and 4 more overlaps"


def test_a_layout_that_takes_too_long_to_tell_counts_as_an_overlap() -> None:
    primes = [10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079]
    hard = torch.empty(1).as_strided([1] * 8, primes)
    assert not overlaps_itself(hard)  # single elements
    with FakeTensorMode():
        hard = torch.empty(10**8, device="meta").as_strided([60] * 8, primes)
    assert overlaps_itself(hard)
