"""Twenty planted origins, ten in the forward and ten in the backward, found in one run of one compiled program."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from graphdbg.toolkit.compilers.debug_nop import MetadataMismatch, collecting
from graphdbg.toolkit.verdicts.mismatches import NodeMismatch, folded, origins, text_report
from tests.planted import lying_ops

PLANTED = {
    "size forward": "size",
    "dtype forward": "dtype",
    "stride forward": "stride",
    "stride again forward": "stride",
    "offset forward": "offset",
    "device forward": "device",
    "alias forward": "alias",
    "copy forward": "alias",
    "mutation forward": "mutation",
    "second forward": "stride",
    "size backward": "size",
    "dtype backward": "dtype",
    "stride backward": "stride",
    "offset backward": "offset",
    "device backward": "device",
    "alias backward": "alias",
    "copy backward": "alias",
    "mutation backward": "mutation",
    "second backward": "stride",
    "both backward": "stride",
}
"""Plant (a comment on its line in lying_ops.py) -> the property that is wrong there."""


@pytest.fixture(scope="module")
def mismatches() -> list[NodeMismatch]:
    """What one forward and backward found, with dynamic shapes."""
    torch._dynamo.reset()
    compiled = torch.compile(lying_ops.twenty, backend="graphdbg_debug_nop", dynamic=True)
    x, w = (torch.randn(6, 6, requires_grad=True) for _ in range(2))
    with warnings.catch_warnings(), collecting() as findings:
        warnings.simplefilter("ignore")
        compiled(x, w).backward()
    return findings


@pytest.mark.parametrize(("plant", "wrong"), PLANTED.items(), ids=PLANTED)
def test_a_planted_origin_is_found_with_its_line(mismatches: list[NodeMismatch], plant: str, wrong: str) -> None:
    line = lying_ops.planted()[plant]
    here = [finding for finding in origins(mismatches) if finding.line == line]
    assert wrong in {mismatch.property for finding in here for mismatch in finding.own}
    assert {mismatch.cause for finding in here for mismatch in finding.own} <= {"fake", "schema"}
    assert all(finding.op.startswith("lying::") for finding in here)


def test_nothing_else_is_an_origin(mismatches: list[NodeMismatch]) -> None:
    assert {finding.line for finding in origins(mismatches)} == set(lying_ops.planted().values())
    assert len(lying_ops.planted()) == 20


def test_all_that_follows_is_folded_under_an_origin(mismatches: list[NodeMismatch]) -> None:
    rest = [finding for finding in mismatches if not finding.origin]
    assert len(rest) > 10
    under = {id(finding) for _, inherited in folded(mismatches) for finding in inherited}
    assert all(id(finding) in under for finding in rest)


def test_the_report_says_it_in_sentences(mismatches: list[NodeMismatch]) -> None:
    report = text_report(mismatches)
    assert report.startswith("21 origins, ")  # the last line of the backward calls two ops
    file = Path(lying_ops.__file__).name
    stride = f"`stride` ({file}:"
    assert stride in report
    assert "stride expected (6, 1), got (1, 6) with" in report
    assert "the fake function of lying::stride is wrong" in report
    assert "the schema of lying::mutation does not say" in report


def test_without_a_collector_the_whole_graph_runs_and_then_raises() -> None:
    ran: list[str] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        return lying_ops.OPS.stride(x + 1) + lying_ops.OPS.offset(x)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="graphdbg_debug_nop")
    with pytest.raises(MetadataMismatch) as raised:
        ran.append(str(compiled(torch.randn(4, 4))))
    assert not ran
    assert isinstance(raised.value, AssertionError)
    assert [finding.node for finding in origins(raised.value.findings)] == ["stride", "offset"]
    assert str(raised.value).count("test_planted_origins.py:") == 2
