"""The signature id: one for a failure wherever it is met, another for another failure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from graphdbg.dumps.store import SavedGraph
from graphdbg.toolkit.verdicts import signature
from graphdbg.toolkit.verdicts.identity import Call, identity, reduced, text_words
from graphdbg.toolkit.verdicts.signature import Form, Signature


def crash(text: str, error: str = "RuntimeError", detail: str = "", stage: str = "compile") -> Signature:
    return Signature("crash", stage, error, signature.message(text), ("torch._inductor.ir:make",), detail, raw=text)


WRONG = Signature("accuracy", "compare", size=0.5, form=Form(10, 1.0))
CPP = "torch._inductor.exc.CppCompileError"
AMIN, TORCH_AMIN, METHOD = (
    ("call_function", "aten.amin.default"),
    ("call_function", "torch.amin"),
    ("call_method", "amin"),
)
TO, CAST = ("call_method", "long"), ("call_function", "prims.convert_element_type.default")

SAME: list[tuple[tuple[Signature, list[Call]], tuple[Signature, list[Call]]]] = [
    ((WRONG, [AMIN]), (Signature("accuracy", "compare", detail="integers", size=1.0, raw="12 of 99"), [TORCH_AMIN])),
    ((WRONG, [AMIN, TO]), (WRONG, [CAST, METHOD, METHOD])),
    ((WRONG, [AMIN, ("call_function", "aten.full.default"), ("call_function", "operator.getitem")]), (WRONG, [AMIN])),
    ((Signature("nan", "compare", detail="inf"), [AMIN]), (Signature("nan", "compare", detail="nan"), [AMIN])),
    (
        (crash("size [4, 8] of buf12 at /home/ann/x/y.py:12 is odd"), [AMIN]),
        (crash("size [3] of buf4 at /tmp/a/b.py:7 is odd"), []),
    ),
    (
        (crash("expected ‘Half’ but got ‘Float’", CPP, "C++"), [AMIN]),
        (crash("expected 'Half' but got 'Float'", CPP, "C++"), [AMIN]),
    ),
    (
        (crash("cannot lower it", "a.b.LoweringError", "aten.amin.default"), [AMIN]),
        (crash("cannot lower it", "c.LoweringError", "aten.amin.default"), [METHOD, TO]),
    ),
    (
        (crash("the text says it\nand more in version 2.11"), []),
        (crash("the text says it\nand other in version 2.13"), []),
    ),
]

OTHER = [
    (WRONG, [AMIN]),
    (WRONG, [AMIN, TO]),
    (WRONG, [("call_function", "aten.amax.default")]),
    (WRONG, [("call_function", "my.amin.default")]),
    (Signature("accuracy", "compare", detail="signed zero"), [AMIN]),
    (Signature("nan", "compare", detail="nan"), [AMIN]),
    (Signature("nan", "compare", detail="no nan"), [AMIN]),
    (Signature("metadata", "compare", detail="dtype"), [AMIN]),
    (Signature("metadata", "compare", detail="stride"), [AMIN]),
    (Signature("hang", "compile"), [AMIN]),
    (Signature("hang", "run"), [AMIN]),
    (Signature("signal", "run", detail="SIGSEGV"), [AMIN]),
    (Signature("signal", "run", detail="SIGABRT"), [AMIN]),
    (crash("expected Float but found Half"), []),
    (crash("expected Float but found Double"), []),
    (crash("expected Float but found Half", stage="run"), []),
    (crash("expected Float but found Half", "TypeError"), []),
    (crash("expected Float but found Half", detail="aten.amin.default"), []),
    (crash(""), [AMIN]),
    (crash("'buf12'", "KeyError"), [AMIN]),
    (crash("no such thing", CPP, "C++"), [AMIN]),
    (crash("no such thing", CPP, "C++"), [TO]),
    (Signature("missing_error", "compare", "IndexError", "index out of range", detail="aten.gather.default"), [AMIN]),
]


@pytest.mark.parametrize(("item", "other"), SAME)
def test_a_failure_has_one_id_wherever_it_is_met(
    item: tuple[Signature, list[Call]], other: tuple[Signature, list[Call]]
) -> None:
    first, second = (identity(signature, calls, reduced=True) for signature, calls in (item, other))
    assert first == second
    assert len(first.id) == 8


def test_other_failures_have_other_ids() -> None:
    results = [identity(signature, calls, reduced=True).id for signature, calls in OTHER]
    assert len(set(results)) == len(OTHER)


def test_a_graph_is_not_read_where_the_text_says_it_all() -> None:
    def refuse() -> Iterable[Call]:
        raise AssertionError("the graph was read")

    assert identity(crash("expected Float but found Half"), refuse, reduced=False).sharp
    with pytest.raises(AssertionError, match="was read"):
        identity(WRONG, refuse, reduced=False)


def test_wrong_numbers_of_a_whole_graph_are_not_told_for_certain() -> None:
    assert not identity(WRONG, [AMIN, TO], reduced=False).sharp
    assert identity(WRONG, [AMIN, TO], reduced=True).sharp


def test_texts_that_say_nothing_have_no_words() -> None:
    assert [text_words(text) for text in ("", "'<name>'", "<n>", "weight_hh")] == ["", "", "", ""]
    assert text_words("\"slow_conv2d_cpu\" not implemented for 'UInt16'") == "slow_conv2d_cpu not implemented for uint"


@pytest.mark.parametrize(
    ("text", "expected"), [(None, False), ("{}", False), ("[1", False), (json.dumps({"original": {"nodes": 9}}), True)]
)
def test_what_a_minification_left_is_known_by_its_file(tmp_path: Path, text: str | None, expected: bool) -> None:
    if text is not None:
        (tmp_path / "case.json").write_text(text)
    assert reduced(SavedGraph(tmp_path)) is expected
