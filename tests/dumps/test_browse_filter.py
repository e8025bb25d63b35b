"""The filter language: what can be typed, what it means, and what is said where it cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.dumps import sidecar
from graphdbg.dumps.browse.filter import FilterError, finished, hint, matching, parse, pointed
from graphdbg.dumps.browse.table import GraphView

from .layered import layered


@pytest.fixture(scope="module")
def view() -> GraphView:
    """Four layers and a half."""
    return GraphView(sidecar.build(layered(100)))


def names(view: GraphView, text: str) -> list[str]:
    """The nodes that fit."""
    result = matching(view, parse(text))
    return [view.table.name[node] for node in (range(len(view)) if result is None else result)]


def test_terms() -> None:
    term, other, word = parse("-op:mm|bmm users>=3 'two words'")
    assert (term.key, term.relation, term.alternatives, term.negated) == ("op", ":", ["mm", "bmm"], True)
    assert (other.key, other.relation, other.value) == ("users", ">=", "3")
    assert (word.key, word.value, word.quoted) == ("", "two words", True)
    assert parse("  ") == ()
    assert [(t.key, t.relation, t.value) for t in parse("nan -inf")] == [("nan", ">", "0"), ("inf", ">", "0")]
    assert parse('"nan"')[0].key == ""
    assert parse('module:"a b" size>1')[0].value == "a b"


@pytest.mark.parametrize(
    ("text", "start", "end", "says"),
    [
        ("opp:mm", 0, 3, "did you mean op"),
        ("x users>q", 8, 9, "not a number"),
        ("op:", 0, 3, "no value after"),
        ("shape>3", 5, 6, "text"),
        ('a "b', 2, 4, "not closed"),
        ("-modul:x", 1, 6, "did you mean module"),
        ("bytes>1X", 6, 8, "not a number"),
        ("zzzz:1", 0, 4, "quotes"),
    ],
)
def test_what_cannot_be_read_is_pointed_at(text: str, start: int, end: int, says: str) -> None:
    with pytest.raises(FilterError) as error:
        parse(text)
    assert (error.value.start, error.value.end) == (start, end)
    assert says in f"{error.value.why} {error.value.fix}"
    assert pointed(text, error.value).splitlines()[1] == " " * start + "^" * (end - start)


def test_a_word_that_may_become_a_column_waits_while_it_is_typed() -> None:
    for text, left in (
        ("op:mm us", 1),
        ("op:mm us ", 2),
        ("mm", 1),
        ("o", 0),
        ("'o'", 1),
        ("users>3", 1),
        ("", 0),
        ("-o", 1),
    ):
        assert len(finished(parse(text), text)) == left, text


@given(st.text(alphabet="opmsu:>-|\"' 3*.,nai", max_size=20))
def test_anything_typed_is_terms_or_a_sentence(text: str) -> None:
    try:
        terms = parse(text)
    except FilterError as error:
        assert 0 <= error.start <= error.end <= len(text)
    else:
        small = GraphView(sidecar.build(layered(30)))
        if not any(term.key in ("nan", "inf", "min", "max", "error") for term in terms):
            matching(small, terms)


def test_ops_are_whole_parts_of_a_target(view: GraphView) -> None:
    assert names(view, "op:mm") == [name for name in names(view, "") if name.startswith("mm_")]
    assert names(view, "op:aten.mm") == names(view, "op:mm.default") == names(view, "op:MM") == names(view, "op:mm")
    assert names(view, "op:m") == [] and names(view, "op:m*m") == names(view, "op:?m") == names(view, "op:mm")
    assert names(view, "op:placeholder") == [name for name in names(view, "") if name.startswith("primals")]
    assert set(names(view, "op:mm|erf")) == {*names(view, "op:mm"), *names(view, "op:erf")}
    assert set(names(view, "-op:mm")) | set(names(view, "op:mm")) == set(names(view, ""))


def test_shapes_have_an_exact_rank(view: GraphView) -> None:
    assert names(view, "shape:8,256 op:mm") == names(view, "shape:[*,256] op:mm") == names(view, "op:mm shape:*,>200")
    assert names(view, "shape:256") == [] and len(names(view, "shape:...,64")) > len(names(view, "shape:8,64"))
    assert set(names(view, "shape:*,*")) == set(names(view, "")) - {"output"}


def test_the_other_words(view: GraphView) -> None:
    every = names(view, "")
    assert names(view, "dtype:f32") == names(view, "dtype:float32") == names(view, "-dtype:bf16 dtype:*")
    assert names(view, "users>2") == [name for name in every if view.table.users[view.positions[name]] > 2]
    assert set(names(view, "users:0|1")) == {name for name in every if view.table.users[view.positions[name]] < 2}
    assert names(view, "bytes>=8K") == [n for n in every if (view.table.size_bytes[view.positions[n]] or 0) >= 8192]
    assert names(view, "index<3") == every[:3] and names(view, "seq>2 index<30 -op:placeholder") != []
    assert names(view, "module:blocks.1") == [n for n in every if view.module(view.positions[n]) == "blocks.1"]
    assert names(view, "module:blocks") == names(view, "module:blocks.*") and names(view, "module:block") == []
    assert names(view, "stride:noncontiguous") == [] and "output" not in names(view, "stride:contiguous")
    assert names(view, "stride:1") == [] and names(view, "stride:*,1 op:mm") == names(view, "op:mm")
    assert names(view, "file:model.py:14") == names(view, "line:py:14") == names(view, "code:gelu")
    assert names(view, "flops>1 ") == names(view, "op:mm") == names(view, "flops>0.1M")
    assert names(view, "inputs>1 op:permute") == [] and names(view, "name:mm_*") == names(view, "op:mm")
    assert names(view, "erf") == names(view, "op:erf") and names(view, "PRIMALS_12") == ["primals_12"]
    assert names(view, "-erf -primals") == [n for n in every if "erf" not in n and "primals" not in n]
    assert names(view, "device:cpu") == names(view, "dtype:*") and names(view, "kernel:x") == []


def test_values_need_a_replay(view: GraphView) -> None:
    with pytest.raises(FilterError, match="no values yet") as error:
        names(view, "op:mm nan")
    assert error.value.start == 6 and "press 4" in error.value.fix
    seen = GraphView(view.table)
    mm, erf = names(view, "op:mm")[0], names(view, "erf")[0]
    seen.take_values({mm: (0, 1, 2, 0, 0.5), erf: (0, 9, 0, 1, None)})
    assert names(seen, "nan") == [mm] and names(seen, "inf") == [erf] and names(seen, "error>0.1") == [mm]
    assert names(seen, "max>5") == [erf] and mm not in names(seen, "-nan")


def test_a_hint_names_what_is_near(view: GraphView) -> None:
    assert "mm" in hint(view, parse("op:mn")) and "blocks.1" in hint(view, parse("module:block.1"))
    assert "float32" in hint(view, parse("dtype:float23")) and hint(view, parse("op:mm users>99")) == ""
