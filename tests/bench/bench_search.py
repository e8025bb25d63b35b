"""The search on generated graphs: queries / final atoms / work (sum of candidate sizes over the full size), medians
over seeds.

    python -m tests.bench.bench_search [--seeds 20] [--sizes 50,500,5000] [--kinds "1 op,far pair"] [--jobs 1] [--stock
    3]

With `--jobs` the rounds are told, too: how often all workers were waited for. `--stock N` drives
functorch.compile.minifier over an FX graph of the same shape with the same predicate, for N seeds, at most `--limit`
calls each (minutes).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from graphdbg.minifier.engine import Engine
from graphdbg.minifier.search.problem import Answer, Candidate
from graphdbg.minifier.search.tiers import TIERS
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

Make = Callable[[Shape, int], Failure]


def scattered(count: int) -> Make:
    return lambda shape, seed: needs(random.Random(seed).sample(range(len(shape.parents)), count))


def chain(length: int) -> Make:
    return lambda shape, seed: needs(chain_in(shape, length, seed))


def path(shape: Shape, seed: int) -> Failure:
    links = chain_in(shape, min(60, len(shape.parents) // 5), seed)
    return needs_path(links[-1], links[0])


def spoiled(shape: Shape, seed: int) -> Failure:
    rng = random.Random(seed)
    spoiler, cure = rng.sample(range(len(shape.parents)), 2)
    return unless(needs(chain_in(shape, 2, seed)), spoiler, cure)


def dense(shape: Shape, seed: int) -> Failure:
    return needs(random.Random(seed).sample(range(len(shape.parents)), len(shape.parents) // 3))


KINDS: dict[str, Make] = {
    "1 op": scattered(1),
    "chain of 3": chain(3),
    "chain of 5": chain(5),
    "far pair": scattered(2),
    "5 scattered": scattered(5),
    "pattern in any layer": lambda _shape, _seed: needs_pattern(["sub", "var", "mul"]),
    "long path": path,
    "non-monotone": spoiled,
    "flaky 0.6": chain(3),
    "dense": dense,
}
FLAKY = "flaky 0.6"


@dataclass
class Row:
    """One run: queries, atoms left, work, rounds of questions."""

    queries: int
    left: int
    work: float
    rounds: int


def measure(problem: Generated, jobs: int, repeats: int) -> Row:
    """One search. Workers answer from threads; a round ends when all that were asked have answered."""
    everything = Candidate.of(range(problem.size))
    rounds = 0
    with ThreadPoolExecutor(jobs) as pool:
        engine = Engine(problem, queries=1, jobs=jobs, executor=pool if jobs > 1 else None, repeats=repeats)
        wave = engine._wave

        def counted(candidates: list[Candidate]) -> list[Answer]:
            nonlocal rounds
            rounds += bool(candidates)
            return wave(candidates)

        engine._wave = counted  # type: ignore[method-assign]
        result = engine.run(TIERS, everything)
    assert result.best is None or problem.failure(problem.shape, result.best)
    left = problem.size if result.best is None else len(result.best.keep)
    return Row(result.queries, left, problem.work + 1, rounds)


def shape_of(topology: str, size: int, seed: int) -> Shape:
    """The graph of one seed; transformers are all alike."""
    return transformer(size) if topology == "transformer" else random_graph(size, seed)


def line(size: int, topology: str, kind: str, options: argparse.Namespace) -> str | None:
    """One line of the table, or None where the kind has no place in the topology."""
    if kind == "pattern in any layer" and topology == "random":
        return None
    rows: list[Row] = []
    peers: list[tuple[int, int | None]] = []
    began = time.perf_counter()
    for seed in range(options.seeds):
        shape = shape_of(topology, size, seed)
        failure = KINDS[kind](shape, seed)
        chance, repeats = (0.6, 7) if kind == FLAKY else (1.0, 1)
        rows.append(measure(Generated(shape, failure, chance=chance, seed=seed), options.jobs, repeats))
        if seed < options.stock and kind != FLAKY:
            peers.append(stock(shape, failure, options.limit))
    took = (time.perf_counter() - began) / len(rows)
    queries, left, work = (
        statistics.median(getattr(row, name) for row in rows) for name in ("queries", "left", "work")
    )
    text = f"{queries:6g} / {left:g} (worst {max(row.left for row in rows)}) / {work:.1f}"
    if options.jobs > 1:
        text += f"  in {statistics.median(row.rounds for row in rows):g} rounds"
    if peers:
        calls = statistics.median(count for count, _ in peers)
        more = "> " if any(rest is None for _, rest in peers) else ""
        ends = max((rest for _, rest in peers if rest is not None), default=None)
        ratio = statistics.median(row.queries / count for row, (count, _) in zip(rows, peers, strict=False))
        text += f"   stock {more}{calls:g} / worst {ends}, ratio {ratio:.3f}"
    return f"{size:5} {topology:12} {kind:22} {text}   {took:.2f} s"


def stock(shape: Shape, failure: Failure, limit: int) -> tuple[int, int | None]:
    """The peer's calls and atoms left; torch is imported only here."""
    from tests.models.shape_graphs import stock_calls

    return stock_calls(shape, failure, limit)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sizes", default="50,500,5000")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stock", type=int, default=0)
    parser.add_argument("--limit", type=int, default=3000)
    options = parser.parse_args()
    for size in map(int, options.sizes.split(",")):
        for topology in ("transformer", "random"):
            for kind in options.kinds.split(","):
                if (size < 5000 or kind != "dense") and (text := line(size, topology, kind, options)) is not None:
                    print(text, flush=True)


if __name__ == "__main__":
    main()
