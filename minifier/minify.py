"""The minifier's public function: a graph, its inputs, and what "fails" means; the smallest case that fails the same way.

With a check by name every query runs in a child of its own (`oracle`); with a callable the caller's process runs it, one call
after the other. torch is imported only where a live graph is given or wanted.

>>> result = minify(gm, inputs, check="accuracy", rung="inductor", jobs=2)
>>> result.module, result.inputs, result.queries, result.history
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dumps.errors import UsageError
from .minified import Minified
from .options import Options

if TYPE_CHECKING:
    from torch import fx

    from .found import Event


def minify(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    check: str | Callable[[fx.GraphModule, Sequence[Any]], Any] = "auto",
    rung: str = "inductor",
    jobs: int = 1,
    seed: int = 0,
    max_time: float | None = None,
    max_queries: int | None = None,
    match: str | None = None,
    imports: Sequence[str] = (),
    hangs: float | None = None,
    slower_than: float | None = None,
    memory_over: int | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    out: str | Path | None = None,
    executor: Executor | str = "local",
    on_event: Callable[[Event], None] | None = None,
) -> Minified:
    """Reduces a failing graph and its inputs to the smallest case that fails the same way.

    `check`: one of options.CHECKS or "cmd: COMMAND {case}", judged in isolation under `rung`, or a predicate
    `(module, inputs) -> fails` that is called in this process and whose exceptions propagate (it too is asked about other sizes,
    dtypes and the like, which the drop-in `graphdbg.minifier.minifier` leaves alone). `match`: a regular expression
    that the failure's text must match, in place of the signature. `imports`: modules with custom ops. `max_time` in seconds.
    `hangs`, `slower_than` (seconds) and `memory_over` (bytes) say what counts as failing in place of `check`; `time_limit` and
    `memory_limit` are what a query may take (see the flags of `graphdbg minify`).
    `executor`: where queries run, `jobs` at a time: "local", "ray", or any concurrent.futures.Executor, each of whose worker
    processes then keeps a warm fork server of its own; it stays the caller's, and which one it is never changes the result.
    `out`: a folder for the case and the journal; must not exist. Raises UsageError where the original does not fail,
    Interrupted (with the best so far) on Ctrl-C.
    """
    if callable(check):
        if executor != "local":
            what = "executor and a check of your own do not go together"
            raise UsageError(what, "it is called in this process", "leave executor out, or name a check")
        from .inprocess import minify_here

        return minify_here(gm, list(inputs), check, max_time=max_time, max_queries=max_queries, on_event=on_event)
    from ..dumps.live import save_graph
    from ..dumps.store import load_graph
    from .found import Interrupted
    from .isolated import minify_saved

    options = Options(
        check, rung, seed, match, tuple(imports), hangs, slower_than, memory_over, time_limit, memory_limit,
        jobs=jobs, max_time=max_time, max_queries=max_queries, executor=executor if isinstance(executor, str) else "local",
    ).checked()  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="graphdbg-minify-") as folder:
        saved = load_graph(_with_settings(save_graph(gm, list(inputs), Path(folder) / "original")))
        try:
            result = minify_saved(
                saved, out=Path(folder) / "out" if out is None else Path(out), options=options, on_event=on_event,
                executor=None if isinstance(executor, str) else executor,
            )  # fmt: skip
        except Interrupted as interrupted:
            _keep(interrupted.minified, out is None)
            raise
        return _keep(result, out is None)


def _keep(result: Minified, temporary: bool) -> Minified:
    """The result with its module and inputs in memory, since a temporary folder is about to go."""
    result.live = (result.module, result.inputs)
    if temporary:
        result.path = None
    return result


def _with_settings(path: Path) -> Path:
    """The case with the compiler settings of this thread, which its children could not know of otherwise."""
    from ..dumps.atomic import write_file
    from ..dumps.graph_folder import GRAPH_FILE, encode
    from ..dumps.store import load_graph
    from ..toolkit.recorder.configs import changed, encoded

    record = load_graph(path).record
    now = {room: {name: encoded(value) for name, value in values.items()} for room, values in changed().items()}
    record.config = {room: {**now.get(room, {}), **record.config.get(room, {})} for room in {*now, *record.config}}
    write_file(path / GRAPH_FILE, encode(record))
    return path
