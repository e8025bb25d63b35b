"""`program.py`: the failure as a person writes it in a bug report. Inputs, a function, `torch.compile`, and the line that fails.

It is written only where it was seen to fail the same way in each of several fresh processes, and to end well with the function
itself in place of the compiled one. Everything else gives a sentence why there is none. Must not claim what no run has shown.

>>> done = write(case, script, saved, Path("out"), redactor, times=3)                  # doctest: +SKIP
>>> done.path, done.reason
(PosixPath('out/program.py'), '')
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dumps.errors import GraphdbgError
from ...dumps.program.case import Case
from ...dumps.program.endings import LEAST_S, limit_s, telling_part
from ...dumps.program.plain import Ending, endings, program_text
from ...dumps.program.repro import Script
from ...dumps.program.text import CannotExpressError
from ...dumps.redact import Redactor
from ...dumps.store import SavedGraph
from ...dumps.wording import counted
from ...toolkit.imports import with_trust
from . import plain_names, verify

NAME = "program.py"
MOST_NODES = 16
"""Computing nodes of a graph that a person would write down."""


@dataclass(frozen=True)
class PlainProgram:
    """Where it was written, or why it was not."""

    path: Path | None
    reason: str = ""
    lines: int = 0


def write(
    case: Case, script: Script, saved: SavedGraph, out: Path, redactor: Redactor, *, times: int,
    narrate: Callable[[str], None], how: dict[str, Any],
) -> PlainProgram:  # fmt: skip
    """Tries the plain forms of a failure that `script` was seen to show; `how`: of `verify.run_once`."""
    try:
        _refuse(case, script)
        return _tried(script.case, script, saved, out, redactor, times, narrate, how)
    except GraphdbgError as error:
        return PlainProgram(None, str(error))


def _refuse(case: Case, script: Script) -> None:
    """What has no plain program."""
    nodes = sum(node.op.startswith("call_") for node in case.record.graph.nodes)
    if script.entry != "torch.compile":
        raise CannotExpressError("it fails behind AOTAutograd only, where a plain program does not enter")
    if case.only_compiled:
        raise CannotExpressError("eager mode cannot run this graph here")
    if case.rate is not None and case.rate.flaky:
        raise CannotExpressError("the failure is flaky, so that one run of a plain program shows nothing")
    if nodes > MOST_NODES:
        raise CannotExpressError(f"the graph has {counted(nodes, 'operation')}; minify it first")


def _tried(
    case: Case, script: Script, saved: SavedGraph, out: Path, redactor: Redactor, times: int,
    narrate: Callable[[str], None], how: dict[str, Any],
) -> PlainProgram:  # fmt: skip
    names = plain_names.ask(saved.path, with_trust(case.imports, case.trust), **how) if saved.run is None else set[str]()
    last = ""
    for number, (ending, plain) in enumerate((one, plain) for plain in ((names, set[str]()) if names else (names,))
                                             for one in endings(case)):  # fmt: skip
        text = redactor.text(program_text(case, script, ending, plain))
        control = redactor.text(program_text(case, script, ending, plain, compiled=False))
        narrate(f"running a plain program that ends with {ending.what}, in a fresh process")
        with tempfile.TemporaryDirectory(prefix="graphdbg-report-") as folder:
            shown, told = _shown(case, ending, text, control, Path(folder), times, how)
        if shown:
            path = out / NAME
            path.write_text(text, encoding="utf-8")
            return PlainProgram(path, "", text.count("\n"))
        last = last or told if number else told
    return PlainProgram(None, last or "no plain form of this kind of failure is known")


def _shown(
    case: Case, ending: Ending, text: str, control: str, folder: Path, times: int, how: dict[str, Any]
) -> tuple[bool, str]:
    """Whether all runs fail the same way and the one without torch.compile ends well; if not, what was seen."""
    (folder / NAME).write_text(text, encoding="utf-8")
    (folder / "control").mkdir()
    (folder / "control" / NAME).write_text(control, encoding="utf-8")
    limit = (limit_s(case.failure) + LEAST_S) if ending.death == "hang" else verify.LIMIT_S
    trials = verify.run_many(folder / NAME, 1, limit_s=limit, **how)
    if fails_so(case, ending, trials[0]):
        trials += verify.run_many(folder / NAME, times - 1, limit_s=limit, **how)
    for number, trial in enumerate(trials, 1):
        if not fails_so(case, ending, trial):
            end = "over the time limit" if trial.code is None else f"exit code {trial.code}"
            return False, f"a plain program did not show it in run {number} of {times} ({ending.what}: {end})"
    if ending.control:
        trial = verify.run_once(folder / "control" / NAME, limit_s=verify.LIMIT_S, **how)
        if trial.code != 0:
            return False, f"a plain program fails without torch.compile, too ({ending.what})"
    return True, ""


def fails_so(case: Case, ending: Ending, trial: verify.Trial) -> bool:
    """Whether one run ended as the failure says."""
    if ending.death == "hang":
        return trial.code is None and ending.marker in trial.output
    if ending.death:
        number = int(getattr(signal, ending.death, signal.SIGSEGV))
        return trial.code in (-number, 128 + number) and ending.marker in trial.output
    if trial.code != 1:
        return False
    last = list(_raised(trial.output))
    if ending.error:
        part = telling_part(case.failure.message, case.failure.raw)
        return any(ending.error in line for line in last) and part in trial.output
    return any(line.startswith("AssertionError") for line in last)


def _raised(output: str) -> Iterator[str]:
    """The lines of a traceback that are not indented: what was raised."""
    yield from (line for line in output.splitlines() if line and not line.startswith((" ", "Traceback")))
