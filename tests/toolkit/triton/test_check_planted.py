"""Faults put into kernels by hand are found, with the kernel's line, an FX node and the user's line."""

from __future__ import annotations

import pytest

from graphdbg.toolkit.live.case import Live

pytest.importorskip("triton")

from .planted import FAULTS, Fault

FAST = ("load past the end", "half is not written", "two programs at one place", "a logarithm of less than nothing")


@pytest.mark.parametrize(
    "name", [fault if fault in FAST else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS]
)
def test_a_planted_fault_is_reported_with_its_place(name: str) -> None:
    from graphdbg.toolkit.kernel_checks.run import checked

    fault: Fault = FAULTS[name]
    edited: list[bool] = []

    def edit(kernel: str, source: str) -> str:
        result = fault.edit(kernel, source)
        edited.append(result != source)
        return result

    outcome = checked(Live(*fault.graph()), edit=edit, plain=False)
    assert any(edited), "the kernel is no longer what the fault was written for"
    assert not outcome.ok
    finding = next(finding for finding in outcome.findings if finding.kind == fault.kind)
    assert fault.line in finding.text
    assert finding.line > 0
    assert fault.node in finding.nodes
    assert any(fault.user in line.code and line.place.startswith("planted.py:") for line in finding.lines)
