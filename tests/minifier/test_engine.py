"""The engine: budgets, interruption, the journal and resuming."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphdbg.dumps.errors import UnreadableError, UsageError
from graphdbg.minifier.budget import SearchLimits
from graphdbg.minifier.engine import Engine
from graphdbg.minifier.journal import Journal
from graphdbg.minifier.minified import Interrupted
from graphdbg.minifier.search.problem import Answer, Candidate, Ruling, ranges
from graphdbg.minifier.search.tiers import TIERS
from tests.minifier.generated import Generated, needs, transformer

WHOLE = Candidate.of(range(300))


def problem() -> Generated:
    return Generated(transformer(300), needs([30, 270]))


def test_ranges() -> None:
    assert ranges([3, 1, 2, 7, 9, 10]) == "1-3,7,9-10"
    assert ranges([]) == ""


def test_budget_of_queries_keeps_the_best() -> None:
    result = Engine(problem(), budget=SearchLimits(max_queries=12)).run(TIERS, WHOLE)
    assert result.queries == 12
    assert result.stopped is not None
    assert "--max-queries 12" in result.stopped
    assert result.best is not None
    assert {30, 270} <= result.best.keep < set(range(300))


def test_budget_of_time() -> None:
    result = Engine(problem(), budget=SearchLimits(max_seconds=0.0)).run(TIERS, WHOLE)
    assert result.queries == 0
    assert result.best is None


def test_interruption_carries_the_best() -> None:
    asked = problem()
    plain = asked.test

    def test(candidate: Candidate) -> Answer:
        if asked.queries == 14:
            raise KeyboardInterrupt
        return plain(candidate)

    asked.test = test  # type: ignore[method-assign]
    with pytest.raises(Interrupted) as caught:
        Engine(asked).run(TIERS, WHOLE)
    result = caught.value.result
    assert result.queries == 14
    assert result.best is not None
    assert result.history[-1][1] == len(result.best.keep)


def test_broken_infrastructure_stops_with_the_best() -> None:
    asked = problem()
    plain = asked.test

    def test(candidate: Candidate) -> Answer:
        return plain(candidate) if asked.queries < 14 else Answer(Ruling.INFRA, detail="the server is gone")

    asked.test = test  # type: ignore[method-assign]
    result = Engine(asked).run(TIERS, WHOLE)
    assert result.stopped == "the oracle does not work: the server is gone"
    assert result.best is not None


def test_resume_equals_uninterrupted_and_asks_nothing_twice(tmp_path: Path) -> None:
    undisturbed = Engine(problem()).run(TIERS, WHOLE)
    path = tmp_path / "journal.jsonl"
    asked = problem()
    for stop in (5, 9, 20, None):
        journal = Journal(path, {"case": "x"}, resume=path.exists())
        result = Engine(asked, journal=journal, budget=SearchLimits(max_queries=stop)).run(TIERS, WHOLE)
        journal.close()
    assert result.best == undisturbed.best
    assert result.history == undisturbed.history
    assert asked.repeats == 0
    assert asked.queries == undisturbed.queries
    assert result.recalled == 20


def test_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, {})
    journal.write("0-2", 0, Answer(Ruling.SAME, nodes=5))
    journal.close()
    with path.open("a") as file:
        file.write('{"case": "0-1", "ru')
    journal = Journal(path, {}, resume=True)
    assert journal.recall("0-2", 0) == Answer(Ruling.SAME, nodes=5)
    journal.write("7", 0, Answer(Ruling.PASS))
    journal.close()
    assert [json.loads(line).get("case") for line in path.read_text().splitlines()] == [None, "0-2", "7"]


def test_journal_of_other_conditions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, {"torch": "2.12"}).close()
    with pytest.raises(UsageError, match=r"its torch is '2.12', now it is '2.13'"):
        Journal(path, {"torch": "2.13"}, resume=True)
    with pytest.raises(UsageError, match="exists"):
        Journal(path, {"torch": "2.12"})
    path.write_text('{"header": {"format": 1}}\nnonsense\n')
    with pytest.raises(UnreadableError, match="line 2"):
        Journal(path, {}, resume=True)


def test_an_answer_is_recalled_with_the_judges_record_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    record = {"verdict": "fails", "kind": "crash", "reason": "no such thing"}
    journal = Journal(path, {})
    journal.write("0-2", 0, Answer(Ruling.SAME, nodes=5, record=record))
    journal.write("0-1", 0, Answer(Ruling.PASS, nodes=4))
    journal.close()
    assert "record" not in path.read_text().splitlines()[-1], "as in a journal from before there were any"
    again = Journal(path, {}, resume=True)
    kept = [again.recall(case, 0) for case in ("0-2", "0-1")]
    assert [answer and answer.record for answer in kept] == [record, None]


def test_candidates_travel_as_json() -> None:
    candidate = Candidate(frozenset([1, 2]), frozenset([3]), frozenset([7]), ("dims 8 2",))
    assert Candidate.from_json(json.loads(json.dumps(candidate.to_json()))) == candidate
    assert candidate.text() == '1-2 bypass 3 return 7 edits ["dims 8 2"]'
