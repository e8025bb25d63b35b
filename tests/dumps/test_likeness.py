"""One error in two texts: what counts, and that a repro asks what a signature is compared by."""

from __future__ import annotations

from typing import Any

import pytest

from graphdbg.dumps import wording
from graphdbg.dumps.wording import like, words_of
from graphdbg.toolkit.verdicts import signature
from graphdbg.toolkit.verdicts.signature import Signature

ALIKE = [
    ("expected buf1 of size [4] at /tmp/x/y", "RuntimeError: expected buf12 of size [7, 8] at /home/ann/z"),
    ("no lowering for aten.foo 12", "LoweringException: no lowering for aten.foo 3\n  target: aten.foo"),
    ("layer_12 failed", "layer_3 failed"),
    ("'weight'", "KeyError: 'weight'"),
    ("cannot lower TensorBox(StorageBox(1))",) * 2,
    ("12", "anything"),
    ("", "anything"),
]
OTHER = [
    ("'weight'", "KeyError: 'bias'"),
    ("index out of range", "shape out of order"),
    ("no such file", "division by zero"),
]


@pytest.mark.parametrize(("raw", "text"), ALIKE)
def test_one_error(raw: str, text: str) -> None:
    assert like(words_of(signature.message(raw)), text)


@pytest.mark.parametrize(("raw", "text"), OTHER)
def test_another_error(raw: str, text: str) -> None:
    assert not like(words_of(signature.message(raw)), text)


@pytest.mark.parametrize(("raw", "text"), [*ALIKE, *OTHER])
def test_a_program_says_what_a_signature_says(raw: str, text: str) -> None:
    messages: dict[str, Any] = {}
    exec("\n".join(wording.SOURCE), messages)
    item, other = (
        Signature("crash", "run", "KeyError", signature.message(each), ("torch.a:b",)) for each in (raw, text)
    )
    asked = words_of(item.message)
    assert messages["like"](asked, text) == like(asked, text)
    assert not item.same_as(other) or messages["like"](asked, text)


def test_what_tells_is_words_and_few() -> None:
    assert words_of("expected <n> columns but got <name> and 'names'") == {
        "expected",
        "columns",
        "but",
        "got",
        "and",
        "names",
    }
    assert len(words_of(" ".join("abcdefghijklmno"[at:] for at in range(15)))) == wording.MOST
