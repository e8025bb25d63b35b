"""Faults that a seed puts into kernels are found: at the changed line, or, where only numbers are wrong, by the
buffer."""

from __future__ import annotations

import pytest

from graphdbg.toolkit.live.case import Live

pytest.importorskip("triton")

from graphdbg.toolkit.kernel_checks.findings import CheckedKernels

from .mutating import MUTATIONS, mutated
from .planted import INPUTS, Graph, graph

CASES = [
    ("mask dropped", "logarithm", 0, ("store",)),
    ("index shifted", "turned", 0, ("load",)),
    ("wrong stride", "rows", 1, ("load",)),
    ("accumulated in low precision", "long", 0, ("values",)),
    ("a part is not written", "embed", 2, ("uninitialised",)),
    ("two programs at one address", "pointwise", 0, ("write-write", "lanes")),
    ("wrong identity of a reduction", "mean", 0, ("values",)),
    ("wrong cast", "turned", 1, ("values",)),
]
FAST = ("accumulated in low precision", "wrong identity of a reduction")


def _checked(case: Graph, name: str, seed: int) -> tuple[list[str], CheckedKernels]:
    from graphdbg.toolkit.kernel_checks.run import checked

    changed: list[str] = []

    def edit(kernel: str, source: str) -> str:
        result = mutated(source, name, seed)
        changed.extend(
            new.strip() for old, new in zip(source.splitlines(), result.splitlines(), strict=True) if old != new
        )
        return result

    return changed, checked(Live(*case), edit=edit, plain=False)


@pytest.mark.parametrize(
    ("name", "graph_name", "seed", "kinds"),
    [case if case[0] in FAST else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_a_seeded_fault_is_reported_at_its_line(name: str, graph_name: str, seed: int, kinds: tuple[str, ...]) -> None:
    changed, result = _checked(graph(graph_name), name, seed)
    assert changed, "there was no place for it"
    here = [finding for finding in result.findings if finding.kind in kinds]
    assert here, result
    assert all(item.nodes and item.line > 0 and item.kernel for item in here)
    if kinds != ("values",):
        assert any(item.text in changed for item in here)
    else:
        assert all("tl.store(" in item.text and item.node in item.nodes for item in here)


@pytest.mark.slow
@pytest.mark.parametrize("graph_name", INPUTS)
def test_every_mutation_that_matters_is_reported(graph_name: str) -> None:
    """One that leaves every number as it was, and touches no memory that it must not, is no fault: few are such."""
    case = graph(graph_name)
    value = silent = 0
    for name in MUTATIONS:
        for seed in range(3):
            changed, result = _checked(case, name, seed)
            if not changed:
                continue
            value, silent = value + (not result.ok), silent + result.ok
            assert not result.wrong and not result.cannot, (name, seed, changed, result)
            assert result.ok == (result.verdict == "ok" and not result.findings)
    assert value and silent <= 4, (value, silent)
