"""Names the first node of a saved graph whose compiled value is wrong on right inputs.

The whole graph is judged once. Then one compile returns every node's value, and each is compared with float64 on the compiled
values of its inputs (`departures`): what departs is the node, confirmed alone or with its neighbours. Where all values are
right as soon as they are returned, a pass or a fusion is to blame, and cuts are searched (`cuts`). Every compile runs in a
child, is counted, and there are at most 2 log2(n) + 4 of them for n operations. Must not import torch here.

>>> found = localize(load_graph("myrun/0_0/forward"))
>>> found.node.name, found.alone, found.compiles
('mul_31', True, 3)
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ..isolation import ForkServer, opened
from ..replay import DEFAULT_LIMIT_S
from ..rungs import warmth
from .localize_asking import TASKS, Asking, Tell
from .localize_search import Search
from .localized import Localized
from .partners import siblings

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph


def localize(saved: SavedGraph, rung: str = "inductor", seed: int = 0, device: str | None = None, *,
             limit_s: float = DEFAULT_LIMIT_S, imports: Sequence[str] = (), server: ForkServer | None = None,
             tell: Tell = lambda text: None) -> Localized:  # fmt: skip
    """Localizes the failure of one saved graph under a rung; of a graph from before AOTAutograd first in the graphs made of it.

    `limit_s` bounds each compile. `tell` is called with a line of progress for each. Raises GraphdbgError for a graph that cannot
    be loaded.
    """
    from ..rungs import rung as known

    known(rung)
    with ExitStack() as stack:
        used = stack.enter_context(opened(server, warmth(rung), TASKS))
        about = {"rung": rung, "seed": seed, "device": device, "imports": list(imports)}

        def search(graph: SavedGraph, spent: int) -> Localized:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="graphdbg-localize-")))
            return Search(Asking(graph, used, work, about, limit_s, tell, spent)).run()

        family = siblings(saved)
        spent = 0
        for graph in family:
            tell(f"looking at {graph.id}, made of {saved.id}")
            found = search(graph, spent)
            if found.status not in ("nothing", "skipped"):
                found.notes.append(f"found in {graph.id}, which was made of {saved.id}")
                return found
            spent = found.compiles
        found = search(saved, spent)
    if family and found.status != "nothing":
        names = " and ".join(graph.id for graph in family)
        each = "is right in itself" if len(family) == 1 else "are right in themselves"
        found.between = f"{names} {each}: the fault lies between, in a decomposition, a joint-graph pass or the partitioner."
        found.notes.append(f"{spent} of the compiles were for {names}")
    return found
