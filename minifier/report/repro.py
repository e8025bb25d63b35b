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
from . import custom_ops, dynamic, only_compiled, templates
from .case import Case
from .checks import PART, check_blocks, constant_block
from .dynamic import Sizing
from .environment import package_version
from .groups import group_lines
from .program import CannotExpressError, Program, dotted, program_of, quoted
from .settings import CONFIG_MODULES, ambient_lines, config_lines, inner_kwargs, random_lines
from .values import Source, Way, sidecar_bytes, slots_of, source_of

Entry = Literal["torch.compile", "compile_fx_inner"]

BACKENDS = {
    "inductor": "inductor",
    "nop": "aot_eager",
    "debug_nop": "aot_eager",
    "decomposed": "aot_eager_decomp_partition",
}
"""The stock backend that a rung stands for, as far as torch has one."""

_WIDTH = 100

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
    program = program_of(case.record)
    entries: list[Entry] = ["torch.compile"]
    if case.rung == "inductor" and not case.grad and case.record.stage != "joint":
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
    settings, notes = config_lines(record.config)
    ambient = ambient_lines(case)
    blocks = [
        constant_block(case),
        case.ops.block if case.ops else "",
        _configure([*settings, *random_lines(case), *ambient, *group_lines(record)[0]]),
        program.source,
        _inputs(source, [slot.name for slot in slots]),
        templates.STORED.strip() if source.file else "",
        _compiled(case, entry, sizing, [slot.name for slot in slots]),
        *check_blocks(case, entry),
    ]
    body = _configured("\n\n\n".join(block for block in blocks if block), case.failure.kind)
    ending = 'if __name__ == "__main__":\n'
    if "def child(" in body:
        ending += '    if sys.argv[1:] == ["child"]:\n        sys.exit(child())\n'
    elif case.failure.kind in ("signal", "hang"):
        ending += '    if sys.argv[1:] == ["child"]:\n        configure()\n'
        ending += "        run(compiled, make_inputs())\n        sys.exit(0)\n"
    ending += "    sys.exit(main())\n"
    gap = ["", ""] if body.startswith(("def ", "@", "class ")) else [""]
    text = "\n".join(
        [
            _docstring(case, entry, source, notes, sizing),
            _imports(body, program, case.imports, case.ops.imports if case.ops else ()),
            *gap,
            body,
            "",
            "",
            ending,
        ]
    )
    return Script(text, sidecar_bytes(source.file) if source.file else None, entry, way, source.seeded, tuple(notes),
                  case=case, sizing=sizing)  # fmt: skip


def _docstring(case: Case, entry: Entry, source: Source, notes: Sequence[str], sizing: Sizing | None) -> str:
    record, failure = case.record, case.failure
    torch = record.versions.get("torch") or package_version("torch") or "of unknown version"
    shown = _plain(case.telling or failure.kind, 160)
    where = "" if entry == "torch.compile" else f" (entered through {entry})"
    lines = [
        f"{SENTENCES.get(failure.kind, 'torch.compile fails')}: repro for stage {record.stage}, rung {case.rung}{where}.",
        "",
        *_sizes_told(case, sizing),
        f"Shows: {_plain(failure.error, 80) + ': ' if failure.error else ''}{shown}",
        f"Seen on torch {_plain(torch, 40)}. {_plain(case.made, 200)}".rstrip(),
    ]
    if source.file:
        lines.append("Needs repro.safetensors (recorded input values) beside it.")
    if case.only_compiled:
        lines.append("Only compiles: where it was found, eager cannot run this graph. Nothing is run.")
    if failure.stage == "eager":
        lines.append("It is the same in eager mode: an operator fails by itself.")
    if case.imports:
        lines.append(f"Needs {_plain(', '.join(case.imports), 160)} where Python finds it (PYTHONPATH).")
    lines += [_plain(sentence, 200) for sentence in (*(case.ops.told if case.ops else ()), *group_lines(record)[1])]
    lines += [f"Left out: {_plain(note, 160)}" for note in notes]
    lines += ["Exit code: 1 while the bug is there, 0 when it is gone, 2 when this program cannot tell."]
    return '"""' + "\n".join(lines) + '\n"""\n'


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
    used = [name for name in ("json", "math", "operator", "resource", "subprocess") if re.search(rf"\b{name}\.", body)]
    used += ["sys", *(["time"] if "time." in body else []), "traceback"]
    modules = {*program.imports, *(one for one in CONFIG_MODULES.values() if f"{one}." in body)}
    plain = {f"import {name}" for name in used} | {one for one in of_ops if _root(one) not in ("torch", "numpy")}
    inside = {"import torch", *(f"import {module}" for module in modules)} | {one for one in of_ops if one not in plain}
    if "Path(" in body:
        plain.add("from pathlib import Path")
    if "TorchDispatchMode" in body:
        inside.add("from torch.utils._python_dispatch import TorchDispatchMode")
        inside.add("from torch.utils._pytree import tree_map")
    lines = [*sorted(plain, key=_order), "", "try:", *(f"    {one}" for one in sorted(inside, key=_order))]
    lines += [f"    import {dotted(module, 'the module')}  # registers ops, or changes torch" for module in own]
    return "\n".join([*lines, "finally:", f"    {templates.HOOK}"])


def _root(statement: str) -> str:
    """The package of an import statement."""
    return statement.split()[1].partition(".")[0]


def _order(statement: str) -> tuple[bool, str]:
    """As linters sort imports: those of modules first."""
    return statement.startswith("from"), statement.split()[1]


def _configure(lines: Sequence[str]) -> str:
    return "\n".join(["def configure():", *(f"    {line}" for line in lines or ["pass"])])


def _configured(text: str, kind: str) -> str:
    """The settings where they are made, in a program that makes them in one place; the function that makes them in any other."""
    found = re.search(r"^def configure\(\):\n((?:    .*\n)+)\n\n", text, re.MULTILINE)
    calls = list(re.finditer(r"^( *)configure\(\)\n", text, re.MULTILINE))
    if found is None or len(calls) != 1 or kind in ("signal", "hang"):
        return text
    lines = [] if found[1] == "    pass\n" else textwrap.dedent(found[1]).splitlines()
    settings = "".join(f"{calls[0][1]}{line}\n" for line in lines)
    return (text[: calls[0].start()] + settings + text[calls[0].end() :]).replace(found[0], "", 1)


def _inputs(source: Source, names: Sequence[str]) -> str:
    lines = ["def make_inputs():"]
    if source.seeded:
        lines.append("    torch.manual_seed(0)")
    if source.file:
        lines.append("    stored = load()")
    lines += [f"    {statement}" for statement in source.statements]
    short = f"    return [{', '.join(source.expressions)}]"
    if len(short) <= _WIDTH:
        return "\n".join([*lines, short])
    lines.append("    return [")
    lines += [f"        {text},  # {name}" for text, name in zip(source.expressions, names, strict=True)]
    return "\n".join([*lines, "    ]"])


def _compiled(case: Case, entry: Entry, sizing: Sizing | None, names: list[str]) -> str:
    if entry == "torch.compile":
        backend = BACKENDS.get(case.rung)
        if backend is None:
            raise CannotExpressError(
                f"no repro can be written for the rung {case.rung!r}", "stock torch has no backend of that name"
            )
        options = ["fullgraph=True", f"dynamic={bool(case.record.symbols)}"]
        if sizing is not None:
            options[1:] = [] if sizing.marks else ["dynamic=False"]
        marks = "".join(f"    {line}\n" for line in sizing.lines(names)) if sizing is not None else ""
        if backend != "inductor":
            options.insert(0, f"backend={quoted(backend)}")
        if case.only_compiled:
            if backend != "inductor":
                raise CannotExpressError(
                    "no repro can be written for a graph that cannot be run", f"the rung is {case.rung}"
                )
            return only_compiled.COMPILED.strip().replace("@MARKS@", marks).replace("@OPTIONS@", ", ".join(options))
        return templates.COMPILED.strip().replace("@MARKS@", marks).replace("@OPTIONS@", ", ".join(options))
    tracing = "symbolic" if case.record.symbols else "real" if case.only_compiled else "fake"
    return (
        (only_compiled if case.only_compiled else templates)
        .COMPILED_INNER.strip()
        .replace("@TRACING@", tracing)
        .replace("@KWARGS@", inner_kwargs(case.record.compile_kwargs))
    )
