"""A text is parsed in any thread, whatever the others do."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphdbg.dumps import syntax

ROOT = Path(__file__).parents[2]
PROGRAM = "\n".join(f"x{number} = f(a, b, {number})" for number in range(300))


@pytest.fixture
def busy() -> Iterator[None]:
    """Other threads get their turn in the middle of a parse: the collector calls Python."""
    before = sys.getswitchinterval()

    def pause(*_: object) -> None:
        sum(range(50))

    gc.callbacks.append(pause)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
    gc.callbacks.remove(pause)


@pytest.mark.long
def test_threads_at_different_depths_parse_at_once(busy: None) -> None:
    results: list[str | int] = []

    def parse(depth: int) -> None:
        if depth:
            return parse(depth - 1)
        for _ in range(20):
            try:
                results.append(len(syntax.parsed(PROGRAM).body))
            except SystemError as error:
                results.append(str(error))
        return None

    threads = [threading.Thread(target=parse, args=(depth,)) for depth in (0, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [300] * 60


def test_nothing_parses_beside_it() -> None:
    texts = {
        path: path.read_text(encoding="utf-8")
        for room in ("dumps", "minifier", "toolkit")
        for path in (ROOT / room).rglob("*.py")
    }
    assert len(texts) > 100
    assert [path.name for path, text in texts.items() if "ast.parse(" in text] == ["syntax.py"]


def test_what_is_refused() -> None:
    for text in ("x = ", "a" + "(" * 300):
        with pytest.raises(SyntaxError):
            syntax.parsed(text)
    with pytest.raises(ValueError, match="malformed"):
        syntax.literal("f()")
