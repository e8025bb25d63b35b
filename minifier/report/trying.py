"""Finds the plainest program that shows a failure, by running programs in fresh processes, and counts how often it shows it.

Must not write anything but the note of what was seen (`memo`), and must not guess which program fails.

>>> search(case, saved, 3, Redactor(), say).runs.rate
'3 of 3 fresh processes'
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dumps.program import sizes
from ...dumps.program.case import Case
from ...dumps.program.repro import Script
from ...dumps.redact import Redactor
from ...dumps.schema import TensorValue
from ...dumps.store import SavedGraph
from ...toolkit.imports import homes_of
from ...toolkit.isolation import ForkServer, programs
from ...toolkit.isolation.cache import toolchain_seed
from . import environment, layers, plain_program, verify
from .candidates import candidates, fixed, marked
from .memo import Memo, key_of


@dataclass(frozen=True)
class Found:
    """The chosen program and its runs."""

    script: Script
    runs: verify.Verification
    layers: dict[str, int]


@contextlib.contextmanager
def beginning(saved: SavedGraph) -> Generator[ForkServer | None]:
    """Starts, while something else goes on, the processes that `search` will need; None for a graph on a GPU."""
    values = [node.value for node in saved.record.graph.nodes if node.op == "placeholder"]
    if any(isinstance(value, TensorValue) and value.device != "cpu" for value in values):
        yield None
        return
    with programs() as bare:
        yield bare


def search(
    case: Case, saved: SavedGraph, times: int, redactor: Redactor, narrate: Callable[[str], None],
    bare: ForkServer | None = None,
) -> Found:  # fmt: skip
    """Runs candidates, plainest first, until one shows the failure; of that one `times` runs are done.

    `bare`: where programs begin; made here where none is given. Raises CannotExpressError where there is no program.
    """
    how: dict[str, Any] = {"seed": toolchain_seed(), "path": homes_of(case.imports)}
    with contextlib.ExitStack() as stack:
        begin = bare or stack.enter_context(beginning(saved))
        return _search(case, saved, times, redactor, narrate, how | {"bare": begin})


def _search(
    case: Case, saved: SavedGraph, times: int, redactor: Redactor, narrate: Callable[[str], None], how: dict[str, Any]
) -> Found:
    versions = environment.versions_text()
    first: Found | None = None
    for script in _attempts(case):
        if first and script.loose and first.runs.trials[-1].code == verify.GONE:
            continue  # it runs through: the exception's text is not what stands in the way
        key = key_of(script.text, script.sidecar, versions)
        known = Memo.read(saved.path, key) if saved.run is None else None
        with tempfile.TemporaryDirectory(prefix="graphdbg-report-") as folder:
            program = lay_down(script, Path(folder), redactor)
            narrate(f"running a repro that enters through {script.entry} with {script.way} inputs, in a fresh process")
            known = known or Memo(key=key, codes=[])
            runs, codes = _runs(script, program, times, known, how)
            found = Found(script, runs, codes)
            if runs.trials[0].code == verify.BUG:
                found = _narrowed(found, times, redactor, narrate, how)
                if found.script is not script:
                    key = key_of(found.script.text, found.script.sidecar, versions)
                if saved.run is None:
                    Memo(key=key, codes=[one.code for one in found.runs.trials], layers=found.layers).write(saved.path)
                return found
        first = first or found
    assert first is not None, "candidates() yields one program or raises"
    return first


def _narrowed(
    found: Found, times: int, redactor: Redactor, narrate: Callable[[str], None], how: dict[str, Any]
) -> Found:
    """The same failure with fixed sizes or with fewer dynamic ones, where the program shows it so; else what was found."""
    plain = fixed(found.script)
    if plain is None:
        return found
    narrate("does it need dynamic sizes? Running it with fixed ones, in a fresh process")
    tried = _trial(plain, times, redactor, how)
    if tried.runs.trials[0].code == verify.BUG:
        return tried
    for script in marked(found.script, needed=tried.runs.trials[0].code == verify.GONE):
        assert script.sizing is not None
        narrate(f"running it with {sizes.listing(script.sizing.marks)} dynamic, in a fresh process")
        tried = _trial(script, times, redactor, how)
        if tried.runs.trials[0].code == verify.BUG:
            return tried
    return found


def plain_of(
    case: Case, found: Found, saved: SavedGraph, out: Path, redactor: Redactor, times: int, narrate: Callable[[str], None],
    bare: ForkServer | None = None,
) -> plain_program.PlainProgram:  # fmt: skip
    """The plain form of the chosen program, written into `out` where it is seen to fail the same way."""
    how: dict[str, Any] = {"seed": toolchain_seed(), "path": homes_of(case.imports)}
    with contextlib.ExitStack() as stack:
        begin = None if _needs_its_own_start(found.script) else bare or stack.enter_context(beginning(saved))
        how["bare"] = begin
        return plain_program.write(case, found.script, saved, out, redactor, times=times, narrate=narrate, how=how)


def _trial(script: Script, times: int, redactor: Redactor, how: dict[str, Any]) -> Found:
    with tempfile.TemporaryDirectory(prefix="graphdbg-report-") as folder:
        runs, codes = _runs(script, lay_down(script, Path(folder), redactor), times, Memo(key="", codes=[]), how)
    return Found(script, runs, codes)


def _runs(
    script: Script, program: Path, times: int, known: Memo, how: dict[str, Any]
) -> tuple[verify.Verification, dict[str, int]]:
    """`times` runs, those known from earlier counted, and what the stock backends give. One run where that one shows nothing.

    All begin at once, as the cores allow: mostly the first program shows the failure.
    """
    if _needs_its_own_start(script):
        how = how | {"bare": None}
    stop = threading.Event()
    ask = script.entry == "torch.compile" and not known.layers
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool, verify.ending(stop):
        runs = [
            pool.submit(verify.run_once, program, stop=stop, **how) for _ in range(max(1, times - len(known.codes)))
        ]
        probing = (
            pool.submit(layers.probe, program, stop=stop, path=how["path"], bare=how["bare"]) if ask else None
        )
        first = runs[0].result()
        if first.code != verify.BUG:
            stop.set()
            for run in runs:
                run.cancel()
            return verify.Verification((first,)), {}
        trials = [first, *(run.result() for run in runs[1:])]
        earlier = [verify.Trial(code, "", 0.0) for code in known.codes]
        return verify.Verification((*trials, *earlier)), probing.result() if probing else known.layers


def _needs_its_own_start(script: Script) -> bool:
    """Whether a program must not begin where torch is imported already: a GPU, or settings that the import reads."""
    return any(word in script.text for word in ("cuda", "xpu", "os.environ"))


def _attempts(case: Case) -> Iterator[Script]:
    """The candidates; for a crash each one also without asking for the exception's text, right after itself."""
    for script in candidates(case):
        yield script
        if case.failure.kind == "crash" and script.part:
            yield script.without_part()


def lay_down(script: Script, folder: Path, redactor: Redactor) -> Path:
    """Writes a program, and the file beside it where it has one; returns its path."""
    program = folder / "repro.py"
    program.write_text(redactor.text(script.text), encoding="utf-8")
    if script.sidecar is not None:
        program.with_suffix(".safetensors").write_bytes(script.sidecar)
    return program
