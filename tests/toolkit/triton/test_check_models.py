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
    for graph, result in rows(model, way, ("forward", "backward")):
        assert not result.findings, (graph.stage, result.findings)
        assert not result.notes, (graph.stage, result.notes)
        assert result.ok, (graph.stage, result.verdict)
        assert result.launches
