"""A user's script under each backend in turn, compared by exit code and by the numbers that it prints.

eager runs twice: what differs between the two says nothing. Only the last leg is the script as it was written; the others lose
the mode and options of their `torch.compile`, since torch has no other way to override a backend. Imports no torch.

>>> triage_script(["train.py"]).first_failing
'as written'
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.errors import EnvironmentLackError, UsageError
from ...dumps.wording import counted
from ..recorder import launch
from ..recorder.summary import shown_path
from ..verdict import OK, Verdict, cannot_tell, fails, skipped
from ..verdict_words import word
from .legs import LEGS, Leg, run_leg
from .texts import Comparison, departures, nan_lines

DEFAULT_TIME_S = 3600.0
SLOWER = 20.0
"""A compiled leg may take this many times as long as eager, and COMPILING_S more, before it hangs."""

COMPILING_S = 600.0

Told = Callable[[str], object]


class LegRow(msgspec.Struct):
    """One leg; `line` is where it departs from eager."""

    leg: str
    record: Verdict = OK
    exit_code: int | None = None
    seconds: float = 0.0
    line: int | None = None
    expected: float | None = None
    got: float | None = None
    graphs: int | None = None

    @property
    def verdict(self) -> str:
        """The verdict in a word: ok, crash, signal, hang, wrong, NaN, skipped or cannot judge."""
        return word(self.record)

    @property
    def reason(self) -> str:
        """What it is that failed, or why it was skipped, in a sentence."""
        return self.record.reason

    @property
    def failed(self) -> bool:
        """Whether it went wrong where eager did not."""
        return self.record.failed

    def plain(self) -> dict[str, Any]:
        """Every field as a plain value, for JSON."""
        said = {"leg": self.leg, "verdict": self.verdict, "reason": self.reason}
        return said | msgspec.structs.asdict(self) | {"record": self.record.plain()}


class ScriptTriage(msgspec.Struct):
    """`rows`: one per leg in order. `folder` holds what each printed. `record`, `summary` and `next`: the verdict, the finding,
    and how to go on."""

    rows: list[LegRow]
    command: list[str]
    folder: str
    first_failing: str | None = None
    summary: str = ""
    next: str = ""
    notes: list[str] = msgspec.field(default_factory=list)
    record: Verdict = OK

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return msgspec.structs.asdict(self) | {"rows": [row.plain() for row in self.rows], "record": self.record.plain()}


def triage_script(command: Sequence[str], *, output: Path | None = None, limit_s: float | None = None, all: bool = False,
                  max_time_s: float = DEFAULT_TIME_S, told: Told = lambda text: None) -> ScriptTriage:  # fmt: skip
    """Runs the command under each backend until one departs from eager (with `all`, under every one).

    `limit_s`: what one leg may take; `max_time_s`: all of them. `output`: a folder that must not exist yet. Raises UsageError
    for a command that cannot be run, EnvironmentLackError where this torch cannot override backends.
    """
    words = launch.command_line(command)
    python = Path(words[0]).name.startswith("python") and len(words) > 1
    if python and words[1].endswith(".py") and not Path(words[1]).exists():
        raise UsageError(f"cannot run {words[1]}", "there is no such script", "check the path")
    folder = _folder(output)
    told(f"what each run prints is kept in {shown_path(folder)}")
    work = _Work(words, folder, limit_s, max_time_s, told)
    found = ScriptTriage(work.rows, list(command), str(folder))
    for name in LEGS:
        failed = next((row for row in work.rows if row.failed), None)
        if failed is not None and not all:
            work.rows.append(LegRow(name, skipped(f"{failed.leg} failed (--all runs it all the same)")))
        else:
            work.leg(name)
    return _concluded(found, work)


class _Work:
    """The legs so far."""

    def __init__(self, words: list[str], folder: Path, limit_s: float | None, max_time_s: float, told: Told) -> None:
        self.words, self.folder, self.limit_s, self.max_time_s, self.told = words, folder, limit_s, max_time_s, told
        self.began = time.monotonic()
        self.rows: list[LegRow] = []
        self.legs: dict[str, Leg] = {}
        self.compared: dict[str, Comparison] = {}

    def leg(self, name: str) -> None:
        """Runs one leg and adds its row."""
        stop = self._stopped()
        left = self.began + self.max_time_s - time.monotonic()
        if stop or left < 1.0:
            reason = stop or f"the time was over ({self.max_time_s:.0f} s, see --max-time)"
            self.rows.append(LegRow(name, skipped(reason)))
            return
        self.told(f"running {name}")
        limit = min(self._limit_s(), left)
        leg = self.legs[name] = run_leg(name, self.words, self.folder, limit)
        if leg.graphs and not leg.overridden and name != "as written":
            why, fix = "it does not know TORCH_COMPILE_OVERRIDE_BACKENDS", "triage a recorded run instead"
            raise EnvironmentLackError("this torch cannot run a script under another backend", why, fix)
        row = LegRow(name, OK, leg.exit_code, leg.seconds, graphs=leg.graphs)
        self._judge(row, leg, cut=left <= self._limit_s(), limit=limit)
        self.rows.append(row)
        self.told(f"{name}: {row.verdict}{f' ({row.reason})' if row.reason else ''}, {leg.seconds:.1f} s")

    def _limit_s(self) -> float:
        if self.limit_s is not None:
            return self.limit_s
        eager = self.legs.get("eager")
        return self.max_time_s if eager is None else SLOWER * eager.seconds + COMPILING_S

    def _stopped(self) -> str:
        eager = next((row for row in self.rows if row.leg == "eager"), None)
        if eager is None:
            return ""
        if eager.record.undecided:
            return "eager itself cannot be judged"
        return "torch.compile was never called" if eager.graphs == 0 else ""

    def _judge(self, row: LegRow, leg: Leg, *, cut: bool, limit: float) -> None:
        eager = self.legs["eager"]
        if leg.hang and (cut or leg.name.startswith("eager")):
            row.record = cannot_tell(f"{limit:.0f} s were not enough (see {'--max-time' if cut else '--limit'})")
        elif leg.hang:
            row.record = fails("hang", leg.name, f"still running after {limit:.0f} s, eager took {eager.seconds:.0f} s")
        elif leg is eager:
            if leg.exit_code:
                row.record = cannot_tell(f"eager itself ends with code {leg.exit_code}: {leg.stderr_end[:160]}")
        elif leg.exit_code != eager.exit_code:
            reason = f"exit code {leg.exit_code}: {leg.stderr_end[:200]}"
            again, kind = leg.name == "eager again", "signal" if leg.exit_code > 128 else "crash"
            row.record = cannot_tell(reason) if again else fails(kind, leg.name, reason)
        elif leg.name != "eager again":
            self._compare(row, leg)

    def _compare(self, row: LegRow, leg: Leg) -> None:
        again = self.legs.get("eager again", self.legs["eager"])
        found = self.compared[leg.name] = departures(self.legs["eager"].stdout, again.stdout, leg.stdout)
        if found.first is not None:
            row.line, row.expected, row.got = found.first.line, found.first.expected, found.first.got
            reason = f"line {row.line}: {found.first.text[:100]!r} where eager has {row.expected:g}"
            row.record = fails("nan" if found.first.is_nan else "wrong_numbers", leg.name, reason)
        elif found.compared == 0:
            row.record = Verdict("ok", reason="it prints no number that could be compared")


def _folder(output: Path | None) -> Path:
    """A folder of our own that was not there before."""
    if output is not None:
        try:
            output.mkdir(parents=True)
        except FileExistsError as error:
            raise UsageError(
                f"{output} exists", "what is there is never overwritten", "give another name to -o"
            ) from error
        return output
    for number in count(1):
        path = Path(f"graphdbg-triage-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError


def _concluded(found: ScriptTriage, work: _Work) -> ScriptTriage:
    failing = next((row for row in found.rows if row.failed), None)
    found.first_failing = failing.leg if failing is not None else None
    recording = f"graphdbg dump --inputs last -- {shlex.join(found.command)}"
    eager = found.rows[0]
    found.notes = _notes(work)
    if eager.record.undecided:
        found.summary = f"Nothing can be judged: {eager.reason}."
    elif eager.graphs == 0:
        found.summary = "torch.compile was never called by this command, so there is nothing to compare."
    elif failing is not None:
        right = [
            row.leg
            for row in found.rows[: found.rows.index(failing)]
            if row.record.verdict == "ok" and row.leg != "eager again"
        ]
        agree = f"{' and '.join(right)} agree; " if len(right) > 1 else ""
        found.summary = f"{agree}{_named(failing.leg)} {_departs(failing)}. {_meaning(failing.leg)}"
        found.next = f"{recording}; graphdbg triage RUN"
    else:
        compared = max((one.compared for one in work.compared.values()), default=0)
        done = [row.leg for row in found.rows if row.record.verdict == "ok" and row.leg != "eager again"]
        nothing = "the command prints no number that could be compared"
        numbers = f", {counted(compared, 'number')} compared" if compared else f"; {nothing}"
        found.summary = f"{', '.join(done)} agree: same exit code{numbers}."
        left = [row.leg for row in found.rows if row.record.verdict == "cannot_tell"]
        if left:
            found.summary += f" Not judged: {', '.join(left)}."
        found.next = f"{recording}; graphdbg triage RUN"
    record = failing.record if failing is not None else eager.record if eager.record.undecided else OK
    found.record = record.then(recording if found.next else "")
    return found


def _named(leg: str) -> str:
    return "the script as written (Inductor, unless it names another backend)" if leg == "as written" else leg


def _departs(row: LegRow) -> str:
    if row.line is not None:
        return f"departs at line {row.line} ({row.got:g} where eager has {row.expected:g}), beyond what two eager runs differ by"
    return f"hangs ({row.reason})" if row.record.kind == "hang" else f"ends with {row.reason}"


def _meaning(leg: str) -> str:
    return {
        "aot_eager": "The fault is in AOTAutograd: tracing, functionalisation, fake tensors.",
        "aot_eager_decomp_partition": "The fault is in a decomposition or in the partitioner.",
        "as written": "The fault is in the compiler behind them: passes, lowering, generated code, CUDA graphs.",
    }.get(leg, "")


def _notes(work: _Work) -> list[str]:
    notes = ["only the last leg has the mode and options of the script's torch.compile"]
    compiled = [leg for leg in work.legs.values() if leg.name in ("aot_eager_decomp_partition", "as written")]
    if any(leg.graphs is not None for leg in compiled):
        notes.append("the compiled legs draw eager's random numbers (fallback_random)")
    elif compiled:
        notes.append("nothing is known of what the compiled legs did, so random numbers may differ from eager's")
    noisy = sorted({place for one in work.compared.values() for place in one.noisy})
    if noisy:
        notes.append(f"eager itself differs from run to run at: {'; '.join(place[:60] for place in noisy[:4])}")
    eager = work.legs.get("eager")
    if eager is not None and (lines := nan_lines(eager.stdout)):
        notes.append(f"eager itself prints NaN, first in line {lines[0][0]}: {lines[0][1][:80]}")
    return notes
