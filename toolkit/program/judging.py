"""Judges the graphs of the first call that departs: which graph fails, what in it is to blame, and which modules a
graphdbg process has to import to see the failure.

Runs in the program's own process where that became the server; else in a graphdbg process, first without and then with
the modules that the program imported. Imports no torch.

For example:

    judge_graphs(call, None, print).op
    # 'To blame is the decomposition of aten.silu.default: with only that off the graph is right (verified).'
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ...dumps.errors import EnvironmentLackError, GraphdbgError
from ...dumps.opening import text_if_there
from ...dumps.store import Run, SavedGraph, resolve
from ..blame.bisect import INTERRUPTED, bisect
from ..blame.partners import compile_of
from ..isolation import ForkServer, opened
from ..isolation.imports import TRUST, option_words
from ..replaying.replay import replay
from ..triage.ranking import GraphRow
from ..triage.run import triage_run
from ..verdicts.verdict import DECIDED, OK, Verdict, with_trust_for
from ..verdicts.verdict_words import minified
from .records import BACKENDS, PROGRAM, Call, Program, departing

Report = Callable[[str], object]

_JUDGING_S, _BLAMING_S = 600.0, 240.0
_LEAST_S = 60.0
"""Graphs are judged for at least this long, even when the time is up: otherwise nobody knows whether a graph is at
fault."""
MEANS = {
    "dynamo": "Dynamo's own work: what it captures, resumes and puts back",
    "aot_eager": "AOTAutograd's own work, in its tracing or around the graphs",
}
"""Rung whose failure may lie outside the graphs -> what it adds to the rung before."""
_MOST = 8
"""How many modules of the program are imported one by one."""


class JudgedCall(msgspec.Struct):
    """The verdict on the graphs of a departing call. `verdict`: None where no graph could be judged; `op`: the sentence
    on what is to blame; `size`: over graphs that differ by rounding, the largest error (the rung's or eager's own) or
    share of elements; `decided`: in one of them rounding flips a decision; `apart`: judged in a graphdbg process,
    without the changes that the program's script makes to torch."""

    verdict: Verdict | None = None
    op: str = ""
    text: str = ""
    run: str = ""
    size: float = 0.0
    decided: bool = False
    apart: bool = False

    @property
    def failed(self) -> bool:
        """Whether a graph fails."""
        return self.verdict is not None and self.verdict.failed


def judgeable(program: Program) -> Call | None:
    """The first departing call, where its recorded graphs are worth judging: not under a backend of the program's own,
    and not where an operator of the user is at fault. None otherwise."""
    call = departing(program)
    if call is None or call.failed is None or call.operator is not None or not call.run:
        return None
    return call if call.failed.rung in (*BACKENDS, PROGRAM) else None


def judge_graphs(
    call: Call,
    server: ForkServer | None,
    report: Report,
    modules: Mapping[str, str] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    max_time_s: float = math.inf,
) -> JudgedCall:
    """Judges the recorded graphs of a call: the worst verdict, and the operation, pass or lowering that is to blame.
    `modules`: file -> name of the modules that the program imported, of which a graphdbg process may need one before a
    graph fails there, too; `stopped`: whether the user interrupted; after that, and after `max_time_s`, no further
    search begins."""
    until = time.monotonic() + max_time_s
    report(f"judging the graphs of {call.place}")
    judged = JudgedCall(run=call.run, apart=server is None)
    outside = call.failed is not None and call.failed.rung in (*MEANS, PROGRAM)
    try:
        run = resolve(os.path.relpath(call.run) if Path(call.run).is_relative_to(Path.cwd()) else call.run)
        assert isinstance(run, Run)
        _judge(judged, run, server, (), outside, report, stopped, until)
        if stopped():
            return judged
        if server is not None and judged.failed:
            judged.verdict = _importing(run, judged.verdict or OK, modules or {}, report, until)
        elif server is None and not judged.op and modules and time.monotonic() < until:
            files = _likely(modules)
            report(f"judging them once more, after the import of {', '.join(modules[file] for file in files)}")
            again = JudgedCall(run=call.run, apart=True)
            _judge(again, run, None, [*files, TRUST], outside, report, stopped, until)
            if again.op or not judged.failed:
                judged = again
                judged.verdict = _with_words(again.verdict or OK, files, modules)
    except GraphdbgError as error:
        judged.text = judged.text or str(error)
    except KeyboardInterrupt:
        report("interrupted while its graphs were judged")
    return judged


def _judge(
    judged: JudgedCall,
    run: Run,
    server: ForkServer | None,
    imports: Sequence[str],
    outside: bool,
    report: Report,
    stopped: Callable[[], bool],
    until: float,
) -> None:
    with opened(server) as used:
        seconds = min(_JUDGING_S, max(_LEAST_S, until - time.monotonic()))
        triage = triage_run(run, server=used, imports=imports, max_time_s=seconds, report=report)
        judged.verdict, judged.text = triage.verdict, triage.summary
        rounded = [row for row in triage.graphs if row.verdict.verdict == "rounding"]
        judged.size = max(map(_size, rounded), default=0.0)
        judged.decided = any(DECIDED in row.verdict.reason for row in rounded)
        unclear = triage.verdict.failed and triage.verdict.fault == "compiler" and not outside
        for graph in _widest_first(run, triage.verdict) if unclear else []:
            seconds = min(_BLAMING_S, until - time.monotonic())
            if stopped() or seconds < 1.0:
                break
            report(f"looking for what is to blame in {graph.id}")
            blamed = bisect(graph, server=used, imports=imports, max_time_s=seconds, narrate=lambda text: None)
            if blamed.stopped and not blamed.findings:
                late = f"not found in the {seconds:.0f} s that were left for it (see --max-time)"
                report("interrupted before it was found" if blamed.stopped == INTERRUPTED else late)
                break
            if blamed.reproduced:
                judged.op = blamed.sentence or judged.op
                judged.verdict = _with_blame(triage.verdict, blamed.verdict)
                break


def _size(row: GraphRow) -> float:
    share = row.signature.size if row.signature is not None else None
    return max(row.error or 0.0, row.eager_error or 0.0, share or 0.0)


def _likely(modules: Mapping[str, str]) -> list[str]:
    """The module files to import one by one: at most _MOST, first those whose text touches torch."""
    return sorted(modules, key=lambda file: not _touches_torch(file))[:_MOST]


def _importing(
    run: Run, verdict: Verdict, modules: Mapping[str, str], report: Report, until: float = math.inf
) -> Verdict:
    """The verdict with `next` commands that work in a graphdbg process: with the modules whose import makes the graph
    fail there, too; without commands where it never fails there; unchanged where the time is over at `until`."""
    named = minified(verdict, run) or _graph_of(run, verdict)
    if named is None or not verdict.next:
        return verdict
    if time.monotonic() >= until:
        report(f"no time is left to see whether {named.id} fails outside of the program, too")
        return verdict
    report(f"looking whether {named.id} fails outside of the program, too, where the next commands run it")
    with opened(None) as own:
        likely = _likely(modules)
        mine = [[TRUST]] if with_trust_for(named, "with") else []
        tried = [[], *mine, *([file] for file in likely), *([likely] if len(likely) > 1 else [])]
        wanted = next((files for files in tried if time.monotonic() < until and _fails(named, files, own, until)), None)
    if wanted is None and time.monotonic() >= until:
        report(f"{named.id} was not seen to fail there before the time was over")
        return verdict
    said = [shlex.join(option_words(_named(files, modules))) for files in (wanted, *mine, likely) if files]
    if wanted is None:
        besides = f", also not with {' or '.join(said)}" if said else ""
        report(f"{named.id} was not seen to fail there{besides}, so it cannot be minified alone")
        return msgspec.structs.replace(verdict, next=[])
    report(f"{named.id} fails there{f' with {said[0]}' if wanted else ', too'}")
    return _with_words(verdict, wanted, modules) if wanted else verdict


def _fails(graph: SavedGraph, files: Sequence[str], server: ForkServer, until: float) -> bool:
    left_s = min(_JUDGING_S, max(1.0, until - time.monotonic()))
    try:
        verdict = replay(graph, outputs=False, imports=files, server=server, limit_s=left_s, patient=False).verdict
        return verdict.failed and (time.monotonic() < until or verdict.kind != "hang")
    except EnvironmentLackError:  # these modules do not define an operator of the program's
        return False


def _with_words(verdict: Verdict, files: Sequence[str], modules: Mapping[str, str]) -> Verdict:
    """The verdict with commands that import the needed modules, as the user names them."""
    by_file, by_name = option_words(files), option_words(_named(files, modules))
    lines = [line.replace(f" {shlex.join(by_file)}", "") for line in verdict.next]
    takes = re.compile("graphdbg (bisect|check|minify|replay|triage|values) (?!-- )").match
    return msgspec.structs.replace(
        verdict, next=[f"{line} {shlex.join(by_name)}" if takes(line) else line for line in lines]
    )


def _named(files: Sequence[str], modules: Mapping[str, str]) -> list[str]:
    return [file if file == TRUST else _spelled(file, modules[file]) for file in files]


def _spelled(file: str, name: str) -> str:
    """A module as `--import` finds it from the current folder: its name where that leads to the file (a repro can then
    import it), else the file."""
    places = (Path(*name.split(".")).with_suffix(".py"), Path(*name.split("."), "__init__.py"))
    return name if any(place.exists() and place.samefile(file) for place in places) else file


def _touches_torch(file: str) -> bool:
    """Whether a module's text names a private part of torch or torch.library."""
    return re.search(r"torch\.(_|library)", text_if_there(file)) is not None


def _graph_of(run: Run, verdict: Verdict) -> SavedGraph | None:
    at = verdict.where.graph if verdict.where is not None else ""
    return next((graph for graph in run.graphs() if at.endswith(f"/{graph.id}") or at == graph.id), None)


def _widest_first(run: Run, verdict: Verdict) -> list[SavedGraph]:
    """The graphs to blame, in order: the Dynamo graphs of the failing graph's compile, which include earlier
    transformations, then the failing graph itself."""
    failing = _graph_of(run, verdict)
    if failing is None:
        return []
    whole = [graph for graph in run.graphs() if graph.stage == "dynamo" and compile_of(graph) == compile_of(failing)]
    return list({graph.id: graph for graph in [*whole, failing]}.values())


def _with_blame(triage: Verdict, blamed: Verdict) -> Verdict:
    where = blamed.where if blamed.where is not None and blamed.where.node else triage.where
    graph = triage.where.graph if triage.where is not None else ""
    if where is not None and not where.graph:
        where = msgspec.structs.replace(where, graph=graph)
    known = {name: value for name in ("layer", "fault", "workaround", "next") if (value := getattr(blamed, name))}
    return msgspec.structs.replace(triage, where=where, **known)
