"""The place that the user looks at, as commands name it; every screen is made from it and passes it on.

>>> Here(run="myrun").at(graph="myrun/0_0/forward").graph
'myrun/0_0/forward'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..dumps.errors import NotReadyError
from ..dumps.index import is_run


@dataclass(frozen=True)
class Here:
    """What the user looks at. `run`: a run folder; `graph`: RUN/ID or a case folder; `other`: the graph it is compared
    with; `out`: the folder of a minification; `node`: the name of the node under the cursor.
    """

    run: str | None = None
    graph: str | None = None
    other: str | None = None
    out: str | None = None
    node: str | None = None

    def at(self, **changed: str | None) -> Here:
        """A copy with some fields changed."""
        return replace(self, **changed)

    def needed(self, why: str) -> str:
        """The graph. Raises NotReadyError, which says why one is needed."""
        if self.graph is None:
            raise NotReadyError("no graph is chosen", why, "press 1 for Home; enter on a graph picks it")
        return self.graph


def is_out(path: Path) -> bool:
    """Whether the folder is that of a minification."""
    return not is_run(path) and (path / "events.jsonl").is_file()
