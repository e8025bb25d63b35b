"""Triages a whole run: judges every compile on its widest graph, runs the ladder for the worst, counts what was not
judged.

A graph is its own reference: after a wrong decomposition or joint pass, forward and backward contain the fault, eager
runs of them as well, so they are right in themselves. The widest saved graph of a compile is therefore judged first,
and narrower ones only where it fails: if they are right, the fault lies between the two. Graphs that failed according
to the journal come first. Imports no torch here.

For example:

    triage = triage_run(open_run("myrun"))
    triage.ladders[0].first_failing  # -> 'inductor'
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from ...dumps import deaths
from ...dumps.errors import GraphdbgError, LostServer
from ...dumps.journal import IN_FLIGHT
from ...dumps.schema import InputRecord, TensorValue
from ...dumps.store import Run, SavedGraph
from ...dumps.wording import counted
from ..blame.partners import compile_of, inner_graphs, stages_of
from ..isolation import ForkServer, opened
from ..replaying import fidelity
from ..replaying.after_failure import suspects, triggered
from ..replaying.replay import How
from ..stages.asking import STAGES, judge_stages
from ..verdicts.ladder_records import RungResult, Triage, inputs_given
from ..verdicts.ladder_words import address
from ..verdicts.verdict import NO_TIME, NOT_JUDGED, SAME, Verdict, cannot_tell, unloadable, worst
from ..verdicts.verdict_words import word
from .ladder import DEFAULT_LIMIT_S, Ladder, blames_compiler, chosen, eased
from .ranking import GraphRow, RunTriage, rank, run_concluded

LEVELS = (
    ("dynamo",),
    ("pre_grad",),
    ("joint",),
    ("joint_passed",),
    ("forward", "inference", "backward"),
    ("post_grad_forward", "post_grad_inference", "post_grad_backward"),
)
"""Stages from wide to narrow; the stages of one level together are the whole compile."""


_FROM_OUTSIDE = ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL")


class CompileLevels(NamedTuple):
    """One compile: its graphs level by level, widest first. `same_as`: the id of an earlier, equal graph."""

    levels: list[list[SavedGraph]]
    same_as: str = ""

    @property
    def graph(self) -> SavedGraph:
        """The first graph to judge."""
        return self.levels[0][0]


def candidates(run: Run, first: Collection[str]) -> list[CompileLevels]:
    """A Candidate for each compile with saved graphs; those with a graph in `first` in front."""
    groups: dict[Any, list[SavedGraph]] = {}
    for graph in run.graphs():
        if graph.status != "skipped":
            groups.setdefault(compile_of(graph), []).append(graph)
    listed: list[CompileLevels] = []
    known: dict[str, str] = {}
    for group in sorted(groups.values(), key=lambda group: not any(graph.id in first for graph in group)):
        levels = [level for stages in LEVELS if (level := [graph for graph in group if graph.stage in stages])]
        if not levels:
            continue
        key = _fingerprint(levels[0])
        same_as = known.get(key, "")
        listed.append(CompileLevels(levels, same_as))
        if key and not same_as:
            known[key] = levels[0][0].id
    return listed


def _fingerprint(graphs: list[SavedGraph]) -> str:
    """A hash of what is compiled, independent of names; "" for a graph that cannot be read."""
    seen = hashlib.blake2b(digest_size=16)
    try:
        for graph in graphs:
            record = graph.record
            seen.update("\n".join([record.stage, *fidelity.graph_lines(record)]).encode())
            kwargs = {name: value for name, value in record.compile_kwargs.items() if name != "graph_id"}
            given = [node.value for node in record.graph.nodes if node.op == "placeholder"] + _met(graph)
            seen.update(msgspec.json.encode([kwargs, record.config, record.ambient, given], order="deterministic"))
    except GraphdbgError:
        return ""
    return seen.hexdigest()


def _met(graph: SavedGraph) -> list[Any]:
    """How its inputs looked in a real execution: layout, `requires_grad`, shared memory, and the numbers of inputs
    without dimensions."""
    record = graph.inputs_record
    inputs = [] if record is None else record.inputs
    return [
        [item.role, item.value, item.stored is not None and item.stored.parameter, *_alone(item)] for item in inputs
    ]


def _alone(item: InputRecord) -> list[Any]:
    """The value of an input that is a number or a 0-d tensor, unless a parameter or buffer: these differ from layer to
    layer."""
    alone = isinstance(item.value, TensorValue) and not item.value.shape and item.role not in ("parameter", "buffer")
    return [item.scalar, item.statistics if alone else None]


DEFAULT_TIME_S = 600.0
SCREENING = 0.6
"""The share of the time after which no further graph is judged if some failed; the rest is for their ladders."""

AGAIN_S = 60.0
"""A failure is repeated to see whether it is flaky, where a replay takes fewer seconds than this."""
WORST = 3

Report = Callable[[str], object]
Heard = Callable[[str, "GraphRow | RungResult"], object]
"""Called with a graph's id and its row under Inductor, or a row of its ladder, as soon as it exists."""


def triage_run(
    run: Run,
    *,
    seed: int = 0,
    device: str | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
    all: bool = False,
    imports: Sequence[str] = (),
    server: ForkServer | None = None,
    max_time_s: float = DEFAULT_TIME_S,
    report: Report = lambda text: None,
    heard: Heard = lambda graph, row: None,
    rungs: Sequence[str] = (),
    own_nan: bool = False,
    measured: bool = False,
    workaround: bool = False,
) -> RunTriage:
    """Judges the graphs of a run under Inductor, explains the worst failures and looks for what makes the worst go
    away.

    `limit_s`: what one rung of one graph may take; `max_time_s`: everything. `report` gets a sentence now and then,
    `heard` each row; `rungs`: those of the ladders, by default what the run used; `own_nan`: the model's own NaN is a
    failure; `measured`: memory, too; `workaround`: a work-around is looked for also where that takes more than seconds.
    After Ctrl-C what was found so far is returned, `interrupted`. Raises EnvironmentLackError where no fork server can
    live.
    """
    with opened(server) as used:
        how = How(seed, device, limit_s, imports, own_nan, measured)
        work = _TriageInProgress(run, used, how, max_time_s, report, heard, rungs)
        interrupted = False
        try:
            work.screen()
            work.explain(all)
        except KeyboardInterrupt:
            interrupted = True
        result = run_concluded(work.result(interrupted), run, imports)
        if interrupted:
            result.summary = f"Interrupted, so not all was judged. {result.summary}"
        else:
            result.verdict = work.eased(result.verdict, thorough=workaround)
        return result


def worst_graph(
    run: Run,
    how: How,
    *,
    amount: Callable[[GraphRow], float] | None = None,
    max_time_s: float = DEFAULT_TIME_S,
    report: Report = lambda text: None,
    rung: str = "inductor",
) -> tuple[Verdict, SavedGraph | None]:
    """The worst verdict, and the graph that `triage_run` would run the ladder for first; None where none fails.

    `amount`: looks for the graph with the largest amount instead of a failure; None where all are 0. `rung`: under
    which all graphs are judged.
    """
    with opened(None) as used:
        work = _TriageInProgress(run, used, how, max_time_s, report, rung=rung)
        work.screen()
        if amount is not None:
            row = max(work.rows, key=amount, default=None)
            if row is None or not amount(row):
                return worst(judged.verdict for judged in work.rows), None
            return row.verdict, run.graph(row.id)
        failing = work.failing() or work.before_passes()
        if not failing:
            return worst(row.verdict for row in work.rows), None
        row, graph = work.narrowed(failing[0])[:2]
        return row.verdict, graph


class _TriageInProgress:
    """One triage of a run in progress, with its clock."""

    def __init__(
        self,
        run: Run,
        server: ForkServer,
        how: How,
        max_time_s: float,
        report: Report,
        heard: Heard = lambda graph, row: None,
        rungs: Sequence[str] = (),
        rung: str = "inductor",
    ) -> None:
        self.run, self.server, self.how, self.max_time_s = run, server, how, max_time_s
        self.report, self.heard, self.rungs, self.rung = report, heard, rungs, rung
        self.rows: list[GraphRow] = []
        self.ladders: dict[str, Ladder] = {}
        self.found: list[Triage] = []
        self.boundaries: list[str] = []
        self.began, self.started_s = time.monotonic(), server.start_s

    def left_s(self, share: float = 1.0) -> float:
        """The seconds left, not counting the start of a server, which may take minutes the first time on a machine."""
        began = self.began + self.server.start_s - self.started_s
        return began + share * self.max_time_s - time.monotonic()

    def screen(self) -> None:
        """Judges the widest graph of each compile, suspects first; narrower ones where the widest cannot be judged."""
        first = {row.id for row in suspects(self.run.rows, triggered(self.run.processes))}
        chosen = candidates(self.run, first)
        self.report(f"{counted(len(chosen), 'compile')} to judge, {self.max_time_s:.0f} s at most")
        for candidate in chosen:
            share = SCREENING if any(row.failed for row in self.rows) and not candidate.same_as else 1.0
            if not self._same(candidate) and not self._parted(candidate, share):
                self._candidate(candidate, share)
        if self.how.own_nan and not any(row.failed for row in self.rows):
            self._named()

    def _named(self) -> None:
        """Judges the graphs in which the run saw a NaN, where no wider graph shows one: they may have had other inputs
        then."""
        fired, judged = triggered(self.run.processes), {row.id for row in self.rows}
        for row in self.run.rows:
            if fired.get((row.process, row.local)) == "nan" and row.saved and row.id not in judged:
                self.rows.append(self.judge(self.run.graph(row.id)))

    def _parted(self, candidate: CompileLevels, share: float) -> bool:
        """Whether a recorded stage differs from the one before; that is then the verdict, and nothing is compiled. Not
        asked of a compile in progress when its process was ended from outside: it may hang."""
        ended = [end.process.name for end in deaths.endings(self.run.processes) if end.signal in _FROM_OUTSIDE]
        hung = candidate.graph.status in IN_FLIGHT and candidate.graph.process in ended
        if self.rung != "inductor" or hung:
            return False
        parted = judge_stages(stages_of(candidate.graph), self.how, self.server, limit_s=max(1.0, self.left_s(share)))
        if parted is not None:
            graph, verdict = parted
            self.report(f"{graph.id}: {word(verdict)}")
            self.rows.append(self._row(graph, RungResult(STAGES, verdict), inputs=inputs_given(graph)))
        return parted is not None

    def before_passes(self) -> list[GraphRow]:
        """After stages differed: the first widest graph of such a compile that fails when judged itself, since the
        wrong stage is then made again."""
        for row in [row for row in self.rows if row.failed]:
            judged = self.judge(stages_of(self.run.graph(row.id))[0])
            if judged.failed:
                return [judged]
        return []

    def _same(self, candidate: CompileLevels) -> bool:
        """Whether an equal graph was judged, whose verdict is taken over; not where that compile's stages differed,
        since this one's need not."""
        known = next((row for row in self.rows if row.id == candidate.same_as), None)
        if known is not None:
            verdict = msgspec.structs.replace(known.verdict, reason=f"the same graph as {known.id}", detail=SAME)
            self.rows.append(self._row(candidate.graph, RungResult(self.rung, verdict)))
        return known is not None

    def _candidate(self, candidate: CompileLevels, share: float) -> None:
        for graphs in candidate.levels:
            rows = [self.judge(graph, share) for graph in graphs]
            self.rows += rows
            if any(row.judged or row.verdict.detail == NOT_JUDGED for row in rows):
                return

    def judge(self, graph: SavedGraph, share: float = 1.0) -> GraphRow:
        """Judges one graph under Inductor, or under the rung asked for."""
        left = self.left_s(share)
        if left < 1.0:
            over = cannot_tell(f"the time was over ({self.max_time_s:.0f} s, see --max-time)", NOT_JUDGED)
            return self._row(graph, RungResult(self.rung, over))
        ladder = Ladder(graph, self.server, self.how, max_time_s=left)
        try:
            row = ladder.run(self.rung)
        except GraphdbgError as error:
            if isinstance(error, LostServer) or str(error).startswith("cannot import "):
                raise  # every graph would raise this
            return self._row(graph, RungResult(self.rung, unloadable(error, graph.path)))
        self.ladders[graph.id] = ladder
        if row.verdict.detail == NO_TIME:
            row.verdict = msgspec.structs.replace(row.verdict, detail=NOT_JUDGED)
        if not row.failed:
            ladder.forget()
        self.report(f"{graph.id}: {word(row.verdict)}")
        fidelity = (ladder.fidelity or "").partition("\n")[0].rstrip(":")
        return self._row(graph, row, fidelity, inputs_given(graph))

    def failing(self) -> list[GraphRow]:
        """The rows of graphs that fail by themselves, the worst first."""
        return sorted(
            (row for row in self.rows if row.failed and row.verdict.detail != SAME and row.rung != STAGES), key=rank
        )

    def explain(self, all: bool) -> None:
        """The ladders of the worst failures, one for each way to fail."""
        taken: list[GraphRow] = []
        for row in self.failing():
            seen = row.signature
            alike = next((other for other in taken if seen and other.signature and other.signature.same_as(seen)), None)
            if alike is not None:
                alike.also.append(row.id)
            elif len(taken) < WORST and self.left_s() > 1.0:
                taken.append(row)
                self._explain_one(row, all)

    def narrowed(self, row: GraphRow) -> tuple[GraphRow, SavedGraph, list[GraphRow]]:
        """The narrowest graph inside a failing one that fails alike by itself, else the failing one; with all graphs
        inside it.

        A crash is not followed into a graph with a difference of another kind.
        """
        graph = self.run.graph(row.id)
        inner = [self.judge(other) for other in inner_graphs(graph)]
        self.rows += [other for other in inner if other.id not in {known.id for known in self.rows}]
        worse = sorted((other for other in inner if other.failed and _alike(other, row)), key=rank)
        narrowest = worse[0] if worse else row
        return narrowest, self.run.graph(narrowest.id), inner

    def _explain_one(self, row: GraphRow, all: bool) -> None:
        narrowest, graph, inner = self.narrowed(row)
        ladder = self.ladders[graph.id]
        flaky = self._again(row, graph) if narrowest is row else ""
        ladder.max_time_s, ladder.began = self.left_s(), time.monotonic()
        for rung in chosen(graph, self.rungs, all=all):
            self.heard(graph.id, ladder.climb(rung, all=all))
        result = ladder.found()
        if (row.verdict.kind, result.verdict.kind) == ("nan", "wrong_numbers"):
            reason = f"{result.verdict.reason}; which leads to the NaN of {row.id}: {row.verdict.reason}"
            result.verdict = msgspec.structs.replace(result.verdict, kind=row.verdict.kind, reason=reason)
        self.found.append(result)
        self.boundaries.append(flaky or _boundary(row, narrowest, inner, result.verdict))

    def _again(self, row: GraphRow, graph: SavedGraph) -> str:
        """Repeats a failure; if it does not occur each time, notes that in the verdict and returns a sentence. "" where
        the next replay fails, too, or takes too long."""
        failed = 1
        for times in (2, 3):
            if row.seconds > AGAIN_S or self.left_s() < 2 * row.seconds:
                return ""
            ladder = Ladder(graph, self.server, self.how, max_time_s=self.left_s())
            other = ladder.run(self.rung)
            ladder.forget()
            failed += other.failed
            if failed == times or not (other.failed or other.passed):
                return ""
        said = f"it failed in {failed} of 3 replays"
        self.report(f"{row.id}: {said}")
        for judged in (row, self.ladders[graph.id].rows[self.rung]):
            reason = f"{judged.verdict.reason or word(judged.verdict)}; {said}"
            judged.verdict = msgspec.structs.replace(judged.verdict, reason=reason)
        return f"{row.id} is flaky: {said}."

    def eased(self, verdict: Verdict, *, thorough: bool) -> Verdict:
        """Adds a work-around to the run's verdict, tried on the widest graph with that verdict."""
        alike = [row for row in self.rows if row.verdict.verdict == verdict.verdict and row.verdict.detail != SAME]
        if not alike or not blames_compiler(verdict):
            return verdict
        graphs = [(row, self.run.graph(row.id)) for row in alike]
        graphs = [(row, stages_of(graph)[0] if row.rung == STAGES else graph) for row, graph in graphs]
        at = verdict.where.graph if verdict.where is not None else ""
        of = next((compile_of(graph) for row, graph in graphs if row.address == at), None)
        row, graph = next((pair for pair in graphs if of in (None, compile_of(pair[1]))), graphs[0])
        known = verdict, row.seconds, self.left_s()
        return eased(graph, self.server, self.how, *known, thorough=thorough, report=self.report)

    def result(self, interrupted: bool) -> RunTriage:
        seconds = time.monotonic() - self.began
        rows = sorted(self.rows, key=rank)
        return RunTriage(rows, self.found, self.boundaries, seconds=seconds, interrupted=interrupted)

    def _row(self, graph: SavedGraph, row: RungResult, fidelity: str = "", inputs: str = "") -> GraphRow:
        known: dict[str, Any] = {
            "id": graph.id,
            "stage": graph.stage,
            "status": graph.status,
            "recorded": graph.error or "",
        }
        known |= {"address": address(graph), "fidelity": fidelity, "inputs": inputs}
        graph_row = GraphRow(**msgspec.structs.asdict(row), **known)
        self.heard(graph.id, graph_row)
        return graph_row


def _alike(first: GraphRow, other: GraphRow) -> bool:
    """Whether two failures are of one kind. Wrong numbers and NaN count as one; a graph that writes out of bounds may
    show either, and be killed when it runs alone."""
    kinds = [None if row.signature is None else row.signature.kind for row in (first, other)]
    differs = ("accuracy", "nan")
    return None in kinds or kinds[0] == kinds[1] or (kinds[0] in differs and kinds[1] in (*differs, "signal"))


def _boundary(wide: GraphRow, narrowest: GraphRow, inner: Sequence[GraphRow], verdict: Verdict) -> str:
    """A sentence about a failing graph and the graphs inside it; "" where there are none. `verdict`: that of its
    ladder."""
    if narrowest is not wide:
        return f"{wide.id} fails, and so does {narrowest.id} by itself."
    right = [other.id for other in inner if other.verdict.verdict == "ok"]
    others = [f"{other.id} fails in another way ({word(other.verdict)})" for other in inner if other.failed]
    if others or not right:
        return f"{wide.id} fails; {', '.join(others) or 'the graphs inside it could not be judged'}." if inner else ""
    sound = f"{right[0]} is right in itself" if len(right) == 1 else f"{' and '.join(right)} are right in themselves"
    between = (
        "they fail only together, or a pass that Inductor runs on the whole graph is to blame"
        if verdict.layer not in ("dynamo", "aot_autograd", "decomposition")
        else "the fault is between the two stages (a decomposition, a joint pass or the partition)"
    )
    return f"{wide.id} fails, {sound}: {between}."
