"""The text of `repro.py`: a program with torch alone that exits 1 while the bug is there, 0 when it is gone, 2 if
unsure.

Which of the programs fails is found by running them (minifier.report), never guessed. Imports no torch.

For example:

    script = script_of(case, "torch.compile", "seeded")
    script.text.splitlines()[0]
    # '\"\"\"torch.compile gives a wrong result: repro for stage forward, rung inductor.'
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..hints import numbers, size
from ..schema import GraphRecord, NodeRecord, SymValue, TensorValue
from ..wording import flat
from .case import Rate, ReproFacts, symbol_homes
from .endings import ending_of
from .entering import ENTERS, RUNG, Entry, Stand, compiled_at, or_eager, state_of
from .function import FunctionText, program_of
from .inputs import InputSource, Way, inputs_of, sidecar_bytes
from .text import CannotExpressError, Lines, blocks, broken, dotted, indented, items, quoted

MOST_SYMBOLS = 4
"""The most symbols that are tried one by one; with more symbols, only all of them together are tried."""


@dataclass(frozen=True)
class MarkedSize:
    """One dimension of an input; `symbol` is its size as recorded."""

    name: str
    dim: int
    symbol: str


@dataclass(frozen=True)
class Sizing:
    """Sizes of a repro: fixed where `marks` is empty, else these dimensions are dynamic. `needed`: the failure was seen
    to vanish with fixed sizes."""

    marks: tuple[MarkedSize, ...] = ()
    needed: bool = False

    def sentence(self) -> str:
        """The sentence for the head of the repro."""
        if not self.marks:
            return "Recorded with symbolic sizes, which it does not need."
        listed = listing(self.marks)
        if self.needed:
            return f"{listed} must be dynamic (mark_dynamic): with fixed sizes the failure is not there."
        return f"{listed} dynamic (mark_dynamic), as recorded."

    def dims(self) -> dict[str, str]:
        """Input -> its dynamic dimensions, in the form of an argument of `mark_dynamic`."""
        dims: dict[str, list[int]] = {}
        for mark in self.marks:
            dims.setdefault(mark.name, []).append(mark.dim)
        return {name: str(own[0] if len(own) == 1 else tuple(own)) for name, own in dims.items()}


def listing(marks: tuple[MarkedSize, ...]) -> str:
    """The marks in words: "x, dimension 0, and w, dimension 1," for several; "x, dimension 0," for one."""
    return " and ".join(f"{mark.name}, dimension {mark.dim}," for mark in marks)


def symbolic_dims(record: GraphRecord, hints: Mapping[str, Any]) -> list[MarkedSize]:
    """The dimensions of inputs that have symbolic sizes and can be marked: a size of 0 or 1 is never dynamic."""
    return [
        MarkedSize(node.name, dim, str(extent))
        for node in record.graph.nodes
        if node.op == "placeholder" and isinstance(node.value, TensorValue)
        for dim, extent in enumerate(node.value.shape)
        if not isinstance(extent, int) and (size(extent, hints) or 0) > 1
    ]


def recorded(record: GraphRecord, hints: Mapping[str, Any]) -> Sizing | None:
    """The sizing with all symbolic dimensions marked; None for a graph without."""
    marks = tuple(symbolic_dims(record, hints))
    return Sizing(marks) if marks else None


def narrower(record: GraphRecord, hints: Mapping[str, Any]) -> list[Sizing]:
    """The sizings to try for a repro that fails with dynamic sizes: the fewest dynamic dimensions first. Empty without
    symbols."""
    marks = symbolic_dims(record, hints)
    if not marks:
        return []
    symbols = list(dict.fromkeys(mark.symbol for mark in marks))
    alone = [tuple(mark for mark in marks if mark.symbol == symbol) for symbol in symbols] if len(symbols) > 1 else []
    chosen = [*(alone if len(symbols) <= MOST_SYMBOLS else []), tuple(marks)]
    return [Sizing(dims) for dims in chosen]


def sizes_inside(record: GraphRecord) -> GraphRecord:
    """The record with inputs that are a size of another input computed from it: as arguments they would be
    constants."""
    nodes = record.graph.nodes
    tensors = [node for node in nodes if not isinstance(node.value, SymValue)]
    homes = symbol_homes(msgspec.structs.replace(record.graph, nodes=tensors))
    inside: list[NodeRecord] = []
    kept: list[NodeRecord] = []
    for node in nodes:
        home = homes.get(node.value.expr) if node.op == "placeholder" and isinstance(node.value, SymValue) else None
        if home is None or home[1] is None:
            kept.append(node)
            continue
        call = {"op": "call_function", "target": "aten.sym_size.int", "args": [{"node": home[0]}, home[1]]}
        inside.append(msgspec.structs.replace(node, **call))
    if not inside:
        return record
    inputs = [node for node in kept if node.op == "placeholder"]
    rest = [node for node in kept if node.op != "placeholder"]
    return msgspec.structs.replace(record, graph=msgspec.structs.replace(record.graph, nodes=[*inputs, *inside, *rest]))


_FLAGS = 'FAULT, UNSURE = "--without-fault" not in sys.argv, 125 if "--git-bisect" in sys.argv else 2'
_HOOK = 'sys.excepthook = lambda t, e, b: (sys.__excepthook__(t, e, b), print(f"cannot tell: {e!r}"), sys.exit(UNSURE))'
_WIDTH = 100
MOST_LINES = 60
"""The most lines of a program with its inputs written out; a longer program has them all in the file beside it."""


@dataclass(frozen=True)
class Script:
    """A program, the file that it needs beside it (None: no file), its entry, and the form of its inputs."""

    text: str
    sidecar: bytes | None
    entry: Entry
    way: Way
    seeded: bool
    case: ReproFacts
    """The data that the program was written from."""
    stand: Stand
    """The replacement for the rung."""
    notes: tuple[str, ...] = ()
    sizing: Sizing | None = None
    """Which sizes are dynamic; None: torch decides."""

    def like(self, *, case: ReproFacts | None = None, sizing: Sizing | None = None) -> Script:
        """Writes the program again with some arguments replaced."""
        return script_of(case or self.case, self.entry, self.way, sizing or self.sizing, stand=self.stand)


def script_of(
    case: ReproFacts, entry: Entry, way: Way, sizing: Sizing | None = None, *, stand: Stand | None = None
) -> Script:
    """Writes one program."""
    sized = replace(case, record=sizes_inside(case.record)) if sizing is not None else case
    stand = stand or Stand()
    if case.off == "left out" and not case.leaves_out:
        case, sized = replace(case, off="eager"), replace(sized, off="eager")
    script = _script(sized, entry, way, sizing, stand)
    if way == "literal" and script.text.count("\n") > MOST_LINES and not case.ops:
        script = replace(_script(sized, entry, "stored", sizing, stand), way=way)
    if case.off == "left out" and "if FAULT:" not in script.text:  # there is nothing to leave out
        return script_of(replace(case, off="eager"), entry, way, sizing, stand=stand)
    return replace(script, case=case)


def _script(case: ReproFacts, entry: Entry, way: Way, sizing: Sizing | None, stand: Stand) -> Script:
    program = program_of(case.record, wide=case.against_float64 and case.facts.names_float)
    slots, source = inputs_of(case, program.constants, way)
    inputs, sidecar = _inputs(case, source, [slot.name for slot in slots], sizing)
    compiled, inner, making = _compiled(case, entry, sizing, stand, program)
    ending = ending_of(case, compiled, inner=entry != "torch.compile", wide=program.wide)
    state = state_of(case, entry, stand)
    settings = [*state.settings, *state.mode]
    changed = bool(case.imports) and stand.is_inductor and not case.needs_imports
    own = ["torch._inductor.config.force_disable_caches = True  # they know nothing of what a module changes"] * changed
    if case.off == "left out" and state.settings:
        settings = ["if FAULT:", *indented(settings)]
    elif case.off == "work-around":
        lines = [line for line in case.workaround.splitlines() if line != "import torch"]  # it has that already
        settings += ["if not FAULT:  # the work-around", *indented(lines)]
    notes, remarks = state.left_out, state.remarks
    body = _blocks(
        *[definition.program.strip() for definition in state.sources],
        case.ops.block if case.ops else "",
        program.kernels.source,
        program.source,
        inputs,
        inner,
        *ending.functions,
        [*ending.expected, *own, *settings, *state.around, *making, *ending.lines],
    )
    loop = until_shown(case.rate) if case.rate is not None and case.rate.flaky else []
    text = "\n".join(
        [
            *_head(case, entry, sidecar is not None, notes, remarks, sizing),
            *_imports(case, program, "\n".join([*loop, body])),
            *(["", *loop] if loop else []),
            "",
            body,
            "",
        ]
    )
    return Script(text, sidecar, entry, way, source.seeded, case, stand, tuple(notes), sizing)


def _blocks(*parts: str | Lines) -> str:
    """Functions and statements with one empty line between them, so that the whole program fits on a screen."""
    return blocks(*parts).replace("\n\n\n", "\n\n")


def _head(
    case: ReproFacts, entry: Entry, sidecar: bool, notes: Sequence[str], remarks: Sequence[str], sizing: Sizing | None
) -> list[str]:
    """The lines of the docstring."""
    record, failure = case.record, case.failure
    torch = record.versions.get("torch") or case.torch or "of unknown version"
    shown = _one_line(case.failure_text or failure.kind, 160)
    where = "" if entry == "torch.compile" else f" (entered {ENTERS[entry]})"
    stage = case.recorded_at or record.stage
    lines = [
        f"{case.happens}: repro for stage {stage}, rung {case.rung}{where}.",
        *_sizes_text(case, entry, sizing),
        f"Shows: {_one_line(failure.error, 80) + ': ' if failure.error else ''}{shown}",
        *([flaky_sentence(case.rate)] if case.rate is not None and case.rate.flaky else []),
        f"Seen on torch {_one_line(torch, 40)}. {_one_line(case.provenance, 200)}".rstrip(),
    ]
    lines[-1] += f" --without-fault: {_off_text(case)}." if case.off != "work-around" else ""
    if case.rung == RUNG:
        lines.append(
            "Found with Inductor's Triton kernels on Triton's interpreter, with no GPU; it needs one of NVIDIA's."
        )
    if sidecar:
        lines[-1] += " Needs repro.safetensors (recorded inputs) beside it."
    if case.only_compiled:
        lines.append("Only compiles: where it was found, eager cannot run this graph. Nothing is run.")
    if failure.stage == "eager":
        lines.append("It is the same in eager mode: an operator fails by itself.")
    if case.imports:
        lines.append(f"Needs {_one_line(', '.join(case.modules), 160)} where Python finds it (PYTHONPATH).")
    lines += [_one_line(sentence, 200) for sentence in (*(case.ops.remarks if case.ops else ()), *remarks)]
    lines += [f"Left out: {_one_line(note, 160)}" for note in notes]
    lines += [f"--without-fault: {_off_text(case)}."] if case.off == "work-around" else []
    lines += [
        "Exit code: 1 while the bug is there, 0 when it is gone, 2 when this program cannot tell (--git-bisect: 125)."
    ]
    wrapped = [part for line in lines for part in (textwrap.wrap(line, _WIDTH + 17, break_on_hyphens=False) or [""])]
    return ['"""' + "\n".join(wrapped) + '"""', ""]


def _off_text(case: ReproFacts) -> str:
    """The effect of --without-fault, in words."""
    if case.off == "eager" and case.failure.stage == "eager":
        return "it cannot tell, for eager mode fails by itself"
    if case.off == "eager":
        return "nothing is compared" if case.checked else "backend eager"
    if case.off == "work-around":
        lines = case.workaround.splitlines()
        return f"with the work-around {_one_line(lines[0], 100) if len(lines) == 1 else 'under `if not FAULT`'}"
    return "without what `if FAULT` guards"


def _sizes_text(case: ReproFacts, entry: Entry, sizing: Sizing | None) -> list[str]:
    """A sentence on the dynamic sizes, where the graph was recorded with symbolic ones."""
    if not case.record.symbols:
        return []
    if sizing is not None:
        return [_one_line(sizing.sentence(), 200)]
    marks = symbolic_dims(case.record, numbers(case.record, case.inputs))
    now = "this compiles with dynamic=True" if entry == "torch.compile" and _varying(case) else "all sizes are here"
    sentence = f"{listing(tuple(marks))} were symbolic when recorded; {now}."
    return [_one_line(sentence, 300)] if marks else []


def _one_line(text: str, limit: int) -> str:
    """Makes a text safe for a docstring: one line, no quotes that end it, no backslashes."""
    return flat(text.replace("\\", "/").replace('"', "'"), limit)


def flaky_sentence(rate: Rate, subject: str = "This program") -> str:
    """A sentence on how flaky the failure is, and how often the program retries."""
    most = rate.repeats()
    return f"Flaky: {rate} runs failed where it was found. {subject} makes fresh ones until one does, {most} at most."


def _imports(case: ReproFacts, program: FunctionText, body: str) -> list[str]:
    """The imports that the body uses, and the user's own modules after torch. A torch that fails to import never exits
    with 1."""
    first, plain, inside = program.imported(f"{body}\n{_HOOK}", case.ops.imports if case.ops else ())
    own = [f"import {dotted(module, 'the module')}  # registers ops, or changes torch" for module in case.modules]
    if own and case.off == "left out" and not case.needs_imports:
        own = ["if FAULT:", *indented(own)]
    return [*first, *plain, "", _FLAGS, "try:", *indented([*inside, *own]), "finally:", f"    {_HOOK}"]


def until_shown(rate: Rate) -> list[str]:
    """A loop right after the imports: the program runs itself in fresh processes until one of them shows a flaky
    failure.

    Each run is its own process with the graph caches off: a compile without the failure would hide it from later runs.
    """
    return [
        f"RUNS = {rate.repeats()}  # fresh processes that are tried",
        'if "once" not in sys.argv:',
        '    codes, without = [], {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}',
        "    while 1 not in codes and len(codes) < RUNS:",
        '        codes.append(subprocess.run([sys.executable, *sys.argv, "once"], env=os.environ | '
        "without).returncode)",
        "    print(f\"{'BUG: shown' if 1 in codes else 'not shown'} by run {len(codes)} of {RUNS}\")",
        "    sys.exit(1 if 1 in codes else next(filter(None, codes), 0))",
    ]


def _inputs(
    case: ReproFacts, source: InputSource, names: Sequence[str], sizing: Sizing | None
) -> tuple[list[str], bytes | None]:
    """The function that returns the inputs, and the file beside the program that it reads.

    It seeds its own random numbers, and those that the graph and the incoming gradients draw later, so that all runs
    are equal.
    """
    lines = [f"def {source.maker}:"]
    tangents = case.facts.wants_backward and case.failure.kind in ("accuracy", "nan")
    if source.seeded or case.facts.is_random or tangents:
        lines.append("    torch.manual_seed(0)")
    sidecar = sidecar_bytes(source.file) if source.file else None
    if sidecar is not None:
        begin = 8 + int.from_bytes(sidecar[:8], "little")
        spans: list[str] = []
        for name, data in source.file.items():
            spans.append(f'("{name}", {begin}, {begin + len(data)})')
            begin += len(data)
        lines.append('    data = bytearray(Path(__file__).with_suffix(".safetensors").read_bytes())')
        tensor_text = "torch.frombuffer(data[a:b], dtype=torch.uint8)"
        lines += broken(f"    stored = {{n: {tensor_text} for n, a, b in {items(spans)}}}")
    for statement in source.statements:
        lines += broken(f"    {statement}")
    dims = sizing.dims() if sizing is not None else {}
    into = "inputs =" if dims else "return"
    short = f"    {into} [{', '.join(source.expressions)}]"
    if len(short) <= _WIDTH:
        lines.append(short)
    else:
        lines.append(f"    {into} [")
        for text, name in zip(source.expressions, names, strict=True):
            row = f"        {text},  # {name}"
            lines += [row] if len(row) <= _WIDTH + 20 else broken(f"        {text},")
        lines.append("    ]")
    lines += [
        f"    torch._dynamo.mark_dynamic(inputs[{names.index(name)}], {at})  # {name}" for name, at in dims.items()
    ]
    return [*lines, *(["    return inputs"] if dims else [])], sidecar


def _compiled(
    case: ReproFacts, entry: Entry, sizing: Sizing | None, stand: Stand, program: FunctionText
) -> tuple[str, Lines, Lines]:
    """The compiled function as an expression, the lines that define it, if needed, and statements that prepare it."""
    making: Lines = []
    if case.off == "eager" and case.failure.stage == "eager":
        making = ["if not FAULT:", '    raise RuntimeError("eager mode fails by itself")']
    eager = case.off == "eager" and not (making or case.checked or case.only_compiled)
    if entry != "torch.compile":
        wide, held = bool(program.wide), len(program.constants)
        inner = compiled_at(case, entry, stand, program.parameters, held, wide=wide)
        return "compiled", *or_eager(inner, making, eager=eager)
    varying = _varying(case) if sizing is None else None if sizing.marks else False
    options = ["fullgraph=True"] * case.whole + ([f"dynamic={varying}"] if varying is not None else [])
    if case.only_compiled:
        if not stand.is_inductor:
            what = "no repro can be written for a graph that cannot be run"
            raise CannotExpressError(what, f"the rung is {case.rung}")
        options.insert(0, "backend=backend")
    elif stand.mode and eager:
        options.insert(0, f'**({{"mode": {quoted(stand.mode)}}} if FAULT else {{"backend": "eager"}})')
    elif eager:
        options.insert(0, f'backend={quoted(stand.backend)} if FAULT else "eager"')
    elif stand.mode or not stand.is_inductor:
        options.insert(0, f"mode={quoted(stand.mode)}" if stand.mode else f"backend={quoted(stand.backend)}")
    whole = f"torch.compile(graph, {', '.join(options)})"
    return ("compiled", [], [*making, f"compiled = {whole}"]) if eager else (whole, [], making)


def _varying(case: ReproFacts) -> bool:
    """Whether some size was symbolic when the graph was recorded; sizes known only at run time (u0) always are, and do
    not count."""
    return any(not symbol.name.startswith(("u", "zuf")) for symbol in case.record.symbols)
