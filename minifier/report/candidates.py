"""Programs that may show a failure, from the plainest to the most faithful: `torch.compile` before Inductor's inner compiler,
seeded inputs before recorded ones.

Which of them fails is found by running them (`verify`), never guessed. Must not import torch.

>>> [(script.entry, script.way) for script in candidates(case)]                        # doctest: +SKIP
[('torch.compile', 'seeded'), ('compile_fx_inner', 'seeded')]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...dumps.hints import numbers
from ...dumps.program import sizes
from ...dumps.program.case import Case, Registered
from ...dumps.program.function import program_of
from ...dumps.program.inputs import Way
from ...dumps.program.repro import RUNG, Entry, Script, script_of
from ...dumps.program.sizes import Sizing
from ...dumps.program.text import CannotExpressError
from ...dumps.relocate import relocated
from . import custom_ops

DEVICE = "cuda"


def candidates(case: Case) -> Iterator[Script]:
    """Programs worth trying, plainest first; raises CannotExpressError when the graph has no plain form at all."""
    case = on_gpu(case)
    constants = program_of(case.record).constants
    entries: list[Entry] = ["torch.compile"]
    inner = case.rung in ("inductor", RUNG) and not case.record.kernels  # make_fx does not take a kernel's call
    if inner and not case.facts.grad and case.record.stage != "joint":
        entries.append("compile_fx_inner")
    ways: list[Way] = ["seeded"]
    stored = [item for item in (case.inputs.inputs if case.inputs else case.record.inputs) if item.stored]
    if case.read is not None and (stored or constants):
        ways.append("literal")
    seen: set[str] = set()
    forms = [case] if case.needs_imports or not case.imports else [replace(case, imports=()), case]
    ops = _own_ops(case)
    if ops is not None:
        forms = [replace(case, imports=(), ops=ops), *([case] if case.imports else [])]
    for form in forms:
        for way in ways:
            for entry in entries:
                for script in _entered(form, entry, way):
                    if script.text not in seen:
                        seen.add(script.text)
                        yield script


def _own_ops(case: Case) -> Registered | None:
    """Registrations of the graph's custom operators; None where there is none, or where only importing them will do."""
    try:
        return custom_ops.registered(case.record)
    except CannotExpressError:
        if not case.imports:
            raise
        return None


def _entered(case: Case, entry: Entry, way: Way) -> Iterator[Script]:
    """With all sizes dynamic, then with those alone that were recorded as symbols."""
    yield script_of(case, entry, way)
    sizing = sizes.recorded(case.record, numbers(case.record, case.inputs)) if entry == "torch.compile" else None
    if sizing is not None:
        yield script_of(case, entry, way, sizing)


def fixed(script: Script) -> Script | None:
    """The same program with fixed sizes; None for one that has them, or that does not enter through torch.compile."""
    case = script.case
    if script.entry != "torch.compile" or (script.sizing is not None and not script.sizing.marks):
        return None
    return _like(script, Sizing()) if sizes.symbolic_dims(case.record, numbers(case.record, case.inputs)) else None


def marked(script: Script, *, needed: bool) -> Iterator[Script]:
    """The same program with few dimensions dynamic, then with more. `needed`: with fixed sizes it was seen to pass."""
    for sizing in sizes.narrower(script.case.record, numbers(script.case.record, script.case.inputs)):
        yield _like(script, replace(sizing, needed=needed))


def _like(script: Script, sizing: Sizing) -> Script:
    return script_of(script.case, "torch.compile", script.way, sizing, loose=script.loose)


def on_gpu(case: Case) -> Case:
    """The same case with what lies on the CPU moved to the GPU, for the rung on Triton's interpreter; any other as it is.

    Stock torch cannot interpret Inductor's kernels, so the program runs them. Where it was written there may be no GPU; then it
    says that it cannot tell, and nobody has seen it fail.
    """
    if case.rung != RUNG:
        return case
    inputs = relocated(case.inputs, "cpu", DEVICE) if case.inputs is not None else None
    return replace(case, record=relocated(case.record, "cpu", DEVICE), inputs=inputs)
