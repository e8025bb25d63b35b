"""Chooses the graph of a run to minify where none was named: one whose last verdict fails, else one that failed in the
run, else one that fails now.

Gives the reason in words. Judges nothing itself: a run without a recorded failure is screened as `graphdbg triage`
does. No torch here.

For example:

    failing_graph(open_run("myrun"), report=print)
    # (SavedGraph('0_0/dynamo'), 'its compile failed and no later graph was made: AssertionError: ...')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..dumps import index
from ..dumps.store import Run, SavedGraph
from ..dumps.wording import counted, shortened, shown_path, without_excerpt
from ..dumps.worst import last_failing, no_graphs
from ..toolkit.replaying.after_failure import compile_of, suspects, triggered
from ..toolkit.replaying.replay import How
from ..toolkit.triage.ranking import GraphRow
from ..toolkit.verdicts.ladder_words import kernel_check, whole_program
from ..toolkit.verdicts.verdict import ROUNDING, with_flags
from ..toolkit.verdicts.verdict_words import text
from .options import MinifyOptions
from .search.problem import CannotJudgeError, DoesNotFailError

SCREEN_S, LIMIT_S = 600.0, 300.0
"""Seconds for judging the graphs of a run where no recorded one failed: for all of them, and for one."""


def failing_graph(
    run: Run, options: MinifyOptions | None = None, report: Callable[[str], object] = lambda text: None
) -> tuple[SavedGraph, str]:
    """The graph to minify, and the reason. Where rounding, time or memory is asked for, it is the graph with the most
    of that. Raises NothingToReduceError where no graph fails as asked or that is unknown, UsageError for an empty run.
    """
    options = options or MinifyOptions()
    amount = _amount(options)
    saved, known = last_failing(run) if amount is None else (None, "")
    if saved:
        return saved, known
    rows = index.rows(index.processes(run.path))
    suspected = suspects(rows, triggered(index.processes(run.path))) if amount is None else []
    listing = f"graphdbg ls {shown_path(run.path)}"
    if suspected:
        first, *rest = suspected
        others = f"; {counted(len(rest), 'other failure')}: {listing}" if rest else ""
        return run.graph(first.id), _why(first, rows) + others
    if not run.graphs():
        raise no_graphs(run)
    by_verdict = "no recorded graph failed; judging each of them"
    report(by_verdict if amount is None else "judging each graph by what was asked for")
    return _screened(run, options, amount, report)


def _why(row: index.ListedGraph, rows: Sequence[index.ListedGraph]) -> str:
    """Why a graph was chosen, in words: from its entry in the journal, and its place in its compile."""
    lines = [line.strip() for line in without_excerpt(row.error or "").splitlines() if line.strip()]
    error = f": {shortened(lines[0], 120)}" if lines else ""
    if "KeyboardInterrupt" in lines[:1]:
        return "it was being compiled when the run was interrupted; if its compile hangs, add --check hang"
    if row.lost:
        return f"it was in flight when its process ended ({row.status}){error}"
    if row.status != "failed":
        return "--when found it during the run"
    alike = [other for other in rows if compile_of(other) == compile_of(row)]
    inner = [other for other in alike if other.stage in ("forward", "backward", "inference")]
    if row.stage == "dynamo" and not inner:
        return f"AOT tracing failed and no later graph was made{error}"
    if row.stage == "dynamo":
        return f"it failed, and none of the graphs made of it did{error}"
    return f"it failed in the run{error}"


def _amount(options: MinifyOptions) -> Callable[[GraphRow], float] | None:
    """A function from a judged graph to how much it has of what was asked for, 0 where that is not enough; None where a
    failure is wanted."""
    over, slower = options.memory_over, options.slower_than
    if over is not None:
        return lambda row: float(row.needed_bytes) if row.needed_bytes > over else 0.0
    if slower is not None:
        return lambda row: row.seconds if row.seconds > slower else 0.0
    if options.check == ROUNDING:
        return lambda row: (row.error or 0.0) + 1.0 if row.verdict.verdict == ROUNDING else 0.0
    return None


def _screened(
    run: Run, options: MinifyOptions, amount: Callable[[GraphRow], float] | None, report: Callable[[str], object]
) -> tuple[SavedGraph, str]:
    from ..toolkit.triage.run import worst_graph

    how = How(options.seed, None, options.hangs or LIMIT_S, options.imports, known=not options.anyway)
    how = how._replace(measured=options.memory_over is not None, anyway=options.anyway)
    limit_s = min(SCREEN_S, options.max_time or SCREEN_S)
    verdict, graph = worst_graph(run, how, amount=amount, max_time_s=limit_s, report=report, rung=options.rung)
    if graph is not None:
        of_verdict = amount is None or options.check == ROUNDING
        return graph, shortened(text(verdict), 200) if of_verdict else "it is the worst by what was asked for"
    usual = options.rung == MinifyOptions.rung
    where = shown_path(run.path)
    look = f"graphdbg triage {where}" if usual else f"graphdbg replay {where} --rung {options.rung}"
    steps = [with_flags(look, options.imports), *filter(None, [whole_program(run)])]
    see = f"see {' or '.join(steps)}"
    if verdict.exit_code:
        unknown = f"whether a graph of {run.name} fails cannot be determined"
        what = f"no graph of {run.name} fails by itself" if verdict.failed else unknown
        raise CannotJudgeError(what, verdict.reason, see, verdict.then(*verdict.next or steps))
    steps += [check] if (check := kernel_check(run.graphs())) else []
    see = f"see {' or '.join(steps)}"
    judged = f"each was judged under {'Inductor' if usual else options.rung}"
    why = f"{judged}; what Dynamo runs in Python, between the graphs, is not judged"
    raise DoesNotFailError(f"no graph of {run.name} fails", why, see, verdict.then(*steps))
