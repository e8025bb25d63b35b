"""No false report on the twenty models, forward and backward."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")


from tests.matrix.triton_false_reports import rows
from tests.models.triton_graphs import MODELS


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_no_report(model: str, way: str) -> None:
    for graph, found in rows(model, way, ("forward", "backward")):
        assert not found.findings, (graph.stage, found.findings)
        assert not found.notes, (graph.stage, found.notes)
        assert found.ok, (graph.stage, found.verdict)
        assert found.launches
