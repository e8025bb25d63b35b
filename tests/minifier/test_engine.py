"""The engine: budgets, interruption, the journal and resuming."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from graphdbg.dumps.errors import EnvironmentLackError, UsageError
from graphdbg.minifier.agenda import SearchLimits, SearchStopped
from graphdbg.minifier.engine import Engine
from graphdbg.minifier.log import Log
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


def test_a_quarter_of_the_time_is_kept_for_the_verification() -> None:
    limits = SearchLimits(1000.0, started=time.monotonic() - 800.0)
    limits.check(0)
    limits.reserved = 3
    assert limits.late()
    with pytest.raises(SearchStopped, match="s have passed, 250 s more are for verification"):
        limits.check(0)


def test_interruption_carries_the_best() -> None:
    asked = problem()
    plain = asked.test

    def test(candidate: Candidate) -> Answer:
        if asked.queries == 14:
            raise KeyboardInterrupt
        return plain(candidate)

    asked.test = test  # type: ignore[method-assign]
    result = Engine(asked)
    with pytest.raises(Interrupted):
        result.run(TIERS, WHOLE)
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


def begun(out: Path, header: dict[str, object], *, resume: bool = False) -> Log:
    log = Log(out, print)
    log.begin(header, resume=resume)
    return log


def lines(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def test_resume_equals_uninterrupted_and_asks_nothing_twice(tmp_path: Path) -> None:
    undisturbed = Engine(problem()).run(TIERS, WHOLE)
    asked = problem()
    for stop in (5, 9, 20, None):
        log = begun(tmp_path, {"case": "x"}, resume=stop != 5)
        result = Engine(asked, log=log, budget=SearchLimits(max_queries=stop)).run(TIERS, WHOLE)
        log.close()
    assert result.best == undisturbed.best
    assert result.history == undisturbed.history
    assert asked.repeats == 0
    assert asked.queries == undisturbed.queries
    assert result.recalled == 20


def test_a_torn_last_line_is_ended_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = begun(tmp_path, {})
    assert log.answer("0-2", 0, lambda: Answer(Ruling.SAME, nodes=5)) == (Answer(Ruling.SAME, nodes=5), False)
    log.close()
    with log.path.open("a") as file:
        file.write('{"event": "answer", "case": "0-1", "ru')
    log = begun(tmp_path, {}, resume=True)
    assert "1 line of " in capsys.readouterr().out
    assert log.recall("0-2", 0) == Answer(Ruling.SAME, nodes=5)
    assert log.known == 1
    log.answer("7", 0, lambda: Answer(Ruling.PASS))
    log.close()
    whole = [line for line in log.path.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line).get("case") for line in whole] == [None, "0-2", "7"]
    assert log.path.samefile(tmp_path / "journal.jsonl")


def test_a_log_of_other_conditions_or_of_an_earlier_graphdbg_is_refused(tmp_path: Path) -> None:
    begun(tmp_path, {"torch": "2.12"}).close()
    with pytest.raises(UsageError, match=r"torch was '2.12' and is now '2.13'"):
        begun(tmp_path, {"torch": "2.13"}, resume=True)
    with pytest.raises(UsageError, match="exists"):
        begun(tmp_path, {"torch": "2.12"})
    (tmp_path / "journal.jsonl").unlink()
    (tmp_path / "events.jsonl").write_text('{"event":"start","graph":"myrun/0_0/forward"}\n')
    with pytest.raises(UsageError, match="nothing to resume"):
        begun(tmp_path, {}, resume=True)
    (tmp_path / "journal.jsonl").write_text('{"header":{"format":1},"about":{}}\n')
    with pytest.raises(UsageError, match=r"an earlier graphdbg wrote its answers, into journal\.jsonl"):
        begun(tmp_path, {}, resume=True)


def test_an_answer_is_on_the_disk_before_anything_else_is_asked(tmp_path: Path, monkeypatch: Any) -> None:
    log, synced = begun(tmp_path, {}), list[str]()

    def sync(descriptor: int) -> None:
        synced.append(str(lines(tmp_path)[-1]["event"]))

    monkeypatch.setattr("os.fsync", sync)
    Engine(problem(), log=log, tell=log.tell, budget=SearchLimits(max_queries=3)).run(TIERS, WHOLE)
    assert synced == ["answer"] * 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_answer_that_cannot_be_kept_ends_the_search(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    log = Log(tmp_path)
    with pytest.raises(EnvironmentLackError, match="No space left"):
        log.answer("0-2", 0, lambda: Answer(Ruling.SAME))


def test_an_answer_is_recalled_with_the_judges_record_where_there_is_one(tmp_path: Path) -> None:
    record = {"verdict": "fails", "kind": "crash", "reason": "no such thing"}
    log = begun(tmp_path, {})
    log.answer("0-2", 0, lambda: Answer(Ruling.SAME, nodes=5, record=record))
    log.answer("0-1", 0, lambda: Answer(Ruling.PASS, nodes=4))
    log.close()
    again = begun(tmp_path, {}, resume=True)
    kept = [again.recall(case, 0) for case in ("0-2", "0-1")]
    assert [answer and answer.record for answer in kept] == [record, None]


def test_candidates_travel_as_json() -> None:
    candidate = Candidate(frozenset([1, 2]), frozenset([3]), frozenset([7]), ("dims 8 2",))
    assert Candidate.from_json(json.loads(json.dumps(candidate.to_json()))) == candidate
    assert candidate.text() == '1-2 bypass 3 return 7 edits ["dims 8 2"]'
