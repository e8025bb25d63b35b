"""The search by halves: it finds the application, steps around what decides nothing, and asks few questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdbg.toolkit.blame.bisect import Search, _backend
from graphdbg.toolkit.blame.bisect_narrowing import last_needed, narrow, single
from graphdbg.toolkit.blame.bisect_records import Application, Bisection, Culprit, Effect, Subsystem
from graphdbg.toolkit.blame.bisect_words import _sentence, conclude, finding_text, match_text
from graphdbg.toolkit.blame.node_asking import NodeBlame
from graphdbg.toolkit.blame.partners import ByNode


@given(st.integers(1, 600).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count))))
def test_the_needed_one_is_found_with_log2_probes(case: tuple[int, int]) -> None:
    count, needed = case
    asked: list[int] = []

    def ask(on: int) -> Effect:
        asked.append(on)
        return "same" if on >= needed else "gone"

    assert last_needed(count, ask) == (needed - 1, needed)
    assert len(asked) <= math.ceil(math.log2(count)) if count > 1 else not asked


@given(st.integers(4, 60), st.data())
def test_another_failure_is_stepped_around(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.integers(1, count))
    broken = data.draw(st.sets(st.integers(1, count - 1), max_size=5)) - {needed - 1, needed}

    def ask(on: int) -> Effect:
        return "other" if on in broken else "same" if on >= needed else "gone"

    assert last_needed(count, ask) == (needed - 1, needed)


def test_where_nothing_decides_the_range_is_left() -> None:
    result = last_needed(40, lambda on: "other" if 10 <= on <= 30 else "same" if on > 30 else "gone")
    assert result.low <= 10
    assert result.high >= 30


@given(st.integers(1, 200).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))))
def test_a_single_one_is_found_by_groups(case: tuple[int, int]) -> None:
    count, guilty = case
    asked: list[int] = []

    def ask(group: Sequence[int]) -> Effect:
        asked.append(len(group))
        return "gone" if guilty in group else "same"

    assert single(range(count), ask) == guilty
    assert len(asked) <= 2 * math.ceil(math.log2(count)) + 1


def test_groups_that_fail_otherwise_are_searched_inside() -> None:
    def ask(group: Sequence[int]) -> Effect:
        return "other" if 3 in group else "gone" if 6 in group else "same"

    assert single(range(8), ask) == 6


def test_no_single_one_is_none() -> None:
    assert single(range(8), lambda group: "gone" if len(group) == 8 else "same") is None
    assert single([], lambda group: "gone") is None


def test_what_the_failure_stays_without() -> None:
    rows = [Subsystem("the run's own settings", 2, "same"), Subsystem("pre_grad_passes", 1, "same")]
    rows += [Subsystem("any of pre_grad_passes, joint_graph_passes", 0, "same"), Subsystem("fusion", 0, "other")]
    result = Bisection("0_0/dynamo", "dynamo", reproduced=True, rows=rows)
    conclude(result, cast(Any, SimpleNamespace(name="run/0_0/dynamo")))
    assert result.sentence == (
        "No pass, lowering or setting explains it: the failure stays without any one of these: "
        "the run's own settings, pre grad passes; nor does it go away without all kinds of passes at once."
    )


@pytest.mark.parametrize(
    ("alone", "end"),
    [
        (True, ": with only that off the graph is right (verified)."),
        (False, ", but with only this off the failure stays."),
    ],
)
def test_what_is_to_blame_is_said_in_a_whole_sentence(alone: bool, end: str) -> None:
    off = [Application("decomposition", name="aten.celu.default")]
    said = finding_text("decomposition", off, off, alone)
    result = _sentence(Culprit("decomposition", "decomposition", "aten.celu.default", said, alone=alone))
    assert result == f"To blame is the decomposition of aten.celu.default{end}"


@pytest.mark.parametrize(("without", "kind"), [("same", "aot"), ("other", "decomposed")])
def test_aotautograd_is_blamed_alone_only_where_the_failure_stays_without_decompositions(
    without: Effect, kind: str
) -> None:
    applied = [Application("decomposition", name="aten.celu.default")]
    asking: Any = SimpleNamespace(
        log=applied,
        probe_rung=lambda rung: "same",
        probe=lambda trial: without,
        applications=lambda subsystem: applied,
        result=SimpleNamespace(rows=[]),
        saved=SimpleNamespace(run=None, stage="dynamo"),
    )
    (result,) = _backend(asking)
    assert result.kind == kind and ("no decomposition explains it" in result.sentence) == (kind == "aot")


def test_nothing_is_narrowed_where_nothing_was_applied() -> None:
    assert narrow(cast(Any, SimpleNamespace(log=[])), ["decomposition"]) == []


@pytest.mark.parametrize("seen", [True, False])
def test_the_inputs_of_a_wrong_node_are_called_right_only_where_they_were_seen(seen: bool) -> None:
    rows = [
        {"name": name, "op": "call_method", "tap": tap} for name, tap in [("unfold", seen), ("mul", seen), ("y", 1)]
    ]
    rows.insert(0, {"name": "size", "op": "call_function", "tap": False})  # a number, which is in no atom
    atoms = {"of_node": {"unfold": 0, "mul": 1, "y": 2}, "parents": [[], [0], [1]]}
    asking = object.__new__(NodeBlame)
    asking.found = ByNode("0_0/pre_grad", "inductor", "found", sort="accuracy")
    asking.__dict__["prepared"] = {"nodes": rows, "atoms": atoms}
    Search(asking)._name("y", {"error": 0.5, "text": ""}, alone=None)
    assert not asking.found.between, "nothing is said of its inputs before it was asked for alone"
    Search(asking)._name("y", {"error": 0.5, "text": ""}, alone=False)
    assert ("on right inputs" in asking.found.sentence) == seen
    assert ("`unfold`, `mul` could not be returned" in asking.found.sentence) != seen


def test_of_several_matches_that_are_off_together_some_may_be_innocent() -> None:
    matches = [Application("pattern_matches", name="mm_plus_mm", label=f"mm_{at}", line="t.py:3") for at in (1, 2)]
    assert match_text(matches[:1]) == "the pattern `mm_plus_mm` on nodes mm_1 (t.py:3)"
    several = "one or more of 2 matches of the pattern `mm_plus_mm`, the first on nodes mm_1 (t.py:3)"
    assert match_text(matches) == several
