"""A joint graph whose operators take symbolic sizes in C++ enters at its stage."""

from __future__ import annotations

from pathlib import Path

import torch

import graphdbg
from graphdbg.dumps import live
from graphdbg.toolkit.capture import joint_graph
from graphdbg.toolkit.compile_fx import Pipeline
from graphdbg.toolkit.compile_fx.entering import enter
from graphdbg.toolkit.live.spec import ReplaySpec


def up(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.conv2d(x, weight, stride=2, padding=1)
    return torch.nn.functional.interpolate(y, size=x.shape[-2:], mode="nearest").relu()


def test_interpolation_to_a_symbolic_size_is_partitioned(tmp_path: Path) -> None:
    from torch._inductor.decomposition import select_decomp_table

    inputs = torch.randn(2, 3, 8, 12), torch.randn(4, 3, 3, 3, requires_grad=True)
    captured = joint_graph(up, inputs, decompositions=select_decomp_table(), dynamic=True)
    saved = graphdbg.load_graph(captured.save(tmp_path / "case"))
    gm, fakes, _ = live.fake_module(saved.record, saved.tensors, where="case")
    pipeline = Pipeline(until="partition")
    enter(gm, fakes, ReplaySpec.of(saved.record, device=None), pipeline)
    assert [(report.stage, report.error) for report in pipeline.reports] == [("joint", ""), ("partition", "")]
