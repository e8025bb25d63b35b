"""The tables of docs/comparison.md are those of docs/comparison.json."""

from __future__ import annotations

import json

from tests.bench.peers_page import PAGE, filled


def test_the_page_shows_the_kept_numbers() -> None:
    numbers = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, numbers) == text
