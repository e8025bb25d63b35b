"""The search on generated graphs: which minimum is found, and in how many queries (medians over seeds, one for the
original)."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphdbg.minifier.engine import Engine
from graphdbg.minifier.events import Happening, QueryAnswered
from graphdbg.minifier.progress.candidates import parsed
from graphdbg.minifier.search.problem import Candidate, Ruling
from graphdbg.minifier.search.tiers import TIERS, gentle
from tests.minifier.generated import (
    Failure,
    Generated,
    Shape,
    chain_in,
    needs,
    needs_path,
    needs_pattern,
    random_graph,
    transformer,
    unless,
)

SEEDS = range(9)


def run(problem: Generated, **options: object) -> Engine:
    everything = Candidate.of(range(problem.size))
    assert problem.failure(problem.shape, everything)
    result = Engine(problem, queries=1, **options).run(TIERS, everything)  # type: ignore[arg-type]
    assert result.best is not None
    assert problem.failure(problem.shape, result.best)
    return result


def sample(count: int) -> Callable[[Shape, int], Failure]:
    return lambda shape, seed: needs(random.Random(seed).sample(range(len(shape.parents)), count))


def chain(length: int) -> Callable[[Shape, int], Failure]:
    return lambda shape, seed: needs(chain_in(shape, length, seed))


@pytest.mark.parametrize(
    ("size", "make", "left", "queries"),
    [
        (50, sample(1), 1, 9),
        (50, chain(3), 3, 14),
        (50, sample(2), 2, 16),
        (50, sample(5), 5, 38),
        (500, sample(1), 1, 13),
        (500, chain(3), 3, 19),
        (500, chain(5), 5, 26),
        (500, sample(2), 2, 25),
        (500, sample(5), 5, 54),
        (500, lambda _shape, _seed: needs_pattern(["sub", "var", "mul"]), 3, 11),
    ],
    ids=[
        "50 one op",
        "50 chain",
        "50 far pair",
        "50 scattered",
        "one op",
        "chain of 3",
        "chain of 5",
        "far pair",
        "scattered",
        "pattern in any layer",
    ],
)
def test_minimum_and_queries_on_transformers(
    size: int, make: Callable[[Shape, int], Failure], left: int, queries: int
) -> None:
    shape = transformer(size)
    results = [run(Generated(shape, make(shape, seed))) for seed in SEEDS]
    assert [len(result.best.keep) for result in results if result.best] == [left] * len(SEEDS)
    assert statistics.median(result.queries for result in results) <= queries


@pytest.mark.parametrize(
    ("make", "left", "queries"),
    [(sample(1), 1, 13), (chain(3), 3, 20), (chain(5), 5, 28), (sample(2), 2, 25), (sample(5), 5, 54)],
    ids=["one op", "chain of 3", "chain of 5", "far pair", "scattered"],
)
def test_minimum_and_queries_on_random_graphs(make: Callable[[Shape, int], Failure], left: int, queries: int) -> None:
    problems = [Generated(shape := random_graph(500, seed), make(shape, seed)) for seed in SEEDS]
    results = [run(problem) for problem in problems]
    assert [len(result.best.keep) for result in results if result.best] == [left] * len(SEEDS)
    assert statistics.median(result.queries for result in results) <= queries


@pytest.mark.parametrize(
    ("make", "left", "queries"), [(chain(3), 3, 24), (sample(2), 2, 36)], ids=["chain of 3", "far pair"]
)
def test_five_thousand_atoms(make: Callable[[Shape, int], Failure], left: int, queries: int) -> None:
    shape = transformer(5000)
    results = [run(Generated(shape, make(shape, seed))) for seed in range(3)]
    assert [len(result.best.keep) for result in results if result.best] == [left] * 3
    assert statistics.median(result.queries for result in results) <= queries


@pytest.mark.parametrize("make", [sample(3), chain(4), sample(9)], ids=["scattered", "chain", "many"])
def test_results_are_one_minimal_and_whole_sets_are_found_in_any_numbering(
    make: Callable[[Shape, int], Failure],
) -> None:
    for seed in SEEDS:
        shape = random_graph(120, seed)
        failure = make(shape, seed)
        result = run(Generated(shape, failure))
        assert result.best is not None
        for atom in result.best.keep:
            assert not failure(shape, Candidate.of(result.best.keep - {atom}))


def test_parts_of_what_passed_are_not_asked() -> None:
    problem = Generated(transformer(500), needs([40, 222, 400]))
    passed: list[frozenset[int]] = []

    def note(event: Happening) -> None:
        if isinstance(event, QueryAnswered) and event.verdict == "pass":
            candidate = parsed(event.case)
            assert candidate is not None
            assert not any(candidate.keep <= other for other in passed if not candidate.bypass)
            passed.append(candidate.keep)

    assert run(problem, tell=note).monotone
    assert len(passed) > 10


def test_required_path_is_shortened_by_bypassing() -> None:
    shape = transformer(500)
    kept, queries = [], []
    for seed in SEEDS:
        links = chain_in(shape, 60, seed)
        result = run(Generated(shape, needs_path(links[-1], links[0])))
        assert result.best is not None
        kept.append(len(result.best.keep))
        queries.append(result.queries)
    assert statistics.median(kept) <= 6
    assert statistics.median(queries) <= 32


def test_non_monotone_failures_end_minimal() -> None:
    shape = transformer(300)
    for seed in SEEDS:
        spoiler, cure = random.Random(seed).sample(range(300), 2)
        failure = unless(needs(chain_in(shape, 2, seed)), spoiler, cure)
        result = run(Generated(shape, failure))
        assert result.best is not None
        for atom in result.best.keep:
            assert not failure(shape, Candidate.of(result.best.keep - {atom}))


def test_flaky_failures_reach_the_core_with_repeated_negatives() -> None:
    shape = transformer(500)
    reached = 0
    for seed in range(20):
        wanted = chain_in(shape, 3, seed)
        result = Engine(Generated(shape, needs(wanted), chance=0.6, seed=seed), repeats=7, queries=1).run(
            TIERS, Candidate.of(range(500))
        )
        reached += result.best is not None and result.best.keep == set(wanted)
    assert reached >= 19


@pytest.mark.parametrize(("share", "queries"), [(2, 175), (10, 100)])
def test_dense_failures_end_minimal_near_the_entropy_of_the_share(share: int, queries: int) -> None:
    wanted = set(random.Random(share).sample(range(120), 120 // share))
    result = run(Generated(transformer(120), needs(wanted)))
    assert result.best is not None
    assert result.best.keep == wanted
    assert result.queries <= queries


def test_dense_gives_up_after_misses_in_a_row_and_says_so() -> None:
    problem = Generated(transformer(120), needs(range(5, 120)))
    result = Engine(problem, queries=1).run(TIERS, Candidate.of(range(120)))
    assert result.best is None
    assert result.queries < 100
    assert any("not certified minimal" in note for note in result.notes)


def test_right_hint_saves_queries_and_a_wrong_one_costs_four() -> None:
    shape = transformer(500)
    wanted = needs([237])
    plain = run(Generated(shape, wanted)).queries
    assert run(Generated(shape, wanted, hints=[237])).queries == 2
    assert run(Generated(shape, wanted, hints=[20])).queries <= plain + 4


def test_other_failures_are_counted_and_never_followed() -> None:
    shape = transformer(300)
    problem = Generated(shape, needs([200]), other=needs([5]))
    result = run(problem)
    assert result.best is not None
    assert result.best.keep == {200}
    assert [other.signature for other in result.others] == ["another bug"]
    assert result.others[0].count == result.verdicts[Ruling.OTHER] > 0
    assert 5 in result.others[0].candidate.keep


@pytest.mark.parametrize("jobs", [2, 8])
def test_workers_find_the_same_minimum_and_two_runs_are_equal(jobs: int) -> None:
    shape = transformer(500)
    histories: list[list[tuple[int, int, int]]] = []
    for _ in range(2):
        with ThreadPoolExecutor(jobs) as pool:
            result = run(Generated(shape, needs([40, 400])), jobs=jobs, executor=pool)
        assert result.best is not None
        assert result.best.keep == {40, 400}
        histories.append(result.history)
    assert histories[0] == histories[1]


def test_no_candidate_is_asked_twice() -> None:
    problem = Generated(transformer(500), needs([40, 400, 222]))
    run(problem)
    assert problem.repeats == 0


def test_gentle_search_drops_no_more_than_asked() -> None:
    problem = Generated(transformer(60), needs([17]))
    sizes: list[int] = []
    last = 60

    def note(event: Happening) -> None:
        nonlocal last
        if isinstance(event, QueryAnswered):
            sizes.append(last - event.nodes)
            last = event.nodes if event.verdict == "same" else last

    result = Engine(problem, tell=note).run(gentle(4), Candidate.of(range(60)))
    assert result.best is not None
    assert max(sizes) <= 4
    assert len(result.best.keep) < 45
