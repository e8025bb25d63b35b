"""Generated problems for the engine: transformer-like and random graphs with known failures. No torch.

>>> problem = Generated(transformer(500), needs({237}))
>>> Engine(problem).run(TIERS, Candidate.of(range(problem.size))).best
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field

from graphdbg.minifier.search.problem import Answer, Candidate, Ruling

Failure = Callable[["Shape", Candidate], bool]


@dataclass
class Shape:
    """A graph of labelled atoms; `wide[i]` names its shape (equal names can be bypassed)."""

    parents: list[list[int]]
    labels: list[str]
    wide: list[str]

    def bypasses(self, atom: int) -> list[int]:
        return [parent for parent in self.parents[atom] if self.wide[parent] == self.wide[atom]]


def transformer(size: int) -> Shape:
    """Layers of 21 atoms on a residual stream, as many as fit, then a head that fills up to `size`."""
    shape = Shape([], [], [])

    def add(label: str, wide: str, *parents: int) -> int:
        shape.parents.append(list(parents))
        shape.labels.append(label)
        shape.wide.append(wide)
        return len(shape.parents) - 1

    def norm(x: int) -> int:
        mean = add("mean", "row", x)
        centred = add("sub", "model", x, mean)
        variance = add("var", "row", centred)
        return add("mul", "model", centred, variance)

    x = add("embedding", "model")
    while len(shape.parents) + 21 <= size:
        h = norm(x)
        q, k, v = add("mm_q", "model", h), add("mm_k", "model", h), add("mm_v", "model", h)
        scores = add("bmm", "scores", q, k)
        scaled = add("div", "scores", scores)
        weights = add("softmax", "scores", scaled)
        mixed = add("bmm_v", "model", weights, v)
        x = add("add", "model", x, add("mm_o", "model", mixed))
        h = norm(x)
        up = add("relu", "wide", add("mm_up", "wide", h))
        x = add("add", "model", x, add("mm_down", "model", up))
        x = add("copy", "model", x)
    while len(shape.parents) < size:
        x = add("sin", "model", x)
    return shape


def random_graph(size: int, seed: int) -> Shape:
    """Each atom reads one or two of the 30 before it."""
    rng = random.Random(seed)
    parents = [
        sorted({rng.randrange(max(0, i - 30), i) for _ in range(rng.choice((1, 2)))}) if i else [] for i in range(size)
    ]
    labels = [rng.choice("abcdefgh") for _ in range(size)]
    return Shape(parents, labels, [rng.choice("xy") for _ in range(size)])


def chain_in(shape: Shape, length: int, seed: int) -> list[int]:
    """A random dependence chain of `length` atoms, last first (shorter where the graph has none in a hundred tries)."""
    rng = random.Random(seed)
    longest: list[int] = []
    for _ in range(100):
        chain = [rng.randrange(len(shape.parents))]
        while len(chain) < length and shape.parents[chain[-1]]:
            chain.append(rng.choice(shape.parents[chain[-1]]))
        longest = max(longest, chain, key=len)
    return longest


def needs(atoms: Collection[int]) -> Failure:
    """Fails while all of these are kept."""
    wanted = frozenset(atoms)
    return lambda shape, candidate: wanted <= candidate.keep


def needs_pattern(labels: Sequence[str]) -> Failure:
    """Fails while some dependence chain with these labels is kept, in any layer."""

    def fails(shape: Shape, candidate: Candidate) -> bool:
        ends = {atom for atom in candidate.keep if shape.labels[atom] == labels[0]}
        for label in labels[1:]:
            ends = {a for a in candidate.keep if shape.labels[a] == label and any(p in ends for p in shape.parents[a])}
        return bool(ends)

    return fails


def needs_path(start: int, end: int) -> Failure:
    """Fails while both are kept and `end` depends on `start` through kept or bypassed atoms."""

    def fails(shape: Shape, candidate: Candidate) -> bool:
        if start not in candidate.keep or end not in candidate.keep:
            return False
        reached = {start}
        for atom in range(start + 1, end + 1):
            if atom in candidate.keep:
                through = shape.parents[atom]
            elif atom in candidate.bypass:
                twins = shape.bypasses(atom)
                alive = [twin for twin in twins if twin in candidate.keep or twin in candidate.bypass]
                through = (alive or twins)[:1]
            else:
                continue
            if any(parent in reached for parent in through):
                reached.add(atom)
        return end in reached

    return fails


def unless(failure: Failure, spoiler: int, cure: int) -> Failure:
    """Non-monotone: `spoiler` hides the failure except beside `cure`."""
    return lambda shape, candidate: (
        failure(shape, candidate) and (spoiler not in candidate.keep or cure in candidate.keep)
    )


@dataclass
class Generated:
    """A Problem over a generated graph. `chance` below 1 makes the failure flaky."""

    shape: Shape
    failure: Failure
    chance: float = 1.0
    seed: int = 0
    hints: Sequence[int] = ()
    other: Failure | None = None
    queries: int = 0
    work: float = 0.0
    repeats: int = 0
    asked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def size(self) -> int:
        return len(self.shape.parents)

    def parents(self, atom: int) -> Sequence[int]:
        return self.shape.parents[atom]

    def label(self, atom: int) -> Hashable:
        return self.shape.labels[atom], self.shape.wide[atom]

    def bypasses(self, atom: int) -> Sequence[int]:
        return self.shape.bypasses(atom)

    def test(self, candidate: Candidate) -> Answer:
        self.queries += 1
        self.work += len(candidate.keep) / self.size
        text = candidate.text()
        self.repeats += text in self.asked
        self.asked.add(text)
        nodes = len(candidate.keep)
        if self.failure(self.shape, candidate) and self.random.random() < self.chance:
            return Answer(Ruling.SAME, "the bug", nodes)
        if self.other is not None and self.other(self.shape, candidate):
            return Answer(Ruling.OTHER, "another bug", nodes)
        return Answer(Ruling.PASS, nodes=nodes)
