"""Discrete results: what rounding decides is excused, a wrong kernel is not."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.judging import comparing
from graphdbg.toolkit.judging.baseline import reference
from graphdbg.toolkit.judging.comparing import TF32, eps_of_nodes, noise
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.eager import run_graph
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.numerics.comparison import compare


def mask(x, weight):
    h = (x @ weight).tanh() @ weight
    return (h <= 0, h)


def counted(function, *inputs):
    gm = make_fx(function)(*inputs)
    truth = reference(gm, list(inputs))
    return truth, noise(gm, list(inputs), truth, lambda wide, given, hook: run_graph(wide, given, hook=hook))


def test_a_mask_of_rounded_numbers_is_decided_by_rounding_in_few_places():
    torch.manual_seed(0)
    inputs = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    truth, result = counted(mask, *inputs)
    assert 0 < result[0].flips < 64 * 64 // 5
    assert result[1].flips == 0  # not discrete

    eager = list(mask(*inputs))
    near = eager[0].clone()
    near.view(-1)[truth[1].abs().view(-1).argsort()[: result[0].flips // 4]] ^= True
    assert compare(truth, eager, [near, eager[1]]) is not None
    assert compare(truth, eager, [near, eager[1]], noise=result.__getitem__) is None
    comparison = compare(truth, eager, [near, eager[1]], noise=result.__getitem__, rounding=(0, 1))
    assert comparison is not None
    assert comparison.detail == "rounding"


def test_a_wrong_mask_is_still_wrong():
    torch.manual_seed(0)
    inputs = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    truth, result = counted(mask, *inputs)
    eager = list(mask(*inputs))
    wrong = compare(truth, eager, [~eager[0], eager[1]], noise=result.__getitem__)
    assert wrong is not None
    assert wrong.detail == "integers"


def test_floats_that_rounding_moves_as_far_convict_nobody():
    def product(x, y):  # the difference of two nearly equal rows, and what 1000 times a wrong one makes of it
        return ((x - y) * 1000,)

    torch.manual_seed(0)
    x = torch.randn(64, 64)
    y = x * (1 + 3e-7)
    truth, result = counted(lambda x, y: product(x.tanh(), y.tanh()), x, y)
    eager = list(product(x.tanh(), y.tanh()))
    got = list(product(x.tanh().double().float().nextafter(torch.tensor(9.0)), y.tanh()))
    assert compare(truth, [truth[0].float()], got) is not None
    comparison = compare(truth, [truth[0].float()], got, noise=result.__getitem__, rounding=(0,))
    assert comparison is not None
    assert comparison.detail == "rounding"
    wrong = compare(truth, eager, [eager[0] + 1], noise=result.__getitem__, rounding=(0,))
    assert wrong is not None
    assert wrong.detail == ""


def test_integers_that_no_float_leads_to_are_exact():
    _, result = counted(lambda x: (x * 2 + 1, x > 3), torch.arange(10))
    assert [item.flips for item in result] == [0, 0]


def test_random_state_that_eager_leaves_uninitialised_is_left_out_and_named():
    graph = fx.Graph()
    x = graph.placeholder("x")
    state = graph.call_function(torch.ops.aten.empty.memory_format, ([1],), {"dtype": torch.int64})
    graph.output((graph.call_function(torch.ops.aten.sin.default, (x,)), state))
    outcome = judge(Live(fx.GraphModule({}, graph), [torch.randn(4)], ReplaySpec("inference")), "nop")
    assert outcome.text == "ok"
    assert any("is uninitialised" in note and "empty" in note for note in outcome.notes)


def test_of_a_result_that_eager_leaves_uninitialised_the_values_are_not_compared():
    graph = fx.Graph()
    graph.output((graph.call_function(torch.ops.aten.empty.memory_format, ([8],)),))
    outcome = judge(Live(fx.GraphModule({}, graph), [], ReplaySpec("inference")), "nop")
    assert outcome.text == "ok"
    assert any("is uninitialised" in note for note in outcome.notes)


def cut(tensor):
    """As Triton's kernels hand it to the GPU's TF32 units."""
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


def scale(x, weight):
    return ((x @ weight).var(1).rsqrt(),)


def test_products_that_are_cut_to_tf32_may_all_move_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(16, 512), torch.randn(512, 256)
    eager, got = scale(x, weight), scale(cut(x), cut(weight))
    for width in (torch.finfo(torch.float32).eps, TF32):
        monkeypatch.setattr(comparing, "eps_of_nodes", lambda *_, width=width: {"mm": (width,)})
        truth, result = counted(scale, x, weight)
        comparison = compare(truth, list(eager), list(got), noise=result.__getitem__, rounding=(0,))
        assert comparison is not None and (comparison.detail == "rounding") == (width == TF32)


@pytest.mark.gpu
def test_what_a_gpu_multiplies_in_tf32_is_moved_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.randn(16, 512, device="cuda"), torch.randn(512, 256, device="cuda")
    gm = make_fx(scale)(*inputs)
    results = [eps_of_nodes(gm, inputs)["mm"]]
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert [*results, eps_of_nodes(gm, inputs)["mm"]] == [(torch.finfo(torch.float32).eps,), (TF32,)]
