"""The session: kill and resume, flaky failures, exact budgets, workers, other failures, the passing neighbour. No
torch."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from graphdbg.minifier.search.problem import Answer, Candidate, DoesNotFailError, Ruling
from graphdbg.minifier.session import UNSTEADY
from graphdbg.toolkit.verdicts.signature import Signature
from tests.minifier.abstract import Abstract, core, run
from tests.minifier.generated import needs, transformer, unless

ROOT = Path(__file__).parents[2]
SEEDS = range(20)


def program(out: Path, log: Path, jobs: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.minifier.abstract", str(out), str(log), str(jobs), *more]


def keys(journal: Path) -> list[tuple[str, int]]:
    """What a journal has answers to, a torn last line left out."""
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    return [(event["case"], event["run"]) for event in map(json.loads, lines) if event["event"] == "answer"]


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_ten_kills_end_as_one_run_and_repeat_nothing(tmp_path: Path, jobs: int) -> None:
    subprocess.run(program(tmp_path / "calm", tmp_path / "calm.log", jobs), check=True, cwd=ROOT)
    calm = json.loads((tmp_path / "calm" / "told.json").read_text())
    assert calm["core"] == [30, 170, 270]
    out, log, journal = tmp_path / "out", tmp_path / "log", tmp_path / "out" / "events.jsonl"
    chance = random.Random(jobs)
    kills = 0
    while not (out / "told.json").exists():
        before = len(keys(journal))
        wait_for = before + (chance.randint(1, 4) if kills < 10 else 10_000)
        process = subprocess.Popen(program(out, log, jobs, *(["--resume"] if journal.exists() else [])), cwd=ROOT)
        while process.poll() is None and len(keys(journal)) < wait_for:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.01))
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills == 10
    assert json.loads((out / "told.json").read_text()) == calm
    known = keys(journal)
    assert len(known) == len(set(known)), "an answer that was on the disk was asked again"
    counter = Counter(log.read_text().split("\n")[:-1])
    asked = Counter("saved" if case.startswith("verify") else case for case, _ in known)
    repeated = {case: count - asked[case] for case, count in counter.items() if count > asked[case]}
    # A kill may come between a judgement and its line in the journal: of one such judgement per worker nothing is
    # known.
    assert sum(repeated.values()) <= kills * jobs
    assert set(asked) <= set(counter)


def test_the_same_seed_and_workers_give_the_same_result(tmp_path: Path) -> None:
    def one(name: str) -> tuple[object, ...]:
        problem = Abstract(transformer(300), needs([30, 170, 270]), delay_s=0.001)
        result = run(problem, tmp_path / name, jobs=3)
        return core(result), result.history, result.queries

    assert one("a") == one("b") == one("c")


def test_a_case_for_which_no_time_was_left_says_how_often_it_failed(tmp_path: Path) -> None:
    result = run(Abstract(transformer(8), needs([3])), tmp_path / "out", max_time=1e-6)
    assert result.stopped and result.verified == (3, 3) and result.nodes == result.original[0]
    document = json.loads((tmp_path / "out" / "case" / "case.json").read_text())
    assert document["verified"] == [3, 3] and document["record"] == result.verdict.plain()


def test_a_verification_ends_with_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdbg.minifier.agenda.GRACE_S", 0.0)
    result = run(Abstract(transformer(8), needs([3])), tmp_path / "out", max_time=1e-6)
    assert result.verified == (1, 1) and "verified 1 time only (--max-time 1e-06)" in result.notes


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("chance", [1.0, 0.6])
def test_budgets_of_queries_are_exact(tmp_path: Path, jobs: int, chance: float) -> None:
    for most in (2, 5, 9, 20, 33):
        problem = Abstract(transformer(300), needs([30, 270]), chance=chance, seed=4)
        try:
            result = run(problem, tmp_path / str(most), jobs=jobs, max_queries=most)
        except DoesNotFailError:
            assert problem.queries <= most
            continue
        assert result.queries == problem.queries <= most
        assert sum(result.asked.values()) == result.queries
        assert (result.stopped is None) == (result.queries < most)


@pytest.mark.parametrize(
    "needed",
    [(237,), pytest.param((100, 101, 105), marks=pytest.mark.slow), pytest.param((30, 470), marks=pytest.mark.slow)],
)
def test_a_failure_that_shows_six_times_in_ten_is_reduced_to_its_core(tmp_path: Path, needed: tuple[int, ...]) -> None:
    right = queries = 0
    for seed in SEEDS:
        problem = Abstract(transformer(500), needs(needed), chance=0.6, seed=seed)
        try:
            result = run(problem, tmp_path / str(seed))
        except DoesNotFailError:
            continue
        right += core(result) == set(needed)
        queries += result.queries
    print(f"{needed}: {right} of {len(SEEDS)}, {queries / len(SEEDS):.0f} queries")
    assert right >= 19


class Unlucky(Abstract):
    """A case of several atoms can be edited, and the edit applies to no single atom. The single atom that fails passes
    in the first round of the search, and the saved case once.
    """

    unlucky = True

    def together(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        return [], ["inputs"]

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        return [["inputs one other"]] if name == "inputs" and len(candidate.keep) > 1 and not candidate.edits else []

    def test(self, candidate: Candidate) -> Answer:
        if len(candidate.keep) == 1 and candidate.edits:
            return Answer(Ruling.INVALID, detail="there is no such input")
        answer = super().test(candidate)
        return replace(answer, verdict=Ruling.PASS) if len(candidate.keep) == 1 and self.unlucky else answer

    def saved(self, path: Path) -> Answer:
        answer, unlucky = super().saved(path), self.unlucky
        self.unlucky = False
        return replace(answer, verdict=Ruling.PASS) if unlucky else answer


def test_an_edit_does_not_keep_atoms_that_a_flaky_failure_left(tmp_path: Path) -> None:
    result = run(Unlucky(transformer(200), needs([117])), tmp_path / "out")
    assert any("flaky" in note for note in result.notes)
    assert '\\"inputs one other\\"' in (tmp_path / "out" / "events.jsonl").read_text()
    assert core(result) == {117}


class Racing(Abstract):
    """The wrong numbers of each run are others, and a saved case of fewer than 20 atoms never fails again."""

    def settle(self, answers: Sequence[Answer]) -> list[Answer]:
        super().settle(answers)
        self.signature = Signature("accuracy", "compare", size=0.3)
        return [replace(answer, signature=f"{number} elements far off") for number, answer in enumerate(answers)]

    def saved(self, path: Path) -> Answer:
        answer = super().saved(path)
        few = len(json.loads((path / "case").read_text())["keep"]) < 20
        return replace(answer, verdict=Ruling.PASS) if few else answer


def test_a_case_that_never_fails_again_gives_way_to_a_larger_one(tmp_path: Path) -> None:
    result = run(Racing(transformer(200), needs([117])), tmp_path / "out")
    assert result.verified[0] == result.verified[1] > 0
    assert 117 in core(result)
    assert 20 <= len(core(result)) == result.nodes < 200
    assert UNSTEADY in result.notes


def test_a_failure_that_is_not_monotone_is_not_taken_for_a_flaky_one(tmp_path: Path) -> None:
    problem = Abstract(transformer(300), unless(needs([30, 270]), 200, 201))
    result = run(problem, tmp_path / "out")
    assert {30, 270} <= core(result)
    assert not any("flaky" in note for note in result.notes)


def test_the_time_that_is_over_ends_the_second_run_of_the_original(tmp_path: Path) -> None:
    problem = Abstract(transformer(30), needs([5]))
    problem.hanging = {2}
    result = run(problem, tmp_path, max_time=0.05)
    assert "the original was run 1 time only (--max-time 0.05)" in result.notes
    assert (result.verified, result.asked["sanity"]) == ((3, 3), 1)


class Indexed(Abstract):
    """A size can shrink only once the indices into it are zeros; other values do not matter to it."""

    kind = "zeros"

    def together(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        return [], ["dims", "values"]

    def propose(self, name: str, candidate: Candidate) -> list[list[str]]:
        plain = f"values 0 {self.kind}"
        return {"values": [[plain]], "dims": [["dims 7 2"]] if plain in candidate.edits else []}.get(name, [])

    def test(self, candidate: Candidate) -> Answer:
        return replace(super().test(candidate), input_bytes=9 - len(candidate.edits))


@pytest.mark.parametrize(("kind", "more"), [("zeros", ["dims 7 2"]), ("ones", [])])
def test_sizes_are_asked_for_again_where_indices_became_zeros(tmp_path: Path, kind: str, more: list[str]) -> None:
    problem = Indexed(transformer(20), needs([7]))
    problem.kind = kind
    run(problem, tmp_path / "out")
    case = json.loads((tmp_path / "out" / "case" / "case").read_text())
    assert case["edits"] == [f"values 0 {kind}", *more]
