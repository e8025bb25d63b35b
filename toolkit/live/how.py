"""How a saved graph is asked about: what every question takes beside the graph.

For example: `ask(TASK, How(seed=1).payload(saved), 60.0, server=server)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...dumps.store import SavedGraph

DEFAULT_LIMIT_S = 600.0


class How(NamedTuple):
    """The settings of questions about a saved graph: `seed` for inputs that were not stored and for random ops,
    `device` to move everything to first, `limit_s` of one question, `imports` to import first for the ops that they
    register; `own_nan`: a NaN of the model's own is asked for, too; `measured`: the memory of compile and first run,
    beside eager's; `known`: what an earlier command judged need not be judged again; `anyway`: what fails is a failure,
    whether or not it is the run's program."""

    seed: int = 0
    device: str | None = None
    limit_s: float = DEFAULT_LIMIT_S
    imports: Sequence[str] = ()
    own_nan: bool = False
    measured: bool = False
    known: bool = False
    anyway: bool = False

    def payload(self, saved: SavedGraph) -> dict[str, Any]:
        """The payload that every task gets."""
        return {
            "path": str(saved.path.absolute()),
            "seed": self.seed,
            "device": self.device,
            "imports": list(self.imports),
        }


USUAL = How()
