"""`program.py`: the failure as a person writes it in a bug report. Inputs, a function, `torch.compile`, and the line that fails.

It is written only where it was seen to fail the same way in each of several fresh processes, and to end well with the function
itself in place of the compiled one. Everything else gives a sentence why there is none. Must not claim what no run has shown.

>>> done = write(script, Path("out"), asked)                                           # doctest: +SKIP
>>> done.path, done.reason
(PosixPath('out/program.py'), '')
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dumps.errors import GraphdbgError
from ...dumps.program.case import Case
from ...dumps.program.dying import LEAST_S, limit_s, telling_part
from ...dumps.program.plain import Ending, endings, program_text
from ...dumps.program.repro import Script
from ...dumps.program.text import CannotExpressError
from ...dumps.wording import counted
from ...toolkit.imports import with_trust
from . import verify
from .trying import Asked

NAME = "program.py"
_NAMES = """
import json, sys
from graphdbg.minifier.report.plain_program import spelled
found = json.dumps(sorted(spelled(sys.argv[1], sys.argv[2:])))
with open("answer", "w") as file:
    file.write(found)
"""
MOST_NODES = 16
"""Computing nodes of a graph that a person would write down."""


@dataclass(frozen=True)
class PlainProgram:
    """Where it was written, or why it was not."""

    path: Path | None
    reason: str = ""


def write(script: Script, out: Path, asked: Asked) -> PlainProgram:
    """Tries the plain forms of a failure that `script` was seen to show; one that fails the same way is written into `out`."""
    try:
        _refuse(script)
        return _tried(script, out, asked)
    except GraphdbgError as error:
        return PlainProgram(None, str(error))


def _refuse(script: Script) -> None:
    """What has no plain program."""
    case = script.case
    nodes = sum(node.op.startswith("call_") for node in case.record.graph.nodes)
    if script.entry != "torch.compile":
        raise CannotExpressError("it fails behind AOTAutograd only, where a plain program does not enter")
    if case.only_compiled:
        raise CannotExpressError("eager mode cannot run this graph here")
    if case.rate is not None and case.rate.flaky:
        raise CannotExpressError("the failure is flaky, so that one run of a plain program shows nothing")
    if nodes > MOST_NODES:
        raise CannotExpressError(f"the graph has {counted(nodes, 'operation')}; minify it first")


def _tried(script: Script, out: Path, asked: Asked) -> PlainProgram:
    case, how, redactor = script.case, asked.for_program(script.text), asked.redactor
    names: list[str] = []
    if asked.saved.run is None:
        imports = with_trust(case.imports, case.trust)
        names = verify.answer_of(_NAMES, str(asked.saved.path.resolve()), *imports, **how) or []
    last = ""
    forms = [(ending, plain) for plain in ([set(names), set[str]()] if names else [set[str]()]) for ending in endings(case)]
    for number, (ending, plain) in enumerate(forms):
        text = redactor.text(program_text(case, script, ending, plain))
        control = redactor.text(program_text(case, script, ending, plain, compiled=False))
        asked.narrate(f"running a plain program that ends with {ending.what}, in a fresh process")
        told = _missed(case, ending, text, control, asked.times, how)
        if not told:
            path = out / NAME
            path.write_text(text, encoding="utf-8")
            return PlainProgram(path)
        last = last or told if number else told
    return PlainProgram(None, last or "no plain form of this kind of failure is known")


def _missed(case: Case, ending: Ending, text: str, control: str, times: int, how: dict[str, Any]) -> str:
    """Empty where all runs fail the same way and the one without torch.compile ends well; else what was seen."""
    with tempfile.TemporaryDirectory(prefix="graphdbg-report-") as scratch:
        program, alone = Path(scratch) / NAME, Path(scratch) / "control" / NAME
        alone.parent.mkdir()
        program.write_text(text, encoding="utf-8")
        alone.write_text(control, encoding="utf-8")
        limit = (limit_s(case.failure) + LEAST_S) if ending.death == "hang" else verify.LIMIT_S
        trials = verify.run_many(program, 1, limit_s=limit, **how)
        if fails_so(case, ending, trials[0]):
            trials += verify.run_many(program, times - 1, limit_s=limit, **how)
        for number, trial in enumerate(trials, 1):
            if not fails_so(case, ending, trial):
                end = "over the time limit" if trial.code is None else f"exit code {trial.code}"
                return f"a plain program did not show it in run {number} of {times} ({ending.what}: {end})"
        if ending.control and verify.run_once(alone, **how).code != 0:
            return f"a plain program fails without torch.compile, too ({ending.what})"
        return ""


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


def spelled(folder: str, imports: Sequence[str] = ()) -> set[str]:
    """The names of nodes of a case folder whose call can be written with a function of torch. Each is checked with the values
    that it has in the graph (`torch_names`, `plain_calls`): same bits, same strides, same aten calls when traced.

    It runs the graph eagerly in this process, as far as eager mode gets, and imports torch for that.
    """
    import torch
    from torch import fx

    from ...toolkit.case import Case
    from ...toolkit.eager import GraphRunError, run_graph
    from ...toolkit.imports import import_modules
    from ...toolkit.plain_calls import is_same, plain_of

    import_modules(imports)
    case = Case.at(folder).live()
    found: set[str] = set()
    values: dict[fx.Node, Any] = {}

    def look(node: fx.Node, value: Any) -> Any:
        values[node] = value
        if plain_of(node) is not None:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if is_same(node.target, args, kwargs):
                found.add(node.name)
        return value

    with torch.no_grad(), contextlib.suppress(GraphRunError):
        run_graph(case.gm, case.inputs, hook=look)
    return found
