"""Every code block of README and the site runs and prints what the page shows: `make docs-test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import ROOT, blocks, pages
from .run_pages import run_page

WITH_BLOCKS = [
    page
    for page in pages()
    if any(block.language in ("console", "python") and not block.not_run for block in blocks(page.read_text("utf-8")))
]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_as_it_says(page: Path) -> None:
    troubles = run_page(page)
    assert not troubles, "\n".join(troubles)
