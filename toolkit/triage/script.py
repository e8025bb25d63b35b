"""A user's script under each backend in turn, compared by exit code and by the numbers that it prints.

eager runs twice: what differs between the two says nothing. Only the last leg is the script as it was written; the others lose
the mode and options of their `torch.compile`, since torch has no other way to override a backend
(TORCH_COMPILE_OVERRIDE_BACKENDS). Legs that compile with Inductor's tables draw random numbers as eager does. What a leg prints
is kept in files; one that takes too long is killed with everything that it started. Imports no torch.

>>> triage_script(["train.py"]).first_failing
'as written'
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.atomic import free_path
from ...dumps.errors import EnvironmentLackError, UsageError
from ...dumps.wording import counted
from ..recorder import launch
from ..recorder.summary import shown_path
from ..verdict import OK, Verdict, cannot_tell, fails, skipped
from ..verdict_words import word
from . import leg as inside
from .texts import Comparison, departures, nan_lines

LEGS = ("eager", "eager again", "aot_eager", "aot_eager_decomp_partition", "as written")
"""In order; "eager again" shows what differs from run to run by itself."""

_GRACE_S = 3.0


class Leg(msgspec.Struct):
    """One run of the command. `exit_code` is that of the shell (128 + signal); `hang`: it was killed when its time was over.

    `graphs`: how many Dynamo compiled (None: no process lived to say so); `overridden`: torch knows how to override backends.
    """

    name: str
    folder: Path
    exit_code: int
    seconds: float
    hang: bool = False
    graphs: int | None = None
    overridden: bool = True

    @property
    def stdout(self) -> str:
        """What it printed."""
        return (self.folder / f"{self.file_name}.stdout").read_text(errors="replace")

    @property
    def stderr_end(self) -> str:
        """The last line of its stderr that says anything."""
        text = (self.folder / f"{self.file_name}.stderr").read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line and not line.startswith(("File ", "raise "))]
        return (errors or lines or [""])[-1]

    @property
    def file_name(self) -> str:
        """Its name in the folder."""
        return self.name.replace(" ", "-")


def environment(name: str) -> dict[str, str]:
    """What a leg's environment has beyond the user's own."""
    backend = {"eager again": "eager", "as written": ""}.get(name, name)
    chosen = {"TORCH_COMPILE_OVERRIDE_BACKENDS": f">=0:{backend}"} if backend else {}
    return chosen | ({inside.RANDOM_VARIABLE: "1"} if name in ("aot_eager_decomp_partition", "as written") else {})


def run_leg(name: str, command: Sequence[str], folder: Path, limit_s: float) -> Leg:
    """Runs the command to its end, or to the end of its time. KeyboardInterrupt ends the leg and goes on up."""
    leg = Leg(name, folder, 0, 0.0)
    note = folder / f"{leg.file_name}.note"
    began = time.monotonic()
    outputs = [(folder / f"{leg.file_name}.{stream}").open("wb") for stream in ("stdout", "stderr")]
    kept = {
        key: value for key, value in os.environ.items() if key not in ("GRAPHDBG", "TORCH_COMPILE_OVERRIDE_BACKENDS")
    }
    with contextlib.ExitStack() as stack:
        for file in outputs:
            stack.enter_context(file)
        child = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=outputs[0], stderr=outputs[1], start_new_session=True,
            env={**kept, **environment(name), inside.VARIABLE: str(note.absolute()), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            leg.hang, code = True, _end(child)
        except BaseException:
            _end(child)
            raise
    leg.exit_code = code if code >= 0 else 128 - code
    leg.seconds = time.monotonic() - began
    if lines := inside.read(note):
        leg.graphs = sum(line["graphs"] for line in lines)
        using = [line for line in lines if line["graphs"]]
        leg.overridden = all(line["backends"] for line in using)
    note.unlink(missing_ok=True)
    return leg


def _end(child: subprocess.Popen[bytes]) -> int:
    """Ends the child and its whole process group: asked first, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    return child.wait()


DEFAULT_TIME_S = 3600.0
SLOWER = 20.0
"""A compiled leg may take this many times as long as eager, and COMPILING_S more, before it hangs."""

COMPILING_S = 600.0

Told = Callable[[str], object]


class LegRow(msgspec.Struct):
    """One leg; `line` is where it departs from eager."""

    leg: str
    verdict: Verdict = OK
    exit_code: int | None = None
    seconds: float = 0.0
    line: int | None = None
    expected: float | None = None
    got: float | None = None
    graphs: int | None = None

    @property
    def reason(self) -> str:
        """What it is that failed, or why it was skipped, in a sentence."""
        return self.verdict.reason

    @property
    def failed(self) -> bool:
        """Whether it went wrong where eager did not."""
        return self.verdict.failed

    def plain(self) -> dict[str, Any]:
        """Every field as a plain value, for JSON."""
        return msgspec.structs.asdict(self) | self.verdict.flat(row=True)


class ScriptTriage(msgspec.Struct):
    """`rows`: one per leg in order. `folder` holds what each printed. `verdict`: with how to go on; `summary`: the finding.
    """

    rows: list[LegRow]
    command: list[str]
    folder: str
    first_failing: str | None = None
    summary: str = ""
    notes: list[str] = msgspec.field(default_factory=list)
    verdict: Verdict = OK

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return msgspec.structs.asdict(self) | {"rows": [row.plain() for row in self.rows]} | self.verdict.flat()


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
    folder = output or free_path("graphdbg-triage", bare=False)
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise UsageError(f"{folder} exists", "what is there is never overwritten", "give another name to -o") from error
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
        self.told(f"{name}: {word(row.verdict)}{f' ({row.reason})' if row.reason else ''}, {leg.seconds:.1f} s")

    def _limit_s(self) -> float:
        if self.limit_s is not None:
            return self.limit_s
        eager = self.legs.get("eager")
        return self.max_time_s if eager is None else SLOWER * eager.seconds + COMPILING_S

    def _stopped(self) -> str:
        eager = next((row for row in self.rows if row.leg == "eager"), None)
        if eager is None:
            return ""
        if eager.verdict.undecided:
            return "eager itself cannot be judged"
        return "torch.compile was never called" if eager.graphs == 0 else ""

    def _judge(self, row: LegRow, leg: Leg, *, cut: bool, limit: float) -> None:
        eager = self.legs["eager"]
        if leg.hang and (cut or leg.name.startswith("eager")):
            row.verdict = cannot_tell(f"{limit:.0f} s were not enough (see {'--max-time' if cut else '--limit'})")
        elif leg.hang:
            row.verdict = fails("hang", leg.name, f"still running after {limit:.0f} s, eager took {eager.seconds:.0f} s")
        elif leg is eager:
            if leg.exit_code:
                row.verdict = cannot_tell(f"eager itself ends with code {leg.exit_code}: {leg.stderr_end[:160]}")
        elif leg.exit_code != eager.exit_code:
            reason = f"exit code {leg.exit_code}: {leg.stderr_end[:200]}"
            again, kind = leg.name == "eager again", "signal" if leg.exit_code > 128 else "crash"
            row.verdict = cannot_tell(reason) if again else fails(kind, leg.name, reason)
        elif leg.name != "eager again":
            self._compare(row, leg)

    def _compare(self, row: LegRow, leg: Leg) -> None:
        again = self.legs.get("eager again", self.legs["eager"])
        found = self.compared[leg.name] = departures(self.legs["eager"].stdout, again.stdout, leg.stdout)
        if found.first is not None:
            row.line, row.expected, row.got = found.first.line, found.first.expected, found.first.got
            reason = f"line {row.line}: {found.first.text[:100]!r} where eager has {row.expected:g}"
            row.verdict = fails("nan" if found.first.is_nan else "wrong_numbers", leg.name, reason)
        elif found.compared == 0:
            row.verdict = Verdict("ok", reason="it prints no number that could be compared")


def _concluded(found: ScriptTriage, work: _Work) -> ScriptTriage:
    failing = next((row for row in found.rows if row.failed), None)
    found.first_failing = failing.leg if failing is not None else None
    recording = f"graphdbg dump -o triaged --inputs last -- {shlex.join(found.command)}"
    eager = found.rows[0]
    found.notes = _notes(work)
    if eager.verdict.undecided:
        found.summary = f"Nothing can be judged: {eager.reason}."
    elif eager.graphs == 0:
        found.summary = "torch.compile was never called by this command, so there is nothing to compare."
    elif failing is not None:
        right = _agreeing(found.rows[: found.rows.index(failing)])
        agree = f"{' and '.join(right)} agree; " if len(right) > 1 else ""
        found.summary = f"{agree}{_named(failing.leg)} {_departs(failing)}. {_meaning(failing.leg)}"
    else:
        compared = max((one.compared for one in work.compared.values()), default=0)
        nothing = "the command prints no number that could be compared"
        numbers = f", {counted(compared, 'number')} compared" if compared else f"; {nothing}"
        found.summary = f"{', '.join(_agreeing(found.rows))} agree: same exit code{numbers}."
        left = [row.leg for row in found.rows if row.verdict.verdict == "cannot_tell"]
        if left:
            found.summary += f" Not judged: {', '.join(left)}."
    record = failing.verdict if failing is not None else eager.verdict if eager.verdict.undecided else OK
    compared = found.first_failing is not None or (not eager.verdict.undecided and eager.graphs != 0)
    found.verdict = record.then(*([recording, "graphdbg triage triaged"] if compared else []))
    return found


def _agreeing(rows: Sequence[LegRow]) -> list[str]:
    return [row.leg for row in rows if row.verdict.verdict == "ok" and row.leg != "eager again"]


def _named(leg: str) -> str:
    return "the script as written (Inductor, unless it names another backend)" if leg == "as written" else leg


def _departs(row: LegRow) -> str:
    if row.line is not None:
        return f"departs at line {row.line} ({row.got:g} where eager has {row.expected:g}), beyond what two eager runs differ by"
    return f"hangs ({row.reason})" if row.verdict.kind == "hang" else f"ends with {row.reason}"


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
