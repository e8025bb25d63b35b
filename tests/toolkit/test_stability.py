"""Discrete results: what rounding decides is excused, a wrong kernel is not."""

from __future__ import annotations

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.baseline import reference
from graphdbg.toolkit.case import Live
from graphdbg.toolkit.comparing import ALLOWANCE, flips
from graphdbg.toolkit.eager import run_graph
from graphdbg.toolkit.judge import judge
from graphdbg.toolkit.numerics import compare
from graphdbg.toolkit.spec import ReplaySpec


def mask(x, weight):
    h = (x @ weight).tanh() @ weight
    return (h <= 0, h)


def counted(function, *inputs):
    gm = make_fx(function)(*inputs)
    truth = reference(gm, list(inputs))
    return truth, flips(gm, list(inputs), truth, lambda wide, given, hook: run_graph(wide, given, hook=hook))


def test_a_mask_of_rounded_numbers_is_decided_by_rounding_in_few_places():
    torch.manual_seed(0)
    inputs = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    truth, counts = counted(mask, *inputs)
    assert 0 < counts[0] < 64 * 64 // 20
    assert counts[1] == 0  # not discrete

    eager = list(mask(*inputs))
    near = eager[0].clone()
    near.view(-1)[truth[1].abs().view(-1).argsort()[: counts[0]]] ^= True
    assert compare(truth, eager, [near, eager[1]]) is not None
    assert compare(truth, eager, [near, eager[1]], flips=lambda output: ALLOWANCE * counts[output]) is None


def test_a_wrong_mask_is_still_wrong():
    torch.manual_seed(0)
    inputs = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    truth, counts = counted(mask, *inputs)
    eager = list(mask(*inputs))
    wrong = [~eager[0], eager[1]]
    found = compare(truth, eager, wrong, flips=lambda output: ALLOWANCE * counts[output])
    assert found is not None
    assert found.detail == "integers"


def test_integers_that_no_float_leads_to_are_exact():
    _, counts = counted(lambda x: (x * 2 + 1, x > 3), torch.arange(10))
    assert counts == [0, 0]


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
