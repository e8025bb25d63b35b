"""Compiled without optional passes, a model computes the same: forward and gradients against eager, and how to ask for
it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphdbg.toolkit.compile_fx import Pipeline, compile_fx
from graphdbg.toolkit.compile_fx.passes import PASSES

from .passes_cases import here, in_place


class Model(torch.nn.Module):
    """Attention by hand, a matmul of one column, views, and a constant, so that most optional passes have something to
    do."""

    def __init__(self) -> None:
        super().__init__()
        self.into = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.into(x).chunk(3, -1)
        y = ((q @ k.transpose(-2, -1)) * 0.25).softmax(-1) @ v
        y = torch.cat([y[..., :4].relu(), y[..., 4:]], -1) + torch.ones(8) * torch.arange(8).view(8).float()
        return self.out(y.view(-1, 8).view(2, 6, 8).to(torch.float64).to(torch.float32))


def without(*skip: str) -> tuple[Pipeline, float]:
    """The greatest difference to eager, of the output and the gradients."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = Model(), torch.randn(2, 6, 8, requires_grad=True)
    wanted = model(x)
    gradients = torch.autograd.grad(wanted.sum(), [x, *model.parameters()])
    pipeline = Pipeline(skip=skip)
    compiled = torch.compile(model, backend="graphdbg_triton", options={"pipeline": pipeline})(x)
    result = torch.autograd.grad(compiled.sum(), [x, *model.parameters()])
    pairs = zip((compiled, *result), (wanted, *gradients), strict=True)
    return pipeline, max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.slow
def test_without_all_optional_passes_the_numbers_are_eagers() -> None:
    names = [
        own_pass.full_name for own_pass in PASSES.values() if not own_pass.always_needed and here(own_pass.full_name)
    ]
    pipeline, difference = without(*names)
    assert difference < 1e-4
    skipped = {
        own_pass.full_name for report in pipeline.reports for own_pass in report.passes if own_pass.skipped_because
    }
    assert skipped >= {"joint.remove_noop_ops", "post_grad.reinplace_inplaceable_ops", "joint.attention_patterns"}
    parts = {report.part for report in pipeline.reports for own_pass in report.passes if own_pass.skipped_because}
    assert parts == {"dynamo", "joint", "forward", "backward"}  # also where it is compiled late


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "remove_noop_ops",
        "joint.attention_patterns",
        "joint.constant_fold_uniform_value",
        "post_grad.addmm_patterns",
        "post_grad.reinplace_inplaceable_ops",
        "pad_mm",
    ],
)
def test_without_one_pass_the_numbers_are_eagers(name: str) -> None:
    pipeline, difference = without(name)
    assert difference < 1e-4
    assert pipeline.skip_passes


def asserting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch.ops.aten._assert_tensor_metadata.default(x, None, None, torch.float32)
    return x.relu() + y


def recording(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    handle = torch.ops.profiler._record_function_enter_new.default("planted", None)
    z = x.relu()
    torch.ops.profiler._record_function_exit._RecordFunction(handle)
    return z + y


def like_numpy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sum(x, axis=1, keepdims=True) + torch.cat([x, y], axis=0)[:4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "name"),
    [
        (asserting, "post_grad.remove_assert_ops"),
        (recording, "post_grad.remove_profiler_ops"),
        (in_place, "post_grad.reinplace_inplaceable_ops"),
        (in_place, "remove_noop_ops"),
        (like_numpy, "pre_grad.numpy_compat_normalization"),
    ],
)
def test_nodes_that_a_pass_would_have_taken_lower_to_the_same(model: Callable[..., Any], name: str) -> None:
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    pipeline = Pipeline(skip=(name,))
    compiled = compile_fx(torch.fx.symbolic_trace(model), [x, y], pipeline=pipeline)
    assert torch.allclose(torch.as_tensor(compiled(x, y)), model(x, y))
    assert all("skipped 1 time" in skipped_pass for skipped_pass in pipeline.skipped_passes())


def test_a_pass_is_left_out_by_name_in_each_way_of_asking() -> None:
    def doubled(x: Any) -> Any:
        return x.view(2, 6).view(12) * 2

    x = torch.randn(12)
    compiled = compile_fx(torch.fx.symbolic_trace(doubled), [x], skip=("remove_noop_ops",))
    assert torch.equal(torch.as_tensor(compiled(x)), doubled(x))
    torch._dynamo.reset()
    compiled = torch.compile(doubled, backend="graphdbg_triton", options={"skip": ("post_grad.remove_noop_ops",)})
    assert torch.equal(compiled(x), doubled(x))
    torch._dynamo.reset()
    wrong = torch.compile(doubled, backend="graphdbg_triton", options={"skip": ("remove_noop",)})
    with pytest.raises(
        Exception, match=r"no pass or stage is called 'remove_noop'.*Did you mean remove_noop_ops \(joint, post_grad\)"
    ):
        wrong(x)
