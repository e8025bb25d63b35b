"""Names what makes a saved graph fail: a setting of the run's own, the node, or the pass, lowering, decomposition or
setting.

Each probe is a child of one fork server, whose cache folder is private: the user's own Inductor cache and bisect state
are never touched. Order: reproduce; the run's own settings; by node (`by_node`); by pass (`by_pass`). It stops at the
first conviction that a run confirms: the graph is right with only that changed.

For example:

    found = bisect(load_graph("myrun/0_0/forward"))
    found.verdict.verdict, found.sentence
    # ('fails', 'Pass `post_grad_custom_post_pass` of post_grad_passes ...')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from ...dumps.errors import GraphdbgError
from ..isolation import ForkServer, opened
from ..replaying.replay import DEFAULT_LIMIT_S, How
from ..rungs import rung as known
from ..rungs import warmth
from ..verdicts.verdict import abandoned
from . import bisect_words as words
from . import node_asking
from .bisect_asking import TASKS, BisectQuestions
from .bisect_narrowing import own_settings
from .bisect_records import Bisection, Clock, OutOfTime
from .by_node import by_node
from .by_pass import by_pass

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

Narrate = Callable[[str], None]
By = Literal["node", "pass"]

INTERRUPTED = "interrupted"
"""`stopped` of a result after Ctrl-C."""


def bisect(
    saved: SavedGraph,
    *,
    by: By | None = None,
    rung: str = "inductor",
    seed: int = 0,
    device: str | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
    check: str = "auto",
    imports: Sequence[str] = (),
    max_time_s: float | None = None,
    narrate: Narrate = lambda _: None,
    server: ForkServer | None = None,
) -> Bisection:
    """Finds who is to blame for a graph that fails under a rung, and says what that means.

    `by`: search only by node, or only by pass. `seed`, `device`, `limit_s` (of one probe), `check` and `imports` as in
    `replay`; with `check` "rounding" that is looked for as a failure is. `max_time_s`: stop after so long with what was
    found. `narrate` gets a sentence per probe. `server`: a fork server to use; everything is compiled in its cache
    folder. After Ctrl-C what was found so far is returned, `stopped` is INTERRUPTED. Raises GraphdbgError for a graph
    that cannot be loaded.
    """
    known(rung)  # a wrong name is the caller's mistake, reported before anything starts
    result = Bisection(saved.id, saved.stage, rung)
    if saved.status == "skipped":
        result.verdict = abandoned(saved.error)
        result.sentence = result.verdict.reason
        return result
    clock, how = Clock(max_time_s), How(seed, device, limit_s, imports)
    with opened(server, warmth(rung), *TASKS, node_asking.TASKS) as used:
        asking = BisectQuestions(saved, used, result, narrate, how, check, clock)

        def search_nodes() -> None:
            result.by_node = searched = by_node(saved, used, rung, how, check, clock, narrate)
            result.notes += [note for note in searched.notes if note not in result.notes]

        try:
            if by == "node":
                search_nodes()
                searched = result.by_node
                result.reproduced = searched is not None and searched.fails
            else:
                _search(asking, result, search_nodes if by is None else None)
        except OutOfTime as stop:
            result.stopped = str(stop)
        except KeyboardInterrupt:
            result.stopped = INTERRUPTED
        finally:
            result.seconds = clock.elapsed()
            asking.close()
    words.conclude(result, saved, by)
    return result


def _search(asking: BisectQuestions, result: Bisection, search_nodes: Callable[[], None] | None) -> None:
    asking.reproduce()
    if not result.reproduced:
        return
    if result.verdict.fault != "model":
        result.findings += own_settings(asking)
    if result.findings:
        return
    if search_nodes is not None:
        try:
            search_nodes()
        except GraphdbgError as error:
            result.notes.append(f"not searched by node: {error}")
    searched = result.by_node
    if result.verdict.fault != "model" and not (searched is not None and searched.convicted):
        by_pass(asking, result)
