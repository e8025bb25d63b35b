"""Finds the plainest program that shows a failure, by running programs in fresh processes, and counts how often that
program shows it. One of these runs begins with nothing imported, as a user's does.

From the plainest to the most faithful: `torch.compile`, Inductor's inner compiler, the entry where the recording was
taken; each with seeded inputs before recorded ones. The chosen program must end with 0 when it is run with
--without-fault. Exit codes of earlier processes are kept beside the case, so that `report` after `minify` need not ask
again. Nothing but that memo is written, which program fails is never guessed, and no torch is imported.

For example:

    [(script.entry, script.way) for script in candidates(case)]
    # [('torch.compile', 'seeded'), ('compile_fx_inner', 'seeded'), ('as recorded', 'seeded')]
    with asking(case, saved, 3, Redactor(), say) as asked:
        search(case, asked).runs.rate
    # '3 of 3 fresh processes'
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shlex
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from ...dumps import opening, trust
from ...dumps.atomic import write_file
from ...dumps.hints import numbers
from ...dumps.pack.redact import Redactor
from ...dumps.program import repro
from ...dumps.program.case import Off, Registered, ReproFacts
from ...dumps.program.entering import (
    CHECKED_BY,
    ENTERS,
    RUNG,
    Entry,
    Stand,
    entries_of,
    plain_change,
    sources,
    stands_for,
)
from ...dumps.program.inputs import Way
from ...dumps.program.repro import MOST_LINES, Script, Sizing, script_of
from ...dumps.program.text import CannotExpressError
from ...dumps.relocate import relocated
from ...dumps.schema import TensorValue
from ...dumps.store import SavedGraph
from ...toolkit.isolation import ForkServer, fresh, programs
from ...toolkit.isolation.cache import toolchain_seed
from ...toolkit.isolation.imports import homes_of
from ...toolkit.isolation.processes import owned
from ...toolkit.isolation.wall import PARTS
from . import custom_ops, environment, verify

DEVICE = "cuda"
MEMO = "repro.json"


@dataclass(frozen=True)
class ReportRuns:
    """What all runs of a report share. `how`: arguments of `fresh.run_command`; `versions`: what they run on; `until`:
    from that time on no other program is tried."""

    saved: SavedGraph
    times: int
    redactor: Redactor
    narrate: Callable[[str], None]
    how: dict[str, Any]
    versions: str
    until: float = math.inf

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.until

    def for_program(self, text: str) -> dict[str, Any]:
        """The `how` of a program; one that needs a GPU, or settings that are read on import, cannot begin where torch
        is already imported."""
        own = any(word in text for word in ("cuda", "xpu", "os.environ"))
        return self.how | {"bare": None} if own else self.how


@dataclass(frozen=True)
class ChosenProgram:
    """The chosen program and its runs; `layers`: its exit codes under each stock backend; `without`: a run without the
    fault."""

    script: Script
    runs: verify.Verification
    layers: dict[str, int]
    without: fresh.FreshRun | None = None

    @property
    def shows(self) -> bool:
        """Whether the first run showed the failure."""
        return self.runs.trials[0].code == fresh.BUG

    @property
    def settled(self) -> bool:
        """Whether the process that imports everything itself also showed it; a flaky failure need not."""
        rate, alone = self.script.case.rate, self.runs.trials[-1].code == fresh.BUG
        return self.shows and (alone or (rate is not None and rate.flaky))


@contextlib.contextmanager
def beginning(saved: SavedGraph, given: bool) -> Generator[ForkServer | None]:
    """Starts, while other work goes on, the processes that `search` will need; None for a graph on a GPU. `given`:
    whether the command was given --trust."""
    values = [node.value for node in saved.record.graph.nodes if node.op == "placeholder"]
    if any(isinstance(value, TensorValue) and value.device != "cpu" for value in values):
        yield None
        return
    with programs(wall_for(saved, given)) as bare:
        yield bare


def wall_for(saved: SavedGraph, given: bool) -> Collection[str] | None:
    """The wall around programs of a graph; None where the user recorded it here, or trusts it."""
    return None if given or trust.trusted(saved.path) else PARTS


@contextlib.contextmanager
def asking(
    case: ReproFacts,
    saved: SavedGraph,
    times: int,
    redactor: Redactor,
    narrate: Callable[[str], None],
    bare: ForkServer | None = None,
    until: float = math.inf,
) -> Generator[ReportRuns]:
    """Yields how programs of the case are run; one that shows the failure is run `times` times. `bare`: the server
    where they begin; started here where there is none."""
    with beginning(saved, case.trust) if bare is None else contextlib.nullcontext(bare) as begin:
        seed, wall = toolchain_seed(), wall_for(saved, case.trust)
        how = {"seed": seed, "path": homes_of(case.imports) if case.imports else [], "bare": begin, "wall": wall}
        yield ReportRuns(saved, times, redactor, narrate, how, environment.versions_text(), until)


# -- the programs
# ----------------------------------------------------------------------------------------------------------------


def candidates(case: ReproFacts) -> Iterator[Script]:
    """Programs worth trying, plainest first; raises CannotExpressError when the graph has no plain form at all."""
    case = on_gpu(case)
    ways: list[Way] = ["seeded"] if case.read is None else ["seeded", "literal"]
    seen: set[str] = set()
    ops = _own_ops(case)
    bare = replace(case, imports=(), ops=ops)  # without the modules; custom operators registered in the program
    forms = [bare, *([case] if case.imports else [])] if ops is not None or not case.needs_imports else [case]
    if case.failure.kind in ("hang", "slow"):  # a slow machine shows those too: what the module does is seen beside it
        forms.reverse()
    if case.record.graph.subgraphs and not case.record.shape_env.get("allow_scalar_outputs", True):
        forms += [replace(form, whole=False) for form in forms]  # passes trace the graphs inside again
    for stand in stands_for(case.rung):
        for entry in entries_of(case, stand):
            for way in ways:  # with imports as soon as the same program without them has not shown it
                alike = zip_longest(*(_entered(form, entry, way, stand) for form in forms))
                for script in filter(None, chain.from_iterable(alike)):
                    if script.text not in seen:
                        seen.add(script.text)
                        yield script


def _own_ops(case: ReproFacts) -> Registered | None:
    """Registrations of the graph's custom operators; None where there are none, or where they have to be imported."""
    try:
        return custom_ops.registered(case.record, case.record.definitions if case.trust else ())
    except CannotExpressError:
        if not case.imports:
            raise
        return None


def _entered(case: ReproFacts, entry: Entry, way: Way, stand: Stand) -> Iterator[Script]:
    """The entry with all sizes dynamic, then with only those that were recorded as symbols."""
    yield script_of(case, entry, way, stand=stand)
    sizing = repro.recorded(case.record, numbers(case.record, case.inputs)) if entry == "torch.compile" else None
    if sizing is not None:
        yield script_of(case, entry, way, sizing, stand=stand)


def fixed(script: Script) -> Script | None:
    """The program with fixed sizes; None for one that has them, or that does not enter through torch.compile."""
    case = script.case
    has = script.sizing is not None and not script.sizing.marks
    if has or script.entry != "torch.compile" or not case.record.symbols:
        return None
    return script.like(sizing=Sizing()) if repro.symbolic_dims(case.record, numbers(case.record, case.inputs)) else None


def marked(script: Script, *, needed: bool) -> Iterator[Script]:
    """The program with few dimensions dynamic, then with more. `needed`: with fixed sizes it was seen to pass."""
    for sizing in repro.narrower(script.case.record, numbers(script.case.record, script.case.inputs)):
        yield script.like(sizing=replace(sizing, needed=needed))


def on_gpu(case: ReproFacts) -> ReproFacts:
    """The case with its CPU tensors moved to the GPU, for the rung on Triton's interpreter; any other unchanged.

    Stock torch cannot interpret Inductor's kernels, so the program runs them. Where it was written there may be no GPU;
    then it says that it cannot tell, and nobody has seen it fail.
    """
    if case.rung != RUNG:
        return case
    inputs = relocated(case.inputs, "cpu", DEVICE) if case.inputs is not None else None
    return replace(case, record=relocated(case.record, "cpu", DEVICE), inputs=inputs)


# -- running them
# ----------------------------------------------------------------------------------------------------------------


class Memo(msgspec.Struct, kw_only=True):
    """Kept exit codes of a program's processes, and those under each stock backend.

    A memo holds only for the very same program on the very same machine set-up: its key is a hash of both. Any other
    one, or a damaged one, is as if there were none; `report` still runs the program once more itself.
    """

    key: str
    codes: list[int | None] = []
    without: int | None = None
    layers: dict[str, int] = {}

    @classmethod
    def of(cls, script: Script, saved: SavedGraph, versions: str) -> Memo:
        """The memo in the case folder if it is about that program, else an empty one."""
        digest = hashlib.blake2b(digest_size=20)
        for part in (script.text.encode(), script.sidecar or b"", versions.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
        key = digest.hexdigest()
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            memo = msgspec.json.decode(opening.read(saved.path / MEMO), type=cls)
            if memo.key == key and saved.run is None:
                return memo
        return cls(key=key)


def search(case: ReproFacts, asked: ReportRuns) -> ChosenProgram:
    """Runs candidates, plainest first, until one shows the failure and, without the fault, does not; of that one
    `times` runs are done. Where none does both, it is the first that shows it.

    Raises CannotExpressError where there is no program.
    """
    versions, saved = asked.versions, asked.saved
    first = shown = None
    for script in candidates(offs(case)[0]):
        if first is not None and asked.late:
            other = f"graphdbg report {shlex.quote(str(saved.path))} tries other ways to write it"
            asked.narrate(f"the time was over (--max-time) before a repro showed it: {other}")
            break
        beside = f" and {', '.join(script.case.modules)} imported" if script.case.imports else ""
        beside += "" if script.case.whole else " without fullgraph=True"
        asked.narrate(
            f"running a repro that enters {_entering(script)} with {script.way} inputs{beside}, in a fresh process"
        )
        candidate = tried(script, asked, Memo.of(script, saved, versions))
        if candidate.settled:
            candidate = candidate if asked.late else _switched(_narrowed(candidate, asked), asked)
            shown = shown or candidate
            if candidate.without is not None and candidate.without.code == fresh.GONE:
                shown = candidate
                break
        first = candidate if first is None or candidate.runs.shown > first.runs.shown else first
    if shown is None:
        assert first is not None, "candidates() yields one program or raises"
        return first
    if saved.run is None:
        memo = Memo.of(shown.script, saved, versions)
        memo.codes, memo.layers = [trial.code for trial in shown.runs.trials], shown.layers
        memo.without = shown.without.code if shown.without else None
        write_file(saved.path / MEMO, msgspec.json.encode(memo) + b"\n")
    return shown


def _entering(script: Script) -> str:
    """How the program enters, and what stands for the rung, in words."""
    if script.case.checked:
        return f"through `{CHECKED_BY}`"
    stands = [script.stand.mode, *([script.stand.backend] if not script.stand.is_inductor else [])]
    named = ", ".join(stand for stand in stands if stand)
    return ENTERS[script.entry] + (f", {named}" if named else "")


def offs(case: ReproFacts) -> list[ReproFacts]:
    """The case with each choice of what --without-fault does, the likeliest first."""
    changes, config = plain_change(case.workaround), case.record.config
    planted = case.imports or sources(case) or any("TESTING" in name for values in config.values() for name in values)
    may: dict[Off, object] = {"left out": planted and case.leaves_out, "work-around": changes, "eager": True}
    return [replace(case, off=kind, workaround=changes) for kind, wanted in may.items() if wanted]


def _switched(chosen: ChosenProgram, asked: ReportRuns) -> ChosenProgram:
    """The program with --without-fault so chosen that it then ends with 0; unchanged where no choice does that."""
    if chosen.without is not None and chosen.without.code == fresh.GONE:
        return chosen
    script = chosen.script
    for case in offs(replace(script.case, off="eager")):
        if case.off == script.case.off:
            continue
        other = script.like(case=replace(script.case, off=case.off, workaround=case.workaround))
        if other.text == script.text or other.text.count("\n") > max(MOST_LINES, script.text.count("\n") + MORE_LINES):
            continue
        asked.narrate("running it without the fault in another way, in a fresh process")
        if _without(other, asked).code == fresh.GONE and (again := tried(other, asked)).settled:
            return again
    return chosen


WITHOUT = "--without-fault"
MORE_LINES = 2
"""Lines that a long program may have more of, to include what --without-fault does."""


def _without(script: Script, asked: ReportRuns) -> fresh.FreshRun:
    """Runs a program once, without the fault."""
    with owned("graphdbg-report-") as folder:
        program = lay_down(script, folder, asked.redactor)
        return fresh.run_once(program, WITHOUT, **asked.for_program(script.text))


def _narrowed(chosen: ChosenProgram, asked: ReportRuns) -> ChosenProgram:
    """The program with fixed sizes or with fewer dynamic ones, where that shows the same failure; else the given
    program."""
    plain = fixed(chosen.script)
    if plain is None:
        return chosen
    asked.narrate("does it need dynamic sizes? Running it with fixed ones, in a fresh process")
    seen = tried(plain, asked)
    if seen.settled:
        return seen
    for script in marked(chosen.script, needed=seen.runs.trials[0].code == fresh.GONE):
        assert script.sizing is not None
        asked.narrate(f"running it with {repro.listing(script.sizing.marks)} dynamic, in a fresh process")
        seen = tried(script, asked)
        if seen.settled:
            return seen
    return chosen


def tried(script: Script, asked: ReportRuns, known: Memo | None = None) -> ChosenProgram:
    """Runs a program as often as is asked for (once where the time is over), less the runs known from earlier, and
    under the stock backends for their exit codes. Stops after one run that does not show the failure.

    All begin at once, as the cores allow: mostly the first program shows the failure.
    """
    known = known or Memo(key="")
    how, stop = asked.for_program(script.text), threading.Event()
    alone = "subprocess" not in script.text  # what a probe puts in the place of torch.compile does not reach a child
    ask = script.entry == "torch.compile" and not (known.layers or script.case.checked) and alone
    with (
        owned("graphdbg-report-") as folder,
        ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool,
        fresh.ending(stop),
    ):
        program = lay_down(script, folder, asked.redactor)
        missing = 1 if asked.late else max(1, asked.times - len(known.codes))
        whole: dict[str, Any] = how | {"bare": None} if missing > 1 else how  # one imports all by itself
        begins = [*[how] * (missing - 1), whole]
        runs = [pool.submit(fresh.run_once, program, stop=stop, **begin) for begin in begins]
        probing = pool.submit(verify.probe, program, stop=stop, **how | {"seed": None}) if ask else None
        switched = pool.submit(fresh.run_once, program, WITHOUT, stop=stop, **how) if known.without is None else None
        first = runs[0].result()
        if first.code != fresh.BUG:
            stop.set()
            for run in (*runs, *filter(None, (probing, switched))):
                run.cancel()
            return ChosenProgram(script, verify.Verification((first,)), {})
        trials = [first, *(fresh.FreshRun(code, "", 0.0) for code in known.codes), *(run.result() for run in runs[1:])]
        without = switched.result() if switched else fresh.FreshRun(known.without, "", 0.0)
        layers = probing.result() if probing else known.layers
        return ChosenProgram(script, verify.Verification(tuple(trials)), layers, without)


def lay_down(script: Script, folder: Path, redactor: Redactor) -> Path:
    """Writes a program, and the file beside it if it has one; returns its path."""
    return written_at(folder / "repro.py", redactor.text(script.text), script.sidecar)


def written_at(program: Path, text: str, sidecar: bytes | None) -> Path:
    """Writes the text of a program, and the file beside it if it has one; returns its path."""
    program.write_text(text, encoding="utf-8")
    if sidecar is not None:
        program.with_suffix(".safetensors").write_bytes(sidecar)
    return program
