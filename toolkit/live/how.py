"""The settings that every query about a saved graph takes besides the graph.

For example: `ask(TASK, How(seed=1).payload(saved), 60.0, server=server)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...dumps.store import SavedGraph

DEFAULT_LIMIT_S = 600.0


class How(NamedTuple):
    """The settings of queries about a saved graph. `seed`: for inputs that were not stored and for random ops;
    `device`: to move everything to; `limit_s`: of one query; `imports`: modules to import first, for the ops that they
    register; `own_nan`: also report a NaN of the model's own; `measured`: also measure the memory of compile and first
    run, beside eager's; `known`: reuse what an earlier command judged; `anyway`: a failure counts, whether or not it is
    the run's program."""

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
