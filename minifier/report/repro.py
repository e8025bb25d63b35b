"""Writes `repro.py`: one program with torch alone that exits 1 while the bug is there, 0 when it is gone, 2 when it can't tell.

`candidates` yields programs from the plainest to the most faithful: plain `torch.compile` before Inductor's inner compiler,
seeded inputs before recorded ones. Which of them fails is found by running them (`verify`), never guessed. Must not import torch.

>>> script = next(candidates(saved, failure, rung="inductor"))
>>> script.text.splitlines()[0]
'\"\"\"torch.compile gives a wrong result: repro for stage forward, rung inductor.'
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...dumps.hints import numbers
from ...dumps.kernel_text import INTERPRETED
from . import custom_ops, dynamic, only_compiled, templates, until_shown
from .case import Case
from .checks import PART, against_float64, checks, filled, has_float_dtype, is_random, told_apart
from .dynamic import Sizing
from .environment import package_version
from .groups import group_lines
from .on_gpu import RUNG, SENTENCE, on_gpu
from .program import CannotExpressError, Program, broken, dotted, program_of, quoted, widened
from .settings import CONFIG_MODULES, ambient_lines, config_lines, inner_kwargs, random_lines
from .values import Source, Way, sidecar_bytes, slots_of, source_of

Entry = Literal["torch.compile", "compile_fx_inner"]

BACKENDS = {
    "inductor": "inductor",
    RUNG: "inductor",
    "nop": "aot_eager",
    "debug_nop": "aot_eager",
    "decomposed": "aot_eager_decomp_partition",
}
"""The stock backend that a rung stands for, as far as torch has one."""

_WIDTH = 100
_MOST_LINES = 60
"""Of a program with its inputs written out; a longer one has them all in the file beside it."""

SENTENCES = {
    "crash": "torch.compile fails", "accuracy": "torch.compile gives a wrong result", "nan": "torch.compile gives NaN",
    "metadata": "torch.compile gives other metadata than eager", "hang": "torch.compile does not end",
    "missing_error": "torch.compile does not raise eager's error",
    "signal": "torch.compile kills the process", "memory": "torch.compile needs too much memory", "slow": "torch.compile is slow",
}  # fmt: skip


@dataclass(frozen=True)
class Script:
    """A program, the file that has to lie beside it (None: it stands alone), and how it enters and gets its inputs."""

    text: str
    sidecar: bytes | None
    entry: Entry
    way: Way
    seeded: bool
    notes: tuple[str, ...] = ()
    loose: bool = False
    case: Case | None = None
    """What it was written from."""
    sizing: Sizing | None = None
    """Which sizes are dynamic; None: as many as torch makes so."""

    @property
    def part(self) -> bool:
        """Whether it asks for a part of the exception's text beside its type."""
        return any(line.startswith(PART) and line != f'{PART}""' for line in self.text.splitlines())

    def without_part(self) -> Script:
        """The same program, content with the exception's type."""
        lines = [f'{PART}""' if line.startswith(PART) else line for line in self.text.split("\n")]
        return replace(self, text="\n".join(lines), loose=True)


def candidates(case: Case) -> Iterator[Script]:
    """Programs worth trying, plainest first; raises CannotExpressError when the graph has no plain form at all."""
    case = on_gpu(case)
    program = program_of(case.record)
    entries: list[Entry] = ["torch.compile"]
    inner = case.rung in ("inductor", RUNG) and not case.record.kernels  # make_fx does not take a kernel's call
    if inner and not case.grad and case.record.stage != "joint":
        entries.append("compile_fx_inner")
    ways: list[Way] = ["seeded"]
    stored = [item for item in (case.inputs.inputs if case.inputs else case.record.inputs) if item.stored]
    if case.read is not None and (stored or program.constants):
        ways.append("literal")
    seen: set[str] = set()
    forms = [case] if case.needs_imports or not case.imports else [replace(case, imports=()), case]
    ops = _own_ops(case)
    if ops is not None:
        forms = [replace(case, imports=(), ops=ops), *([case] if case.imports else [])]
    for form in forms:
        for way in ways:
            for entry in entries:
                for script in _entered(form, program, entry, way):
                    if script.text not in seen:
                        seen.add(script.text)
                        yield script


def _own_ops(case: Case) -> custom_ops.Registered | None:
    """Registrations of the graph's custom operators; None where there is none, or where only importing them will do."""
    try:
        return custom_ops.registered(case.record)
    except CannotExpressError:
        if not case.imports:
            raise
        return None


def _entered(case: Case, program: Program, entry: Entry, way: Way) -> Iterator[Script]:
    """With all sizes dynamic, then with those alone that were recorded as symbols."""
    yield script_of(case, program, entry, way)
    sizing = dynamic.recorded(case.record, numbers(case.record, case.inputs)) if entry == "torch.compile" else None
    if sizing is not None:
        yield _sized(case, sizing, way)


def fixed(script: Script) -> Script | None:
    """The same program with fixed sizes; None for one that has them, or that does not enter through torch.compile."""
    case = script.case
    if case is None or script.entry != "torch.compile" or (script.sizing is not None and not script.sizing.marks):
        return None
    return (
        _like(script, case, Sizing()) if dynamic.symbolic_dims(case.record, numbers(case.record, case.inputs)) else None
    )


def marked(script: Script, *, needed: bool) -> Iterator[Script]:
    """The same program with few dimensions dynamic, then with more. `needed`: with fixed sizes it was seen to pass."""
    case = script.case
    if case is None:
        return
    for sizing in dynamic.narrower(case.record, numbers(case.record, case.inputs)):
        yield _like(script, case, replace(sizing, needed=needed))


def _like(script: Script, case: Case, sizing: Sizing) -> Script:
    made = _sized(case, sizing, script.way)
    return made.without_part() if script.loose else made


def _sized(case: Case, sizing: Sizing, way: Way) -> Script:
    inside = replace(case, record=dynamic.sizes_inside(case.record))
    return replace(script_of(inside, program_of(inside.record), "torch.compile", way, sizing), case=case)


def script_of(case: Case, program: Program, entry: Entry, way: Way, sizing: Sizing | None = None) -> Script:
    """One program."""
    record = case.record
    hints = numbers(record, case.inputs)
    slots = slots_of(record, case.inputs, program.constants, grad=case.grad)
    source = source_of(slots, way, case.read, hints)
    names, marks = [slot.name for slot in slots], sizing.lines([slot.name for slot in slots]) if sizing else []
    inputs, sidecar = _inputs(case, source, names, marks)
    settings, notes = config_lines(record.config)
    text, wide = program.source, ""
    if against_float64(case.failure) and has_float_dtype(record):
        text, wide = widened(program)
    compiled, inner = _compiled(case, entry, sizing, more=bool(wide))
    checked = checks(case, compiled, inner=entry != "torch.compile", wide=wide)
    functions = [text, inputs, inner, *checked.functions]
    before = [*settings, *random_lines(case), *ambient_lines(case), *group_lines(record)[0]]
    blocks = [
        case.ops.block if case.ops else "",
        program.kernels.source,
        *(function for function in functions if function),
        "\n".join([*told_apart(case.failure), *before, *checked.body]),
    ]
    body = "\n\n\n".join(block for block in blocks if block)
    gap = ["", ""] if body.startswith(("def ", "@", "class ")) else [""]
    head = _docstring(case, entry, sidecar is not None, notes, sizing)
    imported = _imports(body, program, case.imports, case.ops.imports if case.ops else ())
    whole = until_shown.looped("\n".join([head, imported, *gap, body, ""]), case.rate)
    if way == "literal" and whole.count("\n") > _MOST_LINES and not case.ops:
        return replace(script_of(case, program, entry, "stored", sizing), way=way)
    return Script(whole, sidecar, entry, way, source.seeded, tuple(notes), case=case, sizing=sizing)


def _docstring(case: Case, entry: Entry, sidecar: bool, notes: Sequence[str], sizing: Sizing | None) -> str:
    record, failure = case.record, case.failure
    torch = record.versions.get("torch") or package_version("torch") or "of unknown version"
    shown = _plain(case.telling or failure.kind, 160)
    where = "" if entry == "torch.compile" else f" (by {entry})"
    stage = case.recorded_at or record.stage
    lines = [
        f"{SENTENCES.get(failure.kind, 'torch.compile fails')}: repro for stage {stage}, rung {case.rung}{where}.",
        "",
        *_sizes_told(case, sizing),
        f"Shows: {_plain(failure.error, 80) + ': ' if failure.error else ''}{shown}",
        f"Seen on torch {_plain(torch, 40)}. {_plain(case.made, 200)}".rstrip(),
    ]
    if case.rung == RUNG:
        lines.append(SENTENCE)
    if sidecar:
        lines[-1] += " Needs repro.safetensors (recorded inputs) beside it."
    if case.only_compiled:
        lines.append("Only compiles: where it was found, eager cannot run this graph. Nothing is run.")
    if failure.stage == "eager":
        lines.append("It is the same in eager mode: an operator fails by itself.")
    if case.imports:
        lines.append(f"Needs {_plain(', '.join(case.imports), 160)} where Python finds it (PYTHONPATH).")
    lines += [_plain(sentence, 200) for sentence in (*(case.ops.told if case.ops else ()), *group_lines(record)[1])]
    lines += [f"Left out: {_plain(note, 160)}" for note in notes]
    lines += ["Exit code: 1 while the bug is there, 0 when it is gone, 2 when this program cannot tell."]
    wrapped = [part for line in lines for part in (textwrap.wrap(line, _WIDTH + 18, break_on_hyphens=False) or [""])]
    return '"""' + "\n".join(wrapped) + '"""\n'


def _sizes_told(case: Case, sizing: Sizing | None) -> list[str]:
    """Which sizes are dynamic, where the graph was recorded with such."""
    if not case.record.symbols:
        return []
    if sizing is not None:
        return [_plain(sizing.sentence(), 200)]
    marks = dynamic.symbolic_dims(case.record, numbers(case.record, case.inputs))
    return (
        [_plain(f"{dynamic.listing(tuple(marks))} were symbolic when recorded; all sizes are here.", 300)]
        if marks
        else []
    )


def _plain(text: str, limit: int) -> str:
    """Text that can stand in a docstring: one line, no quotes that end it, no backslashes."""
    flat = " ".join(text.replace("\\", "/").replace('"', "'").split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _imports(body: str, program: Program, own: Sequence[str], of_ops: Sequence[str] = ()) -> str:
    """The imports that the body uses, in the order that linters want, and the user's own modules after torch.

    A torch that does not start must not exit with 1.
    """
    used = ("math", "operator", "resource", "subprocess", "time", "traceback")
    plain = {"import sys", *(f"import {name}" for name in used if re.search(rf"\b{name}\.", body))}
    plain |= {one for one in of_ops if _root(one) not in ("torch", "numpy")}
    plain |= {"from pathlib import Path"} if "Path(" in body else set()
    kernels = program.kernels
    plain |= {"import os"} if kernels.source else set()
    future = ["from __future__ import annotations", ""] if kernels.strings_for_types else []
    modules = {*program.imports, *(one for one in CONFIG_MODULES.values() if f"{one}." in body)}
    inside = {"import torch", *(f"import {module}" for module in modules)} | {one for one in of_ops if one not in plain}
    inside |= {statement for word, statement in only_compiled.IMPORTS.items() if re.search(rf"\b{re.escape(word)}", body)}
    lines = [*future, *sorted(plain, key=_order), "", "try:", *(f"    {one}" for one in sorted(inside, key=_order))]
    lines += [f"    {one}" for one in ([INTERPRETED, *kernels.imports] if kernels.source else [])]
    lines += [f"    import {dotted(module, 'the module')}  # registers ops, or changes torch" for module in own]
    return "\n".join([*lines, "finally:", f"    {templates.HOOK}"])


def _root(statement: str) -> str:
    """The package of an import statement."""
    return statement.split()[1].partition(".")[0]


def _order(statement: str) -> tuple[bool, str]:
    """As linters sort imports: those of modules first."""
    return statement.startswith("from"), statement.split()[1]


def _inputs(case: Case, source: Source, names: Sequence[str], marks: Sequence[str]) -> tuple[str, bytes | None]:
    """The function that makes the inputs, and the file beside the program that it reads.

    It seeds what it draws and what the graph draws after it, so that every run starts alike.
    """
    lines = ["def make_inputs():"]
    if source.seeded or is_random(case.record):
        lines.append("    torch.manual_seed(0)")
    sidecar = sidecar_bytes(source.file) if source.file else None
    if sidecar is not None:
        begin = 8 + int.from_bytes(sidecar[:8], "little")
        spans: dict[str, tuple[int, int]] = {}
        for name, data in source.file.items():
            spans[name], begin = (begin, begin + len(data)), begin + len(data)
        lines.append('    data = bytearray(Path(__file__).with_suffix(".safetensors").read_bytes())')
        items = ", ".join(f'("{name}", {first}, {last})' for name, (first, last) in spans.items())
        one = "torch.frombuffer(data[a:b], dtype=torch.uint8)"
        items += "," if len(spans) == 1 else ""
        lines += broken(f"    stored = {{n: {one} for n, a, b in ({items})}}")
    for statement in source.statements:
        lines += broken(f"    {statement}")
    into = "inputs =" if marks else "return"
    short = f"    {into} [{', '.join(source.expressions)}]"
    if len(short) <= _WIDTH:
        lines.append(short)
    else:
        lines.append(f"    {into} [")
        for text, name in zip(source.expressions, names, strict=True):
            row = f"        {text},  # {name}"
            lines += [row] if len(row) <= _WIDTH + 20 else broken(f"        {text},")
        lines.append("    ]")
    return "\n".join([*lines, *(f"    {mark}" for mark in marks), *(["    return inputs"] if marks else [])]), sidecar


def _compiled(case: Case, entry: Entry, sizing: Sizing | None, *, more: bool = False) -> tuple[str, str]:
    """The compiled function as an expression, and the function that it names, if it does. `more`: the graph has parameters with
    defaults, which make_fx takes for inputs.
    """
    if entry != "torch.compile":
        tracing = "symbolic" if case.record.symbols else "real" if case.only_compiled else "fake"
        text = (only_compiled if case.only_compiled else templates).COMPILED_INNER
        return "compiled", filled(
            text, TRACING=tracing, KWARGS=inner_kwargs(case.record.compile_kwargs),
            FUNCTION="lambda *given: graph(*given)" if more else "graph",
        )  # fmt: skip
    backend = BACKENDS.get(case.rung)
    if backend is None:
        raise CannotExpressError(
            f"no repro can be written for the rung {case.rung!r}", "stock torch has no backend of that name"
        )
    options = ["fullgraph=True", f"dynamic={dynamic.varying(case.record)}"]
    if sizing is not None:
        options[1:] = [] if sizing.marks else ["dynamic=False"]
    if backend != "inductor":
        options.insert(0, f"backend={quoted(backend)}")
    if case.only_compiled:
        if backend != "inductor":
            raise CannotExpressError(
                "no repro can be written for a graph that cannot be run", f"the rung is {case.rung}"
            )
        options.insert(0, "backend=backend")
    return f"torch.compile(graph, {', '.join(options)})", ""
