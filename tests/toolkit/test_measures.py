"""Tolerances, distances and streamed statistics, against answers known by other means."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.live import save_graph
from graphdbg.toolkit.commands.replay import replay as command
from graphdbg.toolkit.judging.comparing import output_lengths
from graphdbg.toolkit.numerics.comparison import FAR, compare, distance, relative_rmse, ulp_distance
from graphdbg.toolkit.numerics.statistics import Streamed, node_statistics
from graphdbg.toolkit.numerics.tolerance import TOLERANCE, rounding_bound, tolerance
from graphdbg.toolkit.replaying.node_stats import table

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOATS)
def test_neighbours_are_one_ulp_apart_in_every_dtype(dtype: torch.dtype) -> None:
    width = torch.finfo(dtype).bits
    of = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
    bits = torch.tensor([0, 1, 2, 5, 17, 2 ** (width - 4)], dtype=of)
    assert ulp_distance(bits.view(dtype), (bits + 1).view(dtype)).tolist() == [1] * 6
    least = torch.tensor([1], dtype=of).view(dtype)
    minus = (-least.to(torch.float64)).to(dtype)
    assert ulp_distance(least, minus).tolist() == [2]  # over +0 and -0, which are one number
    zeros = torch.zeros(1).to(dtype)
    assert ulp_distance(zeros, (-torch.zeros(1)).to(dtype)).tolist() == [0]


@given(st.floats(allow_nan=False, width=32), st.floats(allow_nan=False, width=32))
def test_ulp_distance_agrees_with_counting_by_nextafter(item: float, other: float) -> None:
    a, b = torch.tensor([item], dtype=torch.float32), torch.tensor([other], dtype=torch.float32)
    result = int(ulp_distance(a, b))
    assert result == int(ulp_distance(b, a))
    assert (result == 0) == (item == other)
    if 0 < result < 50:
        step = a
        for _ in range(result):
            step = torch.nextafter(step, b)
        assert torch.equal(step, b)


def test_nan_is_far_from_numbers_and_near_itself() -> None:
    nan, far = torch.tensor([math.nan, math.nan]), torch.tensor([math.nan, 1.0])
    assert ulp_distance(nan, far).tolist() == [0, FAR]
    ends = torch.tensor([-torch.finfo(torch.float64).max], dtype=torch.float64)
    assert int(ulp_distance(ends, -ends)) == FAR  # would not fit
    with pytest.raises(TypeError, match="must be equal"):
        ulp_distance(torch.ones(1), torch.ones(1).double())


def test_measures_of_one_tensor_against_another() -> None:
    truth = torch.tensor([3.0, 4.0], dtype=torch.float64)
    result = distance(torch.tensor([3.0, 4.5]), truth)
    assert relative_rmse(torch.tensor([3.0, 4.5]), truth) == pytest.approx(0.1)
    assert result.largest == 0.5
    assert result.ulp == 2**20
    assert result.cosine == pytest.approx(
        torch.nn.functional.cosine_similarity(torch.tensor([3.0, 4.5]), truth, 0).item()
    )
    assert distance(torch.zeros(2), torch.zeros(2)).cosine == 1.0
    assert distance(torch.zeros(2), torch.ones(2)).cosine == 0.0
    assert distance(torch.tensor([1j]), torch.tensor([1j])).cosine == pytest.approx(1.0)
    assert relative_rmse(torch.tensor([math.nan, 2.0]), torch.tensor([1.0, 2.0])) == 0.0


def test_the_bound_holds_for_real_sums_and_grows_with_their_length() -> None:
    generator = torch.Generator().manual_seed(0)
    for length in (100, 10_000, 1_000_000):
        values = torch.rand(length, generator=generator)
        summed = torch.zeros(())
        for block in values.split(max(1, length // 100)):
            summed = summed + torch.cumsum(block, 0)[-1]  # one after the other, as the theorem has it
        error = abs(float(summed) - float(values.double().sum())) / float(values.double().sum())
        assert error <= rounding_bound(torch.float32, length)
    assert rounding_bound(torch.float32, 40_000) == pytest.approx(8 * 200 * 2**-24, rel=1e-3)
    assert tolerance(torch.float32) == TOLERANCE[torch.float32]
    assert tolerance(torch.float32, 10**6) > 4 * TOLERANCE[torch.float32]


def test_a_long_reduction_is_allowed_more() -> None:
    exact = [torch.ones(4, dtype=torch.float64)]
    got = [torch.ones(4) * (1 + 3e-5)]
    assert compare(exact, [torch.ones(4)], got) is not None
    assert compare(exact, [torch.ones(4)], got, lengths=[1_000_000]) is None


def test_lengths_come_from_the_longest_reduction_behind_an_output() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        product = x @ w
        return [x + 1, product.relu(), product.sum(), x.softmax(-1)]

    gm = make_fx(f, tracing_mode="fake")(torch.randn(8, 32), torch.randn(32, 100))
    assert output_lengths(gm) == [1, 32, 800, 32]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.integers(1, 7))
def test_streamed_in_any_blocks_is_as_of_the_whole(values: list[float], size: int) -> None:
    whole = torch.tensor(values, dtype=torch.float32)
    stream = Streamed()
    for block in whole.split(size):
        stream.add(block)
    wide = whole.double()
    assert stream.mean == pytest.approx(wide.mean().item(), rel=1e-9, abs=1e-9)
    assert stream.std == pytest.approx(wide.std(correction=0).item(), rel=1e-6, abs=1e-6)
    assert (stream.min, stream.max) == (wide.min().item(), wide.max().item())


def test_what_is_odd_is_counted_and_left_out() -> None:
    stream = Streamed()
    stream.add(torch.tensor([1.0, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, 3.0]))
    assert (stream.count, stream.nan, stream.inf, stream.subnormal, stream.zeros) == (8, 1, 2, 1, 2)
    assert (stream.min, stream.max, stream.mean) == (0.0, 3.0, pytest.approx(0.8))
    shifted = Streamed()
    shifted.add(torch.full((1000,), 1e8, dtype=torch.float64) + torch.arange(1000) % 2)
    assert shifted.std == pytest.approx(0.5)


def test_a_row_for_each_tensor_of_each_node() -> None:
    gm = make_fx(lambda x: [torch.log(x.split(2)[0]).sum()])(torch.zeros(4))
    rows = {(row.name, row.part): row for row in node_statistics(gm, [torch.tensor([1.0, -1.0, 2.0, 3.0])])}
    assert rows[next(key for key in rows if key[0].startswith("log"))].nan == 1
    assert {part for name, part in rows if name.startswith("split")} == {0, 1}
    strided = Streamed()
    strided.add(torch.arange(3_000_000.0).view(1500, 2000).t())
    assert (strided.count, strided.max) == (3_000_000, 2_999_999.0)


def test_replay_prints_the_table(tmp_path: Path) -> None:
    gm = make_fx(lambda x: [torch.exp(x) * 2])(torch.zeros(2, 3))
    save_graph(gm, [torch.tensor([[1.0, 2, 3], [math.inf, 0, -1]])], tmp_path / "case", stage="inference")
    done = CliRunner().invoke(command, [str(tmp_path / "case"), "--rung", "nop", "--stats", "--json"])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert [stat["name"] for stat in row["stats"]] == ["x_1", "exp", "mul"]
    assert row["stats"][2]["inf"] == 1
    assert row["errors"][0]["ulp"] == 0
    assert row["errors"][0]["cosine"] == pytest.approx(1.0)
    text = "\n".join(table(row["stats"]))
    assert "subnormal" in text
    assert "2x3" in text
