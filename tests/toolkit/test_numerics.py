"""The float64 reference and the judgement of numbers, on graphs small enough to know the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.judging.baseline import NoReference, reference, widen_graph
from graphdbg.toolkit.judging.comparing import output_grains
from graphdbg.toolkit.live.eager import (
    GraphRunError,
    clone_inputs,
    copy_graph,
    draws_from_generator,
    has_random,
    run_graph,
)
from graphdbg.toolkit.live.execution import execute
from graphdbg.toolkit.numerics.comparison import Noise, compare, output_errors
from graphdbg.toolkit.program import comparing


def traced(function: Callable[..., Any], *inputs: Any) -> fx.GraphModule:
    return make_fx(function)(*inputs)


def wide(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    result = reference(traced(function, *inputs), inputs)
    assert not isinstance(result, NoReference), result
    return result


CASTING = [
    lambda x: [x.half().float() * 3],
    lambda x: [x.to(torch.bfloat16)],
    lambda x: [x + torch.full((4,), 0.1)],
    lambda x: [x + torch.zeros(4, dtype=torch.float16)],
    lambda x: [torch.arange(4) * 0.5 + x],
    lambda x: [torch.ops.prims.convert_element_type.default(x, torch.float16)],
    lambda x: [x.sum(dtype=torch.float32)],
    lambda x: [torch.softmax(x, 0, dtype=torch.float32)],
]


@pytest.mark.parametrize("function", CASTING)
def test_every_dtype_becomes_float64(function: Callable[..., Any]) -> None:
    (out,) = wide(function, torch.randn(4))
    assert out.dtype == torch.float64


def test_the_reference_is_the_float64_computation() -> None:
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    (out,) = wide(lambda x, w: [(x.half() @ w.half()).float().softmax(-1)], x, w)
    assert torch.equal(out, (x.double() @ w.double()).softmax(-1))


def test_complex_numbers_are_widened() -> None:
    (out,) = wide(lambda x: [torch.view_as_real(torch.fft.fft(x))], torch.randn(4))
    assert out.dtype == torch.float64


def test_integers_stay() -> None:
    (out,) = wide(lambda i: [i + 1], torch.arange(3, dtype=torch.int32))
    assert out.dtype == torch.int32


def test_constants_are_widened_and_the_graph_is_not_touched() -> None:
    constant = torch.randn(3)
    gm = traced(lambda x: [x * constant], torch.randn(3))
    before = gm.code, {name: value.dtype for name, value in vars(gm).items() if isinstance(value, torch.Tensor)}
    (out,) = reference(gm, [torch.ones(3)])  # type: ignore[misc]
    assert torch.equal(out, constant.double())
    assert before == (
        gm.code,
        {name: value.dtype for name, value in vars(gm).items() if isinstance(value, torch.Tensor)},
    )


class Branchy(torch.nn.Module):
    """A subgraph held by a higher-order operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: (y.half() + 1).float(), lambda y: y - 1, (x,))


def test_subgraphs_are_widened() -> None:
    gm = torch.export.export(Branchy(), (torch.ones(3),)).graph_module
    (out,) = reference(gm, [torch.full((3,), 0.1)])  # type: ignore[misc]
    assert torch.equal(out, torch.full((3,), 0.1).double() + 1)


def test_dynamo_level_methods_and_autocast_are_widened() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    enter = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    product = graph.call_function(torch.matmul, (x, x))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (enter,))
    graph.output((graph.call_method("half", (product,)),))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    value = torch.randn(4, 4)
    (out,) = reference(gm, [value])  # type: ignore[misc]
    assert torch.equal(out, value.double() @ value.double())


@pytest.mark.parametrize("way", ["dropout outside of training", "drawn in place"])
def test_what_a_random_op_hands_on_or_writes_is_its_argument(way: str) -> None:
    """In the graph of Dynamo, where dropout may do nothing, and its result is then updated in place."""
    graph = fx.Graph()
    given = graph.call_function(torch.mul, (graph.placeholder("x"), 1 / 3))
    given.meta["example_value"] = torch.empty(3)
    if way == "drawn in place":
        result = graph.call_method("uniform_", (given,))
    else:
        result = graph.call_function(torch.nn.functional.dropout, (given, 0.5, False))
    graph.call_method("add_", (result, 5.0))
    graph.output((given, result))
    gm, x = fx.GraphModule(torch.nn.Module(), graph), torch.full((3,), 0.1)
    torch.manual_seed(0)
    wanted = gm(x)
    torch.manual_seed(0)
    outcome = reference(gm, [x])
    assert not isinstance(outcome, NoReference)
    assert outcome[0] is outcome[1] and outcome[0].dtype == torch.float64
    torch.testing.assert_close(outcome[0].float(), wanted[0])
    if way != "drawn in place":
        assert not torch.equal(
            outcome[0], outcome[0].float().double()
        )  # as exact as float64 is, not rounded on the way


def test_what_has_no_float64_meaning_gives_a_reason() -> None:
    result = reference(traced(lambda x: [x.view(torch.int32) + 1], torch.randn(4)), [torch.randn(4)])
    assert isinstance(result, NoReference)
    assert "reinterprets" in result.reason


def test_bits_of_integers_are_the_same_among_float64_values() -> None:
    x = torch.arange(-4, 4)
    halves, whole = wide(lambda x: [(y := x.view(torch.int32) * 2), y.view(torch.int64)], x)
    assert torch.equal(halves, x.view(torch.int32) * 2) and torch.equal(whole, halves.view(torch.int64))


def test_an_op_without_float64_names_the_node() -> None:
    gm = traced(lambda x: [torch.ops.aten.bernoulli.p(x, 0.5)], torch.rand(4))
    node = next(node for node in gm.graph.nodes if node.op == "call_function")

    def refuses(*_: Any) -> None:
        raise RuntimeError("not implemented for 'Double'\nand so on")

    node.target = refuses
    result = reference(gm, [torch.rand(4)])
    assert isinstance(result, NoReference)
    assert node.name in result.reason
    assert "not implemented for 'Double'" in result.reason
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(("rate", "draws"), [(0.0, False), (0.5, True), (1.0, False)])
def test_a_dropout_that_drops_everything_draws_nothing(rate: float, draws: bool) -> None:
    gm = torch.fx.symbolic_trace(lambda x: torch.nn.functional.dropout(x, rate))
    assert draws_from_generator(gm) is draws


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [torch.nn.functional.dropout(x, 0.5)],
        lambda x: [x + torch.rand(4)],
        lambda x: [torch.randn_like(x) * x],
        lambda x: [torch.bernoulli(x.abs().clamp(0, 1))],
    ],
)
def test_random_numbers_of_the_reference_are_those_of_eager(function: Callable[..., Any]) -> None:
    x = torch.rand(4)
    gm = traced(function, x)
    assert has_random(gm)
    assert draws_from_generator(gm)
    eager = execute(lambda given: run_graph(gm, given), [x], seed=3).outputs
    result = reference(
        gm, [x], lambda wide, given: execute(lambda inputs: run_graph(wide, inputs), given, seed=3).outputs
    )
    assert not isinstance(result, NoReference)
    assert torch.allclose(result[0].float(), eager[0])


def test_gradients_have_a_reference() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    graph.output((graph.call_function(torch.matmul, (x, w)),))
    gm = fx.GraphModule(torch.nn.Module(), graph)

    def run(module: fx.GraphModule, inputs: list[Any]) -> list[Any]:
        return execute(lambda given: run_graph(module, given), inputs, seed=0, backward=True).results([])

    inputs = [torch.randn(4, 4), weight]
    result, eager = reference(gm, inputs, run), run(gm, clone_inputs(inputs))
    assert not isinstance(result, NoReference)
    assert [item.dtype for item in result] == [torch.float64] * 2
    assert compare(result, eager, eager) is None


def test_failures_name_their_node() -> None:
    gm = traced(lambda x: [x.reshape(4) + 1], torch.randn(4))
    with pytest.raises(GraphRunError, match="view"):
        run_graph(gm, [torch.randn(5)])


def test_a_run_that_reads_uninitialised_memory_shows() -> None:
    gm = traced(lambda x: [x + torch.empty(4)], torch.randn(4))
    item, other = run_graph(gm, [torch.zeros(4)]), run_graph(gm, [torch.zeros(4)], poison=True)
    assert compare(None, item, other) is not None
    torch.use_deterministic_algorithms(True)  # fills such memory, so a result may depend on it
    try:
        item, other = run_graph(gm, [torch.zeros(4)]), run_graph(gm, [torch.zeros(4)], poison=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert compare(None, item, other) is None


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


def test_equal_is_fine_and_rounding_is_fine() -> None:
    exact = [torch.linspace(1, 2, 100, dtype=torch.float64)]
    eager = [exact[0].float()]
    assert compare(exact, eager, eager) is None
    assert compare(exact, eager, [eager[0] * (1 + 1e-6)]) is None


def test_wrong_by_more_than_eagers_own_error_is_wrong() -> None:
    exact = [torch.linspace(1, 2, 100, dtype=torch.float64)]
    comparison = compare(exact, [exact[0].float()], [exact[0].float() * 1.001])
    assert comparison is not None
    assert comparison.kind == "accuracy"
    assert comparison.size == pytest.approx(1e-3, rel=0.01)


def test_an_eager_that_is_as_bad_excuses_the_rung() -> None:
    exact = [torch.linspace(1, 2, 100, dtype=torch.float64)]
    assert compare(exact, [exact[0].float() * 1.001], [exact[0].float() * 0.999]) is None


def test_one_wrong_value_among_many_counts() -> None:
    exact = [torch.ones(1_000_000, dtype=torch.float64)]
    got = torch.ones(1_000_000)
    got[77] = 1.01
    comparison = compare(exact, [ones(1_000_000)], [got])
    assert comparison is not None
    assert "1 of 1000000" in comparison.text


def test_half_precision_is_judged_by_its_own_tolerance() -> None:
    exact = [torch.linspace(1, 2, 100, dtype=torch.float64)]
    half = exact[0].half()
    assert compare(exact, [half], [half * (1 + 2e-3)]) is None
    assert compare(exact, [half], [half * 1.1]) is not None


@pytest.mark.parametrize(("value", "name"), [(float("nan"), "nan"), (float("inf"), "inf")])
def test_not_finite_where_eager_is_finite(value: float, name: str) -> None:
    got = ones(4)
    got[1] = value
    comparison = compare([ones(4, dtype=torch.float64)], [ones(4)], [got])
    assert comparison is not None
    assert (comparison.kind, comparison.detail) == ("nan", name)
    assert compare([got.double()], [got], [got]) is None


@pytest.mark.parametrize(("got", "what"), [(ones(2, 2), "shape"), (ones(4, dtype=torch.float64), "dtype"), (3, "type")])
def test_metadata(got: Any, what: str) -> None:
    comparison = compare([ones(4, dtype=torch.float64)], [ones(4)], [got])
    assert comparison is not None
    assert (comparison.kind, comparison.detail) == ("metadata", what)


def test_strides_count_where_they_are_promised_and_matter() -> None:
    flipped = ones(3, 4).t().contiguous().t()
    assert compare(None, [ones(3, 4)], [flipped]) is None
    comparison = compare(None, [ones(3, 4)], [flipped], strides=[0])
    assert comparison is not None
    assert comparison.detail == "stride"
    assert compare(None, [ones(1, 4)], [ones(1, 4).as_strided((1, 4), (99, 1))], strides=[0]) is None


def test_wrong_numbers_are_said_before_other_strides_and_rounding_and_another_shape_are_not() -> None:
    flipped = ones(3, 4).t().contiguous().t()
    exact, eager = [ones(3, 4, dtype=torch.float64)] * 2, [ones(3, 4), ones(3, 4) * (1 + 1e-5)]
    others = [ones(3, 4), ones(3, 4) * 2, ones(3, 4) * (1 + 3e-5), ones(3, 5)]
    results = [compare(exact, eager, [flipped, other], strides=[0], rounding=[1]) for other in others]
    assert [item and item.detail for item in results] == ["stride", "", "stride", "shape"]


def test_a_result_that_only_the_noise_excuses_is_said_to_be_no_further_than_rounding_moves_it() -> None:
    exact, eager, got = [ones(8, dtype=torch.float64)], [ones(8) * (1 + 1e-5)], [ones(8) * 1.01]
    noise = Noise(0, torch.full((8,), 0.02, dtype=torch.float64))
    excused = compare(exact, eager, got, rounding=[0], noise=lambda _: noise)
    near = compare(exact, eager, [ones(8) * (1 + 3e-5)], rounding=[0])
    assert excused is not None
    assert near is not None
    assert excused.detail == near.detail == "rounding"
    assert excused.text.endswith("but rounding alone, at random, moves the result as far")
    assert near.text.endswith("and nothing shows that the compiler is wrong")


@pytest.mark.parametrize("unbounded", [math.nan, math.inf])
def test_an_element_that_rounding_may_move_without_bound_excuses_no_other(unbounded: float) -> None:
    exact, eager = [ones(8, dtype=torch.float64)], [ones(8)]
    moved = torch.full((8,), 1e-6, dtype=torch.float64)
    moved[3] = unbounded
    far = ones(8)
    far[3] = 1.5
    for got, kind in ((far, None), (ones(8) * 1.01, "accuracy")):
        difference = compare(exact, eager, [got], noise=lambda _: Noise(0, moved))
        assert (difference and difference.kind) == kind


def test_the_number_of_outputs() -> None:
    comparison = compare(None, [ones(1), ones(1)], [ones(1)])
    assert comparison is not None
    assert comparison.detail == "number of outputs"


def test_integers_are_exact_unless_rounding_decides_them() -> None:
    assert compare([torch.tensor([1, 2])], [torch.tensor([1, 2])], [torch.tensor([1, 3])]) is not None
    assert compare([torch.tensor([1, 3])], [torch.tensor([1, 2])], [torch.tensor([1, 3])]) is None


def test_without_a_reference_eager_is_the_measure() -> None:
    assert compare(None, [ones(4)], [ones(4) * 1.00001]) is None
    assert compare(None, [ones(4)], [ones(4) * 1.1]) is not None


def test_errors_for_the_table() -> None:
    (row,) = output_errors([ones(4, dtype=torch.float64)], [ones(4)], [ones(4) * 2], ["y"])
    assert (row.name, row.rung, row.eager, row.largest) == ("y", 1.0, 0.0, 1.0)


def test_clones_keep_aliases_strides_and_offsets() -> None:
    base = torch.arange(12.0)
    views = [base[2:8].view(2, 3), base.as_strided((3, 3), (1, 1), 4), torch.ones(2, requires_grad=True), 7]
    copies = clone_inputs(views)
    assert [copy.stride() for copy in copies[:2]] == [(3, 1), (1, 1)]
    assert copies[1].storage_offset() == 4
    copies[0][0, 2] = 99
    assert copies[1][0, 0] == 99
    assert base[4] == 4
    assert copies[2].requires_grad
    assert copies[2].is_leaf
    assert copies[3] == 7


def test_a_graphs_copy_has_its_own_subgraphs() -> None:
    gm = torch.export.export(Branchy(), (torch.ones(3),)).graph_module
    copied = copy_graph(gm)
    inner = next(node for node in copied.graph.nodes if node.op == "get_attr")
    assert getattr(copied, inner.target) is not getattr(gm, inner.target)
    widen_graph(copied)


def test_rounding_that_is_all_there_is_may_have_another_size() -> None:
    """The gradient of a bias before a batch norm is nothing but rounding: eager has no digit of it right."""
    truth = torch.full((16,), 1e-17, dtype=torch.float64)
    noise = torch.linspace(-1e-8, 1e-8, 16)
    assert compare([truth], [noise], [8 * noise]) is None
    comparison = compare([truth], [noise], [noise + 1e-3])
    assert comparison is not None
    assert comparison.kind == "accuracy"


def test_a_float32_result_behind_bfloat16_is_as_good_as_bfloat16() -> None:
    gm = fx.symbolic_trace(lambda x: (x * 2, x.bfloat16().float() + 1))
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method", "placeholder"):
            node.meta["val"] = torch.ones(4, dtype=torch.bfloat16 if node.target == "bfloat16" else torch.float32)
    fine, coarse = output_grains(gm)
    assert (fine, coarse) == (torch.finfo(torch.float32).eps, torch.finfo(torch.bfloat16).eps)
    truth = torch.ones(128, dtype=torch.float64)
    got = torch.ones(128)
    got[3] += 0.012  # one value, rounded the other way behind the coarse dtype
    assert compare([truth], [torch.ones(128)], [got], grains=[fine]) is not None
    assert compare([truth], [torch.ones(128)], [got], grains=[coarse]) is None
    assert compare([truth], [torch.ones(128)], [got * 1.1], grains=[coarse]) is not None


def test_packed_numbers_are_compared_byte_by_byte() -> None:
    want = torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    changed = want.view(torch.uint8).clone()
    changed[3] = 0x70
    assert compare(None, [want], [want.clone()]) is None
    comparison = compare(None, [want], [changed.view(want.dtype)])
    assert comparison is not None
    assert (comparison.kind, comparison.detail) == ("accuracy", "integers")
    assert comparison.text == "1 of 8 elements differ from eager's (torch.float4_e2m1fn_x2)"
    assert output_errors(None, [want], [want], ["packed"]) == []
    gm = make_fx(lambda x: [x.view(torch.float4_e2m1fn_x2).view(torch.uint8)], tracing_mode="fake")(changed)
    assert output_grains(gm) == [0.5]


def test_a_run_that_raises_leaves_grad_mode_as_it_was() -> None:
    def run(inputs: list[Any]) -> list[Any]:
        torch._C._set_grad_enabled(False)
        raise ValueError

    with pytest.raises(ValueError):
        execute(run, [torch.ones(1)], seed=0)
    assert torch.is_grad_enabled()


def test_a_backward_runs_without_the_autocast_of_its_forward() -> None:
    def run(inputs: list[Any]) -> list[Any]:
        with torch.autocast("cpu", enabled=False):
            return [inputs[0] @ inputs[0]]

    x = torch.full((2, 2), 1 / 3, requires_grad=True)
    plain = execute(run, [x], seed=0, backward=True).gradients
    with torch.autocast("cpu"):
        assert torch.equal(execute(run, [x], seed=0, backward=True).gradients[0], plain[0])


def test_results_that_are_all_zero_are_counted() -> None:
    want = [torch.ones(4), torch.arange(1.0, 5.0), torch.zeros(4), torch.full((4,), 2.0)]
    lost = [want[0], torch.zeros(4), torch.zeros(4), torch.zeros(4)]
    difference = compare(want, want, lost)
    assert difference is not None and difference.text.endswith("; 2 of 4 outputs are all 0, eager's are not")
    single = compare(want, want, [*want[:3], torch.zeros(4)])
    assert single is not None and "all 0" not in single.text
    names = [f"gradient of p{at}" for at in range(4)]
    eager, got = (comparing.Left(dict(zip(names, values, strict=True))) for values in (want, lost))
    row = comparing.judged("inductor", "inductor", "backward", eager, got, {}, lambda count: {}, {})
    assert row.verdict.reason.endswith("; 2 of 4 values are all 0, eager's are not")
