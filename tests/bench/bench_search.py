"""The search on generated graphs: queries / final atoms / work (sum of candidate sizes over the full size), medians over seeds.

    python tests/bench/bench_search.py [--seeds 20] [--sizes 50,500,5000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "minifier"))

from generated import (
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

from graphdbg.minifier.engine import Engine
from graphdbg.minifier.problem import Candidate
from graphdbg.minifier.search.tiers import TIERS

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


KINDS: dict[str, Make] = {
    "1 op": scattered(1),
    "chain of 3": chain(3),
    "chain of 5": chain(5),
    "2 far ops": scattered(2),
    "5 scattered": scattered(5),
    "pattern in any layer": lambda _shape, _seed: needs_pattern(["sub", "var", "mul"]),
    "long path": path,
    "non-monotone": spoiled,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sizes", default="50,500,5000")
    options = parser.parse_args()
    for size in map(int, options.sizes.split(",")):
        for topology in ("transformer", "random"):
            for kind, make in KINDS.items():
                rows: list[tuple[int, int, float]] = []
                began = time.perf_counter()
                for seed in range(options.seeds):
                    shape = transformer(size) if topology == "transformer" else random_graph(size, seed)
                    if kind == "pattern in any layer" and topology == "random":
                        break
                    problem = Generated(shape, make(shape, seed))
                    everything = Candidate.of(range(size))
                    if not problem.failure(shape, everything):
                        continue
                    result = Engine(problem, queries=1).run(TIERS, everything)
                    assert result.best is None or problem.failure(shape, result.best)
                    left = size if result.best is None else len(result.best.keep)
                    rows.append((result.queries, left, problem.work + 1))
                if rows:
                    median = [statistics.median(column) for column in zip(*rows, strict=True)]
                    worst = max(row[1] for row in rows)
                    took = (time.perf_counter() - began) / len(rows)
                    found = f"{median[0]:6g} / {median[1]:g} (worst {worst}) / {median[2]:.1f}"
                    print(f"{size:5} {topology:12} {kind:22} {found}   {took:.2f} s", flush=True)


if __name__ == "__main__":
    main()
