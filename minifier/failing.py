"""Which graph of a run is minified where none was named: whose last verdict fails, else what failed there, else what fails now.

Says why in words. Judges nothing itself: a run without a recorded failure is screened as `graphdbg triage` does. No torch here.

>>> failing_graph(open_run("myrun"), told=print)
(SavedGraph('0_0/dynamo'), 'its compile failed and no later graph was made: AssertionError: incorrect out shape ...')
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..dumps import index
from ..dumps.errors import UsageError
from ..dumps.wording import counted
from ..dumps.worst import last_failing
from ..toolkit import normalise
from ..toolkit.next_command import with_flags
from ..toolkit.recorder.summary import shown_path
from ..toolkit.suspects import compile_of, suspects, triggered
from ..toolkit.verdict_words import text
from .problem import CannotJudgeError, DoesNotFailError

if TYPE_CHECKING:
    from ..dumps.store import Run, SavedGraph

LIKENESS = 0.5
SCREEN_S = 600.0
"""What looking for a failing graph may take where no recorded one failed."""


def failing_graph(
    run: Run, *, seed: int = 0, imports: Sequence[str] = (), told: Callable[[str], object] = lambda text: None
) -> tuple[SavedGraph, str]:
    """The graph, and why it is that one. Raises NothingToReduceError where nothing in the run fails, or
    that cannot be told, UsageError for an empty run.
    """
    saved, known = last_failing(run)
    if saved:
        return saved, known
    rows = index.rows(index.processes(run.path))
    found = suspects(rows, triggered(index.processes(run.path)))
    if found:
        others = f"; {counted(len(found) - 1, 'other failure')}: graphdbg ls {shown_path(run.path)}" if len(found) > 1 else ""
        return run.graph(found[0].id), _why(found[0], rows) + others
    if not run.graphs():
        raise UsageError(f"{run.path} holds no graphs", "", f"see graphdbg ls {shown_path(run.path)}")
    told("no recorded graph failed; judging each of them")
    return _screened(run, seed, imports, told)


def unlike_the_record(recorded: str | None, found: str) -> str:
    """A sentence where a graph fails otherwise than it did in the run; empty where it fails alike, or did not fail there.

    `recorded` is the journal's text of the failure, `found` the text of what happens now.
    """
    lines = [line.strip() for line in (recorded or "").splitlines() if line.strip()]
    if not lines or "KeyboardInterrupt" in lines[0]:
        return ""
    told, seen = normalise.message(lines[0]), normalise.message(found)
    kind, _, words = told.partition(": ")
    words = words or kind
    alike = (kind == "CppCompileError" and kind in seen) or words[:60] in seen
    alike = alike or difflib.SequenceMatcher(None, words, seen, autojunk=False).ratio() > LIKENESS
    return "" if alike else f"in the run it failed otherwise: {lines[0][:160]}"


def _why(row: index.Row, rows: Sequence[index.Row]) -> str:
    """What the journal says of that graph, and of where in its compile it stands."""
    lines = [line.strip() for line in (row.error or "").splitlines() if line.strip()]
    error = f": {lines[0][:120]}" if lines else ""
    if "KeyboardInterrupt" in lines[:1]:
        return "it was being compiled when the run was interrupted; did it not end? --check hang takes that for the failure"
    if row.lost:
        return f"it was in flight when its process ended ({row.status}){error}"
    if row.status != "failed":
        return "what was asked for with --when was seen there"
    alike = [one for one in rows if compile_of(one) == compile_of(row)]
    inner = [one for one in alike if one.stage in ("forward", "backward", "inference")]
    if row.stage == "dynamo" and not inner:
        return f"AOT tracing failed and no later graph was made{error}"
    if row.stage == "dynamo":
        return f"it failed, and none of the graphs made of it did{error}"
    return f"it failed in the run{error}"


def _screened(run: Run, seed: int, imports: Sequence[str], told: Callable[[str], object]) -> tuple[SavedGraph, str]:
    from ..toolkit.triage.run import worst_graph

    verdict, graph = worst_graph(run, seed=seed, imports=imports, max_time_s=SCREEN_S, told=told)
    if graph is None:
        look = with_flags(f"graphdbg triage {shlex.quote(shown_path(run.path))}", imports)
        if verdict.exit_code:
            what = f"whether a graph of {run.path} fails cannot be told"
            raise CannotJudgeError(what, verdict.reason, f"see {look}", verdict.then(*verdict.next or [look]))
        why = "each was judged under Inductor; what Dynamo does in Python, outside of its graphs, is in none of them"
        raise DoesNotFailError(f"no graph of {run.path} fails", why, f"see {look}", verdict.then(look))
    return graph, text(verdict)[:200]
