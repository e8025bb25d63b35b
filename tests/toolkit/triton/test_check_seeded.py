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
        made = mutated(source, name, seed)
        changed.extend(
            new.strip() for old, new in zip(source.splitlines(), made.splitlines(), strict=True) if old != new
        )
        return made

    return changed, checked(Live(*case), edit=edit, plain=False)


@pytest.mark.parametrize(
    ("name", "graph_name", "seed", "kinds"),
    [case if case[0] in FAST else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_a_seeded_fault_is_reported_at_its_line(name: str, graph_name: str, seed: int, kinds: tuple[str, ...]) -> None:
    changed, found = _checked(graph(graph_name), name, seed)
    assert changed, "there was no place for it"
    here = [one for one in found.findings if one.kind in kinds]
    assert here, found
    assert all(one.nodes and one.line > 0 and one.kernel for one in here)
    if kinds != ("values",):
        assert any(one.text in changed for one in here)
    else:
        assert all("tl.store(" in one.text and one.node in one.nodes for one in here)


@pytest.mark.slow
@pytest.mark.parametrize("graph_name", INPUTS)
def test_every_mutation_that_matters_is_reported(graph_name: str) -> None:
    """One that leaves every number as it was, and touches no memory that it must not, is no fault: few are such."""
    case = graph(graph_name)
    told = silent = 0
    for name in MUTATIONS:
        for seed in range(3):
            changed, found = _checked(case, name, seed)
            if not changed:
                continue
            told, silent = told + (not found.ok), silent + found.ok
            assert not found.wrong and not found.cannot, (name, seed, changed, found)
            assert found.ok == (found.verdict == "ok" and not found.findings)
    assert told and silent <= 4, (told, silent)
