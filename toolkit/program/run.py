"""`triage -- CMD`: runs a program once, its compiled calls beside eager, and says which call departs, from which rung
on, and why.

The program's own output is untouched. Records and graphs are left in a folder. The graphs of the first departing call
are judged in the program's own process, where its passes and operators are registered; where that process is gone, in
this one. Imports no torch.

For example:

    triaged = triage_program(["train.py"])
    triaged.verdict.layer  # -> 'inductor'
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...dumps import temporary
from ...dumps.atomic import check_folder, free_path
from ...dumps.errors import BadValueError, CannotStartError
from ..isolation import ForkServer, launch
from ..isolation.client import JUDGING
from ..isolation.heartbeat import BEAT_S
from .concluding import LEAST_S, ProgramTriage, concluded, verified, with_program
from .judging import MEANS, JudgedCall, Report, judge_graphs, judgeable
from .records import DEFAULT_CALLS, FILE, OPTIONS, TRACE_SIGNAL, VARIABLE, Program, read

DEFAULT_TIME_S = 3600.0
HANGS, COMPILING_S = 20.0, 600.0
"""A rung hangs after HANGS times eager's seconds plus COMPILING_S seconds."""
_TURN_S = 0.2
_DIES_S = 10.0
"""Seconds to wait for a killed process to end."""


def range_of(text: str | None) -> tuple[int, int]:
    """The range of calls that `--calls` names: (from, to), `to` excluded. Raises UsageError."""
    first, dash, last = (text or str(DEFAULT_CALLS)).partition(":")
    try:
        span = (int(first), int(last)) if dash else (0, int(first))
    except ValueError:
        span = (-1, -1)
    if not 0 <= span[0] < span[1]:
        raise BadValueError(
            f"--calls {text} names no calls", "", "give a number of calls, or a range that excludes its end: 10:20"
        )
    return span


def new_folder(folder: Path | None) -> Path:
    """Creates and returns a folder: the given one, or the next free graphdbg-triage-N. Raises UsageError where it
    exists, EnvironmentLackError where it cannot be written."""
    folder = folder or free_path("graphdbg-triage", bare=False)
    check_folder(folder)
    folder.mkdir(parents=True)
    return folder


def triage_program(
    command: Sequence[str],
    *,
    calls: str | None = None,
    all: bool = False,
    output: Path | None = None,
    limit_s: float | None = None,
    max_time_s: float | None = None,
    quiet: bool = False,
    report: Report = lambda text: None,
) -> ProgramTriage:
    """Runs the command once and judges its calls. `calls`: see `range_of`; `all`: go on after a call that departs;
    `output`: a folder that must not exist yet; `limit_s`: for one rung of one call; `max_time_s`: afterwards no call is
    looked at, and a program in which a rung is still running is ended (of it LEAST_S, or a quarter, is kept for its
    graphs, and as much for its repro); `quiet`: the program's standard output goes to standard error.

    Raises UsageError for a command that cannot be run.
    """
    words = launch.command_line(command)
    python = Path(words[0]).name.startswith("python") and len(words) > 1
    if python and words[1].endswith(".py") and not Path(words[1]).exists():
        raise CannotStartError(f"cannot run {words[1]}", "there is no such script", "check the path")
    first, last = range_of(calls)
    folder = new_folder(output)
    began = time.monotonic()
    whole_s = max_time_s or DEFAULT_TIME_S
    kept_s = min(LEAST_S, whole_s / 4)
    options = {
        "first": first,
        "last": last,
        "go_on": all or calls is not None,
        "recompiles": calls is None,
        "seconds": whole_s - 2 * kept_s,
    }
    scheduled = _scheduled(first, last, calls)
    report(f"compiled calls run beside eager ({scheduled}); the program goes on with its own results")
    program = _SupervisedProgram(words, folder, limit_s, report, began + whole_s - 2 * kept_s, kept_s)
    program.run(options, quiet)
    left = program.read()
    triaged = concluded(left, folder, program.graphs, list(command), program.code, program.hung, program.late)
    flags = [*(["--calls", calls] if calls else []), *(["--limit", f"{limit_s:g}"] if limit_s else [])]
    longer = with_program("triage", command, "--max-time", f"{max(60.0, 4 * whole_s):.0f}", *flags)
    if (program.late or left.missed) and not triaged.verdict.failed:
        triaged.verdict = triaged.verdict.then(*longer, *triaged.verdict.next)
    triaged.interrupted = any(number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) for number in program.signals)
    for call in left.calls:
        if call.repro and call.failed is None:  # its graphs explain the difference as rounding
            shutil.rmtree(call.repro, ignore_errors=True)
            call.repro = ""
    at, shown = triaged.at, program.graphs.failed
    failed = at.failed if at is not None and not program.signals and triaged.verdict.fault != "custom_op" else None
    if at is not None and failed is not None and (not shown or failed.rung in MEANS):
        report("running the program that shows it, 3 times in fresh processes") if at.repro else None
        until = max(program.until + 2 * kept_s, time.monotonic() + kept_s)
        triaged.repro = verified(at, words[0] if python else sys.executable, until)
        triaged.interrupted = triaged.repro.interrupted
        triaged.summary += f" {triaged.repro.sentence}"
        if triaged.repro.says != "shows" and not triaged.interrupted:  # minify has nothing to start from
            look = [f"graphdbg ls {shlex.quote(at.run)}"] if at.run else []
            others = [step for step in triaged.verdict.next if not step.startswith("graphdbg minify -- ")]
            late = None in triaged.repro.codes
            steps = longer if late else others or look or (longer if program.late else [])
            triaged.verdict = msgspec.structs.replace(triaged.verdict, next=steps)
    elif at is not None and at.repro and shown:
        shutil.rmtree(at.repro, ignore_errors=True)  # the graph shows the failure; the repro was not tried
        at.repro = ""
    triaged.seconds = round(time.monotonic() - began, 1)
    return triaged


def _scheduled(first: int, last: int, calls: str | None) -> str:
    span = f"calls {first} to {last - 1}" if first else f"the first {last}"
    return f"{span} of each function" + ("" if calls else ", and each that recompiles")


class _SupervisedProgram:
    """The running program, with the state of its supervision."""

    def __init__(
        self,
        words: list[str],
        folder: Path,
        limit_s: float | None,
        report: Report,
        until: float = math.inf,
        kept_s: float = LEAST_S,
    ) -> None:
        self.words, self.folder, self.limit_s, self.report, self.until = words, folder, limit_s, report, until
        self.kept_s = kept_s
        self.code, self.hung, self.late, self.judging = 0, "", "", False
        self.signals: list[int] = []
        self.next_look, self.killed, self.beat = 0.0, 0.0, dict[float, float]()
        self.graphs = JudgedCall()

    def read(self) -> Program:
        """The program's records so far."""
        return read(self.folder / FILE)

    def run(self, options: dict[str, Any], quiet: bool) -> None:
        """Runs the program to its end, and judges the graphs of a departing call before its process ends."""
        with contextlib.ExitStack() as stack:
            door = stack.enter_context(socket.socket(socket.AF_UNIX))
            address = stack.enter_context(temporary.folder("graphdbg-")) / "s"
            with contextlib.suppress(OSError):  # a path too long for a socket: the graphs are then judged here
                door.bind(str(address))
                door.listen(16)
                options |= {"address": str(address)}
            door.settimeout(_TURN_S)
            environment = {VARIABLE: str(self.folder.absolute()), OPTIONS: json.dumps(options), "GRAPHDBG": ""}
            stdout = sys.stderr.fileno() if quiet else None
            how = {"on_signal": self._signalled, "attend": functools.partial(self._attend, door), "stdout": stdout}
            self.code = launch.run(self.words, environment, **how)
        self._judge(contextlib.nullcontext())

    def _judge(self, fork_server: contextlib.AbstractContextManager[ForkServer | None]) -> None:
        """Judges the graphs of the departing call once, on the fork server of the program's process, or in a graphdbg
        process where `fork_server` gives None."""
        program = self.read()
        if not self.signals and self.graphs.verdict is None and (call := judgeable(program)) is not None:
            with fork_server as server:
                self.judging = True
                try:
                    left_s = max(0.0, self.until - time.monotonic()) + self.kept_s
                    how = self.report, program.modules, lambda: bool(self.signals), left_s
                    self.graphs = judge_graphs(call, server, *how)
                finally:
                    self.judging = False

    def _signalled(self, number: int) -> None:
        self.signals.append(number)
        if self.judging:
            self.judging = False  # a second signal during the interrupt could break off the cleanup
            raise KeyboardInterrupt

    def _attend(self, door: socket.socket, child: subprocess.Popen[bytes]) -> int | None:
        while child.poll() is None:
            if self.killed and time.monotonic() - self.killed > _DIES_S:  # a kernel keeps the process alive
                self.report(
                    f"process {child.pid} was killed and does not end: a kernel of it may still run on a device"
                )
                return -signal.SIGKILL
            try:
                connection, _ = door.accept()
            except OSError:  # no connection within the timeout, or no socket
                self._look(child)
                time.sleep(0 if door.getsockname() else _TURN_S)
                continue
            connection.settimeout(None)
            with connection:
                self._judge(ForkServer(preload=JUDGING, joined=(connection, child)))
        return None

    def _look(self, child: subprocess.Popen[bytes]) -> None:
        """Ends a program in which eager or a rung hangs (it wrote no record for longer than the limit), or in which a
        rung still runs when the time is over. Before that, reports how long it takes."""
        with contextlib.suppress(OSError):
            if time.time() - (self.folder / FILE).stat().st_mtime < min(BEAT_S, self.limit_s or BEAT_S):
                return
        if self.killed or time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + 1.0
        call = next((candidate for candidate in self.read().calls if candidate.in_flight), None)
        if call is None:
            return
        eager = max((row.seconds for row in call.rows if row.rung == "eager"), default=0.0)
        usual = math.inf if call.in_flight == "eager" else HANGS * eager + COMPILING_S  # eager is the program itself
        limit = self.limit_s if self.limit_s is not None else usual
        taken, left = time.time() - call.since, max(0.0, self.until - time.monotonic())
        if taken > limit or (not left and call.in_flight != "eager"):
            if taken > limit:
                self.hung = f"{call.in_flight} was still at work after {limit:.0f} s (see --limit)"
            else:
                self.late = f"{call.in_flight} was at work for {taken:.0f} s when the time was over (--max-time)"
            for number in (TRACE_SIGNAL, signal.SIGKILL):
                with contextlib.suppress(OSError):
                    os.kill(call.pid, number)
                    time.sleep(_TURN_S)
            child.kill()
            self.killed = time.monotonic()
        elif taken > self.beat.get(call.since, 0.0) + BEAT_S:
            self.beat = {call.since: taken}
            limit = limit if call.in_flight == "eager" else min(limit, taken + left)
            most = f"{limit:.0f} s at most" if limit < math.inf else "without a limit (see --limit)"
            self.report(f"{call.in_flight} of {call.place}: {taken:.0f} s so far, {most}")
