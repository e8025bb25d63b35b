"""Every code block of README and the site runs and prints what the page shows: `make docs-test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import ROOT, blocks, pages
from .run_pages import run_page


def length(page: Path) -> int:
    """How many blocks of a page are run."""
    runs = [block for block in blocks(page.read_text("utf-8")) if not block.not_run]
    return sum(len(block.commands) or 1 for block in runs if block.language in ("console", "python"))


WITH_BLOCKS = sorted(filter(length, pages()), key=length, reverse=True)
"""The longest first, so that no worker ends long after the others."""


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_as_it_says(page: Path) -> None:
    troubles = run_page(page)
    assert not troubles, "\n".join(troubles)
