"""`triage -- CMD`: runs a program once, its compiled calls beside eager, and says which departs, from which rung on, and why.

The program's own output is untouched. What it left is in a folder; the graphs of the first call that departs are judged in the
program's own process, where its passes and operators are, or here where that is gone. Imports no torch.

>>> found = triage_program(["train.py"])
>>> found.verdict.layer
'inductor'
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.atomic import check_folder, free_path
from ...dumps.errors import GraphdbgError, UsageError
from ...dumps.store import Run, SavedGraph, resolve
from ...dumps.wording import counted
from ..blame.bisect import bisect
from ..blame.partners import compile_of
from ..imports import option_words
from ..isolation import ForkServer, opened
from ..isolation.client import JUDGING
from ..recorder import launch
from ..replay import replay
from ..triage.run import triage_run
from ..verdict import OK, Layer, Verdict, Where, cannot_tell, worst
from ..verdict_words import word
from .drift import Drift, drift
from .records import DEFAULT_CALLS, FILE, OPTIONS, PROGRAM, RUNGS, VARIABLE, Call, Program, read
from .showing import Repro, verified

DEFAULT_TIME_S = 3600.0
HANGS, COMPILING_S = 20.0, 600.0
"""A rung of a call may take so many times what eager takes, and so much more, before it hangs."""
_JUDGING_S, _BLAMING_S = 600.0, 240.0
_LAYERS: dict[str, Layer] = {"dynamo": "dynamo", "aot_eager": "aot_autograd"}
_MEANS = {
    "dynamo": "Dynamo's own work: what it captures, resumes and puts back",
    "aot_eager": "what AOTAutograd does around the graphs",
}
_STALE = "compiled anew it agrees, so what was compiled for an earlier call is taken for this one: a guard is missing"
_OLD = "compiled anew it agrees: what it took was compiled for an earlier call, or came from a cache on disk"
_SHORT = 3
"""Sentences of a finding that go into the verdict's own."""
_MOST = 8
"""Modules of the program's that are imported one by one."""
Told = Callable[[str], object]


class ProgramTriage(msgspec.Struct):
    """`calls`: what was looked at, in order; `counts`: how often each function was called; `exit_code`: the program's own.
    `folder`: what is kept."""

    verdict: Verdict
    calls: list[Call]
    counts: dict[str, int]
    command: list[str]
    folder: str
    exit_code: int = 0
    summary: str = ""
    notes: list[str] = []
    seconds: float = 0.0
    at: Call | None = None
    drift: Drift | None = None
    repro: Repro = Repro()

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        rows = [[msgspec.to_builtins(row) | row.verdict.flat(row=True) for row in call.rows] for call in self.calls]
        calls = [msgspec.to_builtins(call) | {"rows": of} for call, of in zip(self.calls, rows, strict=True)]
        told = msgspec.structs.asdict(self) | {"calls": calls, "at": self.at.key if self.at else None} | self.repro.plain()
        failed = self.at.failed if self.at is not None else None
        told |= {"rows": next((call["rows"] for call in calls if self.at is not None and call["key"] == self.at.key), [])}
        return told | {"first_failing": failed.rung if failed is not None else None} | self.verdict.flat()


def range_of(text: str | None) -> tuple[int, int]:
    """The calls that `--calls` names, from and to (excluded). Raises UsageError."""
    first, dash, last = (text or str(DEFAULT_CALLS)).partition(":")
    try:
        found = (int(first), int(last)) if dash else (0, int(first))
    except ValueError:
        found = (-1, -1)
    if not 0 <= found[0] < found[1]:
        raise UsageError(f"--calls {text} names no calls", "", "give a number, or the first and the one after the last: 10:20")
    return found


def made(folder: Path | None) -> Path:
    """A new folder: this one, or the next free graphdbg-triage-N. Raises UsageError where it exists, EnvironmentLackError where
    nothing can be written."""
    folder = folder or free_path("graphdbg-triage", bare=False)
    check_folder(folder)
    folder.mkdir(parents=True)
    return folder


def triage_program(command: Sequence[str], *, calls: str | None = None, all: bool = False, output: Path | None = None,
                   limit_s: float | None = None, max_time_s: float | None = None, quiet: bool = False,
                   told: Told = lambda text: None) -> ProgramTriage:  # fmt: skip
    """Runs the command once. `calls`: see `range_of`; `all`: also after a call that departs; `output`: a folder that must not
    exist yet; `limit_s`: what one rung of one call may take; `max_time_s`: after it no call is looked at; `quiet`: its standard
    output goes to standard error.

    Raises UsageError for a command that cannot be run.
    """
    words = launch.command_line(command)
    python = Path(words[0]).name.startswith("python") and len(words) > 1
    if python and words[1].endswith(".py") and not Path(words[1]).exists():
        raise UsageError(f"cannot run {words[1]}", "there is no such script", "check the path")
    first, last = range_of(calls)
    folder = made(output)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="graphdbg-") as short:
        program = _Program(words, folder, Path(short) / "s", limit_s, told)
        options = {"first": first, "last": last, "go_on": all or calls is not None, "anew": calls is None,
                   "seconds": max_time_s or DEFAULT_TIME_S, "address": str(program.address)}  # fmt: skip
        scheduled = _scheduled(first, last, calls)
        told(f"compiled calls run beside eager ({scheduled}); the program goes on with its own results")
        program.run(options, quiet)
    left = program.read()
    found = concluded(left, folder, program.graphs, list(command), program.code, program.hung)
    if found.at is not None and found.at.failed and (not program.graphs.failed or found.at.failed.rung in _LAYERS):
        told("running the program that shows it, 3 times in fresh processes") if found.at.repro else None
        found.repro = verified(found.at, words[0] if python else sys.executable)
        found.summary += f" {found.repro.sentence}"
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _scheduled(first: int, last: int, calls: str | None) -> str:
    span = f"calls {first} to {last - 1}" if first else f"the first {last}"
    return f"{span} of each function" + ("" if calls else ", and each that compiles anew")


class Judged(msgspec.Struct):
    """What the graphs of a call that departs came to. `verdict`: None where none could be judged."""

    verdict: Verdict | None = None
    op: str = ""
    text: str = ""
    run: str = ""

    @property
    def failed(self) -> bool:
        """Whether a graph fails."""
        return self.verdict is not None and self.verdict.failed


class _Program:
    """The command while it runs."""

    def __init__(self, words: list[str], folder: Path, address: Path, limit_s: float | None, told: Told) -> None:
        self.words, self.folder, self.address, self.limit_s, self.told = words, folder, address, limit_s, told
        self.code, self.hung = 0, ""
        self.graphs = Judged()

    def read(self) -> Program:
        """What it has left so far."""
        return read(self.folder / FILE)

    def run(self, options: dict[str, Any], quiet: bool) -> None:
        """To its end, with the judging of its graphs before it ends."""
        environment = {name: value for name, value in os.environ.items() if name != "GRAPHDBG"}
        environment |= {VARIABLE: str(self.folder.absolute()), OPTIONS: json.dumps(options)}
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(self.address))
            door.listen(16)
            door.settimeout(0.2)
            child = subprocess.Popen(self.words, env=environment, stdout=sys.stderr.fileno() if quiet else None)
            try:
                self._attend(child, door)
            except KeyboardInterrupt:  # the terminal's own reaches the program, too
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(30)
                child.kill()
                raise
        code = child.wait()
        self.code = code if code >= 0 else 128 - code
        if self.graphs.verdict is None and (call := departing(self.read())) is not None and call.run:
            self.graphs = judge_graphs(call, None, self.told)

    def _attend(self, child: subprocess.Popen[bytes], door: socket.socket) -> None:
        while child.poll() is None:
            try:
                connection, _ = door.accept()
            except TimeoutError:
                self._look(child)
                continue
            call = departing(self.read())
            if self.graphs.verdict is not None or call is None or not call.run:
                connection.close()
                continue
            connection.settimeout(None)
            with ForkServer(preload=JUDGING, joined=(connection, child)) as server:
                self.graphs = judge_graphs(call, server, self.told, self.read().modules)

    def _look(self, child: subprocess.Popen[bytes]) -> None:
        """Ends a program in which a rung hangs."""
        call = next((one for one in self.read().calls if one.in_flight not in ("", "eager")), None)
        if call is None:
            return
        eager = max((row.seconds for row in call.rows if row.rung == "eager"), default=0.0)
        limit = self.limit_s if self.limit_s is not None else HANGS * eager + COMPILING_S
        if time.time() - call.since > limit:
            self.hung = f"{call.in_flight} was still at work after {limit:.0f} s (see --limit)"
            child.kill()


def departing(program: Program) -> Call | None:
    """The first call that departs."""
    return next((call for call in program.calls if call.failed), None)


def judge_graphs(call: Call, server: ForkServer | None, told: Told, modules: Mapping[str, str] | None = None) -> Judged:
    """The graphs that were recorded of a call: the worst, and the operation, pass or lowering that is to blame. `modules`: those
    that the program imported, one of which a process of ours may need before a graph fails there, too."""
    told(f"judging the graphs of {call.place}")
    found = Judged(run=call.run)
    outside = call.failed is not None and call.failed.rung in (*_MEANS, PROGRAM)
    try:
        run = resolve(os.path.relpath(call.run) if Path(call.run).is_relative_to(Path.cwd()) else call.run)
        assert isinstance(run, Run)
        with opened(server) as used:
            triage = triage_run(run, server=used, max_time_s=_JUDGING_S, told=told)
            found.verdict, found.text = triage.verdict, triage.summary
            for graph in _widest_first(run, triage.verdict) if triage.verdict.failed and not outside else []:
                told(f"looking for what is to blame in {graph.id}")
                blamed = bisect(graph, server=used, max_time_s=_BLAMING_S, narrate=lambda text: None)
                if blamed.reproduced:
                    found.op = blamed.sentence or found.op
                    found.verdict = _with_blame(triage.verdict, blamed.verdict)
                    break
        if server is not None and found.verdict.failed:
            found.verdict = _importing(run, found.verdict, modules or {}, told)
    except GraphdbgError as error:
        found.text = str(error)
    return found


def _importing(run: Run, verdict: Verdict, modules: Mapping[str, str], told: Told) -> Verdict:
    """The verdict with commands that a process of ours can follow: with the modules whose import makes the graph fail there."""
    graph = _graph_of(run, verdict)
    minify = next((line for line in verdict.next if line.startswith("graphdbg minify ")), "")
    named = next((one for one in run.graphs() if minify.endswith(f"/{one.id}")), graph)
    if named is None or not verdict.next:
        return verdict
    told(f"looking for what a process of graphdbg's own has to import, that {named.id} fails there")
    with opened(None) as own:
        fails = lambda *files: replay(named, outputs=False, imports=files, server=own).verdict.failed  # noqa: E731
        if fails():
            return verdict
        likely = sorted(modules, key=lambda file: not _touches_torch(file))[:_MOST]
        wanted = next(([file] for file in likely if fails(file)), likely if len(likely) > 1 and fails(*likely) else [])
    words = option_words([_spelled(file, modules[file]) for file in wanted])
    more = f" {shlex.join(words)}" if words else ""
    return msgspec.structs.replace(verdict, next=[f"{line}{more}" for line in verdict.next] if more else [])


def _spelled(file: str, name: str) -> str:
    """A module as `--import` finds it from here: its name where that leads to it (a repro can then import it), else its file."""
    places = (Path(*name.split(".")).with_suffix(".py"), Path(*name.split("."), "__init__.py"))
    return name if any(place.exists() and place.samefile(file) for place in places) else file


def _touches_torch(file: str) -> bool:
    """Whether a module's text names something of torch's own, or registers an operator."""
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return False
    return re.search(r"torch\.(_|library)", text) is not None


def _graph_of(run: Run, verdict: Verdict) -> SavedGraph | None:
    at = verdict.where.graph if verdict.where is not None else ""
    return next((one for one in run.graphs() if at.endswith(f"/{one.id}") or at == one.id), None)


def _widest_first(run: Run, verdict: Verdict) -> list[SavedGraph]:
    """The failing graph's Dynamo graph, which holds what is done before it, and itself."""
    failing = _graph_of(run, verdict)
    if failing is None:
        return []
    whole = [one for one in run.graphs() if one.stage == "dynamo" and compile_of(one) == compile_of(failing)]
    return list({one.id: one for one in [*whole, failing]}.values())


def _with_blame(triage: Verdict, blamed: Verdict) -> Verdict:
    where = blamed.where if blamed.where is not None and blamed.where.node else triage.where
    graph = triage.where.graph if triage.where is not None else ""
    if where is not None and not where.graph:
        where = msgspec.structs.replace(where, graph=graph)
    return msgspec.structs.replace(
        triage, where=where, layer=blamed.layer or triage.layer, fault=blamed.fault or triage.fault,
        workaround=blamed.workaround or triage.workaround, next=blamed.next or triage.next,
    )  # fmt: skip


# the verdict


def concluded(program: Program, folder: Path, graphs: Judged, command: list[str], code: int = 0, hung: str = "") -> ProgramTriage:
    """What all calls come to, in one record. `command`: empty for a block of a program."""
    seen = max((call.number for call in program.calls), default=0) + 1
    more = max(program.counts.values(), default=0)
    later = ["graphdbg", "triage", "--calls", f"{seen}:{min(more, seen + 10)}", "--", *command]
    found = ProgramTriage(OK, program.calls, program.counts, command, str(folder), code)
    found.notes = [*dict.fromkeys(program.notes), *([f"the program itself ended with code {code}"] if code else [])]
    found.at = call = departing(program)
    died = next((one for one in program.calls if one.in_flight), None)
    if call is not None:
        found.verdict = _departs(call, graphs, command)
    elif died is not None and (hung or code > 128) and died.in_flight != "eager":
        found.at = died
        found.verdict = _died(died, hung, code)
    elif not program.calls:
        recording = f"graphdbg dump -- {shlex.join(command)}" if command and not code else ""
        found.verdict = cannot_tell(_why_none(program, code)).then(recording)
    else:
        found.verdict = _agrees(program).then(shlex.join(later) if command and more > seen else "")
    found.drift = drift(program.calls)
    found.summary = _summary(found, graphs)
    return found


def _why_none(program: Program, code: int) -> str:
    none = "no call of something given to torch.compile was seen"
    if code:
        return f"{none} before the program ended with code {code}"
    if program.ended:
        return f"{none}: torch.compile was never used, or what it returned was never called"
    return f"{none}: no process lived to say so, or its Python has no torch or no graphdbg"


def _died(call: Call, hung: str, code: int) -> Verdict:
    layer = _LAYERS.get(call.in_flight) or ("decomposition" if call.in_flight == "decomposed" else "inductor")
    where = Where(line=_line(call))
    if hung:
        return Verdict("fails", "hang", "compiler", layer, f"{call.place}: {hung}", where)
    text = f"{call.place}: {call.in_flight} ended the process by {launch.signal_text(code)}"
    return Verdict("fails", "signal", "compiler", layer, text, where)


def _line(call: Call) -> str:
    return f"{Path(call.file).name}:{call.line}"


def _departs(call: Call, graphs: Judged, command: Sequence[str]) -> Verdict:
    row = call.failed
    assert row is not None
    own = row.rung == PROGRAM
    judged, minify = graphs.verdict, shlex.join(["graphdbg", "minify", "--", *command])
    reason = f"{call.place}: {row.verdict.reason}, " + ("in the program's own call alone" if own else f"from {row.rung} on")
    where = Where(line=_line(call), name=row.value)
    verdict = msgspec.structs.replace(row.verdict, reason=reason, where=where)
    if judged is not None and judged.failed and not own and row.rung != "dynamo":
        at = judged.where or Where()
        graph = at.graph.rpartition("/run-")[2].partition("/")[2] or at.graph
        told = _shortened(graphs.op or judged.reason)
        around = f"; it is {_MEANS[row.rung]}, and its graph {graph} shows it: {told}" if row.rung in _MEANS else ""
        reason += around or f"; its graph {graph} fails: {told}"
        where = Where(at.node, at.graph, at.line or _line(call), row.value)
        layer = row.verdict.layer if row.rung != "inductor" else judged.layer or row.verdict.layer
        verdict = msgspec.structs.replace(
            verdict, reason=reason, where=where, layer=layer, fault=judged.fault or verdict.fault, workaround=judged.workaround,
        )  # fmt: skip
        return msgspec.structs.replace(verdict, next=judged.next)
    minify = minify if command else ""
    if call.anew == "agrees" and (own or row.rung in _MEANS):
        reason += f"; {_STALE}"
    elif row.rung in _MEANS:
        right = judged is not None and judged.verdict in ("ok", "rounding")
        reason += f"; it is {_MEANS[row.rung]}" + (" (its saved graphs are right by themselves)" if right else "")
    elif call.anew == "agrees":
        reason += f"; {_OLD}"
    elif judged is not None:
        told = "were judged right" if judged.verdict in ("ok", "rounding") else f"could not be judged: {judged.reason}"
        reason += f"; compiled anew it departs, too; its saved graphs {told}"
    elif call.recorded:
        reason += f"; {call.recorded}"
    return msgspec.structs.replace(verdict, reason=reason).then(minify)


def _shortened(sentence: str) -> str:
    """What is to blame, without what was looked at and how long it took."""
    parts = re.split(r"\. (?=[A-Z0-9])", sentence.strip().rstrip("."))
    kept = [part for part in parts if not part.startswith("Work around") and not re.match(r"\d+ compiles? \(", part)]
    return ". ".join(kept[:_SHORT])


def _agrees(program: Program) -> Verdict:
    """The worst of the functions, each of which is what its calls that were judged come to."""
    verdicts: list[Verdict] = []
    for function in dict.fromkeys((call.function, call.file, call.line) for call in program.calls):
        calls = [call for call in program.calls if (call.function, call.file, call.line) == function]
        judged = [row.verdict for call in calls for row in call.rows if call.judged]
        if judged:
            verdicts.append(worst(judged))
            continue
        unsteady = [row.verdict for call in calls for row in call.rows if row.verdict.verdict == "nondeterministic"]
        why = next((call.why for call in calls if call.why), "nothing of it could be compared")
        reason = f"{calls[0].place}: {unsteady[0].reason if unsteady else why}"
        verdicts.append(msgspec.structs.replace(unsteady[0], reason=reason) if unsteady else cannot_tell(reason))
    return worst(verdicts)


def _summary(found: ProgramTriage, graphs: Judged) -> str:
    judged = [call for call in found.calls if call.judged]
    functions = counted(len({(call.function, call.file, call.line) for call in found.calls}), "function")
    of = f"{len(judged)} of {counted(len(found.calls), 'call')} looked at of {functions} were judged"
    seen = ", ".join(f"{name.rpartition(' ')[0]}() {count}" for name, count in found.counts.items())
    calls = f" (calls in all: {seen})" if seen else ""
    if found.verdict.failed:
        steps = f" Step by step: {found.drift.sentence}." if found.drift is not None else ""
        return f"{found.verdict.reason}.{steps} {of}{calls}."
    if found.verdict.verdict in ("ok", "rounding"):
        rest = "Other calls, and what is not compiled, were not looked at"
        rest += f". Step by step: {found.drift.sentence}" if found.drift is not None else ""
        return f"Results, gradients and what is written agree with eager: {of}{calls}. {rest}."
    return f"Not told: {found.verdict.reason}. {of}{calls}."


def table_rows(found: ProgramTriage) -> list[tuple[str, ...]]:
    """For people: of the call that departs each rung, else of each function its largest differences."""
    if found.at is not None:
        part = found.at.failed.part if found.at.failed else ""
        rows = [row for row in found.at.rows if row.part == part]
        return [
            (row.rung, word(row.verdict), _number(row.error), _number(row.tolerance), row.value, row.size) for row in rows
        ]  # fmt: skip
    rows = []
    for call in found.calls:
        largest = {row.rung: max(row.error or 0.0, 0.0) for row in call.rows if row.rung in RUNGS and row.rung != "eager"}
        told = " ".join(f"{rung} {_number(value)}" for rung, value in largest.items())
        verdict = cannot_tell(call.why) if call.why else worst(row.verdict for row in call.rows)
        rows.append((f"{call.function}()", word(verdict), str(call.number), _line(call), call.why or told, "; ".join(call.notes)))
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"
