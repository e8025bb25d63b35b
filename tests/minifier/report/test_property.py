"""Random graphs: what is verified inside fails in its repro, and passes there without the fault; what passes inside
passes."""

from __future__ import annotations

import pytest

from graphdbg.minifier.oracle import PRELOAD
from graphdbg.toolkit.isolation import fork_server

from .property_run import rows
from .small_graphs import FAULTS

EXAMPLES = 10
"""500 by `make property`."""


@pytest.mark.slow  # `make property` has five hundred
def test_verified_inside_if_and_only_if_the_repro_shows_it() -> None:
    with fork_server(threads=1, preload=PRELOAD) as server:
        result = rows(list(range(EXAMPLES)), server, 2, lambda row: None, alone=False)
    assert [row for row in result if not row.holds] == []
    assert {row.fault for row in result} == set(FAULTS)
    assert sum(row.repro == "shows" for row in result) >= EXAMPLES // 2, "most of them fail inside"
    assert any(row.entry == "as recorded" for row in result), "a fault in a constant needs the graph as it was recorded"
