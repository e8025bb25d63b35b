"""The order of the search, as data. Adding a step is its file and its line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dense import dense
from .grow import reduce_atoms
from .hint import hint
from .polish import polish
from .problem import Candidate
from .scattered import scattered
from .switches import switches
from .windows import windows

if TYPE_CHECKING:
    from ..engine import Engine, Step

FINISH: list[tuple[str, Step]] = [("polish", polish)]

TIERS: list[tuple[str, Step]] = [
    ("switches", switches),
    ("hint", hint),
    ("windows", windows),
    ("chunks", scattered),
    ("atoms", reduce_atoms),
    *FINISH,
]


def gentle(largest: int) -> list[tuple[str, Step]]:
    """A search that never drops more than `largest` atoms in one query, for failures that break easily."""

    def blocks(engine: Engine, state: Candidate) -> Candidate:
        return dense(engine, state, largest=largest)

    return [("blocks", blocks), *FINISH]
