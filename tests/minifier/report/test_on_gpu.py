"""A failure of interpreted Triton kernels is written as a program for the GPU that the kernels are for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import fx

from graphdbg.minifier.report.trying import candidates, on_gpu
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

from .cases import case_of, relu_record

BUG = {"inductor": {"triton.inject_relu_bug_TESTING_ONLY": "accuracy"}}
"""Inductor's own planted fault: relu adds one, in Triton kernels alone."""


def relu_graph() -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.relu.default, (x,)),))
    return fx.GraphModule({}, graph)


def test_a_fault_of_triton_code_is_seen_with_no_gpu() -> None:
    pytest.importorskip("triton")
    outcome = judge(Live(relu_graph(), [torch.ones(4)], ReplaySpec("inference", config=BUG)), "triton_interpret")
    assert outcome.signature is not None and outcome.signature.kind == "accuracy"
    assert judge(Live(relu_graph(), [torch.ones(4)], ReplaySpec("inference")), "triton_interpret").text == "ok"


def test_the_program_runs_the_kernels_on_a_gpu() -> None:
    case = replace(case_of(relu_record(None)), rung="triton_interpret")
    script = next(iter(candidates(case)))
    assert 'device="cuda")' in script.text and "on Triton's interpreter" in script.text
    assert script.text.count("torch.compile(graph") == 1
    plain = next(iter(candidates(replace(case, rung="inductor"))))
    assert "cuda" not in plain.text
    assert on_gpu(case).record.graph.nodes[0].value.device == "cuda"  # type: ignore[union-attr]
    assert case.record.graph.nodes[0].value.device == "cpu"  # type: ignore[union-attr]
