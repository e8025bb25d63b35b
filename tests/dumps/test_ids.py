"""Ids: how they are made, that none can leave its folder, and how a typed one is found."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps import ids
from graphdbg.dumps.errors import RefusedError, UsageError
from graphdbg.dumps.ids import Address
from graphdbg.dumps.schema import STAGES

numbers = st.integers(0, 99)
compile_names = st.one_of(
    st.builds("{}_{}".format, numbers, numbers),
    st.builds("{}_{}_a{}".format, numbers, numbers, st.integers(1, 9)),
    st.builds("x{}_0".format, numbers),
    st.builds("ca{}_0".format, numbers),
)
locals_ = st.builds(
    lambda name, stage, count: f"{name}/{stage}" + (f".{count}" if count else ""),
    compile_names,
    st.sampled_from(STAGES),
    st.integers(0, 12),
)
addresses = st.lists(
    st.builds(lambda rank, local: Address(f"rank{rank}_pid{rank + 100}", rank, local), st.integers(0, 3), locals_),
    min_size=1,
    max_size=12,
    unique=True,
)


@pytest.mark.parametrize(
    ("compile_id", "name"),
    [
        ("0/0", "0_0"),
        ("12/3_1", "12_3_a1"),
        ("0/0_0", "0_0"),
        ("!4", "ca4_0"),
        ("!4/0/1", "ca4_0_1"),
        ("!4/0/1_2", "ca4_0_1_a2"),
        ("x3_0", "x3_0"),
        ("0_0_a1", "0_0_a1"),
    ],
)
def test_compile_ids_of_torch(compile_id: str, name: str) -> None:
    assert ids.compile_name(compile_id) == name


@pytest.mark.parametrize("compile_id", ["", "/", "/0/0", "!40/0", "0", "a/b", "0/0/0/0", "../0", "0_0/..", "-1/0"])
def test_other_compile_ids_are_refused(compile_id: str) -> None:
    with pytest.raises(UsageError):
        ids.compile_name(compile_id)


@given(st.one_of(st.text(), locals_, st.builds("{}{}".format, locals_, st.text(max_size=3))))
def test_an_id_that_passes_stays_in_its_folder(text: str) -> None:
    assert ids.is_id(text) == _passes(text)
    if ids.is_id(text):
        parts = PurePosixPath("graphs", text).parts
        assert len(parts) == 3
        assert ".." not in parts
        assert ids.stage_of(text) in STAGES


def _passes(text: str) -> bool:
    try:
        return ids.check_id(text) == text
    except RefusedError:
        return False


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a\nb", "a\0b", "x" * 300, "é"])
def test_file_names_with_a_path_or_controls_are_refused(name: str) -> None:
    with pytest.raises(RefusedError):
        ids.check_file_name(name)


@given(addresses)
def test_what_is_shown_finds_the_same_graph(items: list[Address]) -> None:
    for position, name in enumerate(ids.shown(items)):
        assert ids.find(name, items) == position


@given(addresses, st.integers(0, 20))
def test_a_prefix_finds_a_graph_that_begins_so_or_lists_candidates(items: list[Address], length: int) -> None:
    text = items[0].local[:length]
    try:
        assert items[ids.find(text, items)].local.startswith(text)
    except UsageError as error:
        assert "could be" in str(error) or not text


def test_an_exact_id_wins_over_a_prefix() -> None:
    results = [Address("pid1", None, local) for local in ("0_0/forward.1", "0_0/forward", "0_0/forward.12")]
    assert ids.find("0_0/forward", results) == 1
    assert ids.find("0_0/forward.12", results) == 2
    with pytest.raises(UsageError, match=r"could be 0_0/forward.1, 0_0/forward, 0_0/forward.12"):
        ids.find("0_0/f", results)


def test_a_later_attempt_is_named_where_only_that_is_there() -> None:
    there = [ids.Address("pid1", None, name) for name in ("0_0_a1/joint", "0_0_a1/forward", "0_1/forward")]
    with pytest.raises(UsageError, match="Did you mean 0_0_a1/forward"):
        ids.find("0_0/forward", there)


def test_ranks_that_repeat_are_told_apart_by_folder() -> None:
    results = [
        Address("rank0_pid1", 0, "0_0/joint"),
        Address("rank0_restart1_pid9", 0, "0_0/joint"),
        Address("rank1_pid2", 1, "0_0/joint"),
    ]
    assert ids.shown(results) == ["rank0_pid1:0_0/joint", "rank0_restart1_pid9:0_0/joint", "1:0_0/joint"]
    assert ids.find("1:0_0", results) == 2
    with pytest.raises(UsageError, match="ambiguous"):
        ids.find("0:0_0/joint", results)
    with pytest.raises(UsageError, match="no process there is called '7'"):
        ids.find("7:0_0/joint", results)


def test_names_of_processes() -> None:
    assert ids.process_name(12) == "pid12"
    assert ids.process_name(12, 0) == "rank0_pid12"
    assert ids.process_name(12, 3, 2) == "rank3_restart2_pid12"
