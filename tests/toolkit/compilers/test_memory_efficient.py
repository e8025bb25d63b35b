"""memory_efficient_fusion: gradients of eager, and a report of what is kept that says the truth."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from functorch.compile import default_partition, nop

from graphdbg.toolkit.compilers import memory_efficient_fusion

from .models import built, step


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y).sin().exp().sum()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(0, 1, 256).requires_grad_(), torch.linspace(1, 2, 256).requires_grad_()


def test_bytes_kept_are_reported_against_the_default_partition() -> None:
    stream = io.StringIO()
    fused = memory_efficient_fusion(pointwise, report=stream)
    assert "nothing was partitioned yet" in str(fused.saved_bytes)
    x, y = arguments()
    fused(x, y).backward()
    ours, others = arguments(), [x.grad, y.grad]
    pointwise(*ours).backward()
    for item, other in zip(ours, others, strict=True):
        torch.testing.assert_close(item.grad, other)
    report = fused.saved_bytes
    # By default the sum and the exponential are kept, 256 numbers of 4 bytes each; the cut computes the exponential
    # again.
    assert (report.saved, report.saved_by_default) == (1024, 2048)
    (row,) = report.rows
    assert (row.kept.results, row.default.results, row.kept.input_bytes) == (1, 2, 0)
    assert stream.getvalue() == f"{report}\n"
    assert ": 1.0 KiB kept from forward to backward in 1 tensor (default partition: 2.0 KiB in 2), and 0 B of" in str(
        report
    )


def test_keyword_arguments_win() -> None:
    called: list[str] = []

    def compiler(gm: Any, inps: Any) -> Any:
        called.append("mine")
        return nop(gm, inps)

    fused = memory_efficient_fusion(pointwise, fw_compiler=compiler, partition_fn=default_partition)
    fused(*arguments())
    assert called == ["mine"]
    assert fused.saved_bytes.saved == fused.saved_bytes.saved_by_default == 2048


def test_a_view_of_what_is_kept_counts_once() -> None:
    fused = memory_efficient_fusion(lambda x: (lambda y: (y.t() @ y).sum())(torch.mm(x, x).relu()))
    fused(torch.ones(8, 8, requires_grad=True)).backward()
    (row,) = fused.saved_bytes.rows
    assert row.kept.result_bytes in (256, 320)  # 8 * 8 numbers of 4 bytes, and maybe relu's mask of bytes
    assert row.default.result_bytes == 256 * row.default.results


def test_a_module_with_tied_weights_and_changing_state() -> None:
    model, inputs = built("transformer")
    twin = copy.deepcopy(model)
    fused = memory_efficient_fusion(model)
    for _ in range(3):
        torch.testing.assert_close(step(model, fused, inputs), step(twin, twin, inputs))
        with torch.no_grad():
            for item, other in zip(model.parameters(), twin.parameters(), strict=True):
                item.sub_(0.1 * item.grad)  # type: ignore[operator]
                other.sub_(0.1 * other.grad)  # type: ignore[operator]
    assert 0 < fused.saved_bytes.saved <= fused.saved_bytes.saved_by_default
