"""The text of `repro.py`: one program with torch alone that exits 1 while the bug is there, 0 when it is gone, 2 if unsure.

Which of the programs fails is found by running them (minifier.report), never guessed. Must not import torch.

>>> script = script_of(case, "torch.compile", "seeded")
>>> script.text.splitlines()[0]
'\"\"\"torch.compile gives a wrong result: repro for stage forward, rung inductor.'
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..hints import numbers
from . import sizes
from .case import Case, Rate
from .endings import ending_of
from .function import Program, program_of
from .inputs import Source, Way, inputs_of, sidecar_bytes
from .settings import inner_kwargs, sources, state_of
from .sizes import Sizing
from .text import CannotExpressError, blocks, broken, dotted, gap_before, indented, items, quoted

Entry = Literal["torch.compile", "compile_fx_inner"]

RUNG = "triton_interpret"
"""Inductor's Triton kernels on Triton's interpreter: what fails there is written as a program for the GPU that they are for."""

BACKENDS = {
    "inductor": "inductor",
    RUNG: "inductor",
    "eager": "eager",
    "nop": "aot_eager",
    "debug_nop": "aot_eager",
    "decomposed": "aot_eager_decomp_partition",
}
"""The stock backend that a rung stands for, as far as torch has one."""

_HOOK = "sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the bug alone"
_WIDTH = 100
_MOST_LINES = 60
"""Of a program with its inputs written out; a longer one has them all in the file beside it."""


@dataclass(frozen=True)
class Script:
    """A program, the file that has to lie beside it (None: it stands alone), and how it enters and gets its inputs."""

    text: str
    sidecar: bytes | None
    entry: Entry
    way: Way
    seeded: bool
    case: Case
    """What it was written from."""
    notes: tuple[str, ...] = ()
    sizing: Sizing | None = None
    """Which sizes are dynamic; None: as many as torch makes so."""
    part: str = ""
    """The part of the exception's text that it asks for beside its type."""
    loose: bool = False
    """Whether it is content with the exception's type."""

    def without_part(self) -> Script:
        """The same program, content with the exception's type."""
        return script_of(self.case, self.entry, self.way, self.sizing, loose=True)


def script_of(case: Case, entry: Entry, way: Way, sizing: Sizing | None = None, *, loose: bool = False) -> Script:
    """One program. `loose`: it asks for no part of the exception's text."""
    made = replace(case, record=sizes.sizes_inside(case.record)) if sizing is not None else case
    script = _script(made, entry, way, sizing, loose=loose)
    if way == "literal" and script.text.count("\n") > _MOST_LINES and not case.ops:
        script = replace(_script(made, entry, "stored", sizing, loose=loose), way=way)
    return replace(script, case=case)


def _script(case: Case, entry: Entry, way: Way, sizing: Sizing | None, *, loose: bool) -> Script:
    program = program_of(case.record, wide=case.against_float64 and case.facts.names_float)
    slots, source = inputs_of(case, program.constants, way)
    inputs, sidecar = _inputs(case, source, [slot.name for slot in slots], sizing)
    compiled, inner = _compiled(case, entry, sizing, wide=bool(program.wide))
    ending = ending_of(case, compiled, inner=entry != "torch.compile", wide=program.wide, loose=loose)
    state, notes, told = state_of(case)
    body = blocks(
        *[one.program.strip() for one in sources(case)],
        case.ops.block if case.ops else "",
        program.kernels.source,
        program.source,
        inputs,
        inner,
        *ending.functions,
        [*ending.expected, *state, *ending.lines],
    )
    loop = until_shown(case.rate) if case.rate is not None and case.rate.flaky else []
    text = "\n".join([
        *_head(case, entry, sidecar is not None, notes, told, sizing),
        *_imports(case, program, "\n".join([*loop, body])),
        *(["", *loop] if loop else []),
        *gap_before(body),
        body,
        "",
    ])  # fmt: skip
    return Script(text, sidecar, entry, way, source.seeded, case, tuple(notes), sizing, ending.part, loose)


def _head(
    case: Case, entry: Entry, sidecar: bool, notes: Sequence[str], told: Sequence[str], sizing: Sizing | None
) -> list[str]:
    """The docstring."""
    record, failure = case.record, case.failure
    torch = record.versions.get("torch") or case.torch or "of unknown version"
    shown = _one_line(case.telling or failure.kind, 160)
    where = "" if entry == "torch.compile" else f" (by {entry})"
    stage = case.recorded_at or record.stage
    lines = [
        f"{case.happens}: repro for stage {stage}, rung {case.rung}{where}.",
        "",
        *_sizes_told(case, sizing),
        f"Shows: {_one_line(failure.error, 80) + ': ' if failure.error else ''}{shown}",
        *([flaky_sentence(case.rate)] if case.rate is not None and case.rate.flaky else []),
        f"Seen on torch {_one_line(torch, 40)}. {_one_line(case.made, 200)}".rstrip(),
    ]
    if case.rung == RUNG:
        lines.append("Found with Inductor's Triton kernels on Triton's interpreter, with no GPU; it needs one of NVIDIA's.")
    if sidecar:
        lines[-1] += " Needs repro.safetensors (recorded inputs) beside it."
    if case.only_compiled:
        lines.append("Only compiles: where it was found, eager cannot run this graph. Nothing is run.")
    if failure.stage == "eager":
        lines.append("It is the same in eager mode: an operator fails by itself.")
    if case.imports:
        lines.append(f"Needs {_one_line(', '.join(case.imports), 160)} where Python finds it (PYTHONPATH).")
    lines += [_one_line(sentence, 200) for sentence in (*(case.ops.told if case.ops else ()), *told)]
    lines += [f"Left out: {_one_line(note, 160)}" for note in notes]
    lines += ["Exit code: 1 while the bug is there, 0 when it is gone, 2 when this program cannot tell."]
    wrapped = [part for line in lines for part in (textwrap.wrap(line, _WIDTH + 18, break_on_hyphens=False) or [""])]
    return ['"""' + "\n".join(wrapped) + '"""', ""]


def _sizes_told(case: Case, sizing: Sizing | None) -> list[str]:
    """Which sizes are dynamic, where the graph was recorded with such."""
    if not case.record.symbols:
        return []
    if sizing is not None:
        return [_one_line(sizing.sentence(), 200)]
    marks = sizes.symbolic_dims(case.record, numbers(case.record, case.inputs))
    told = f"{sizes.listing(tuple(marks))} were symbolic when recorded; all sizes are here."
    return [_one_line(told, 300)] if marks else []


def _one_line(text: str, limit: int) -> str:
    """Text that can stand in a docstring: one line, no quotes that end it, no backslashes."""
    flat = " ".join(text.replace("\\", "/").replace('"', "'").split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def flaky_sentence(rate: Rate, subject: str = "This program") -> str:
    """How flaky it is and what the program does about it."""
    most = rate.repeats()
    return f"Flaky: {rate} runs failed where it was found. {subject} makes fresh ones until one does, {most} at most."


def _imports(case: Case, program: Program, body: str) -> list[str]:
    """What the body uses, and the user's own modules after torch. A torch that does not start must not exit with 1."""
    first, plain, inside = program.imported(f"{body}\n{_HOOK}", case.ops.imports if case.ops else ())
    own = [f"import {dotted(module, 'the module')}  # registers ops, or changes torch" for module in case.imports]
    return [*first, *plain, "", "try:", *indented([*inside, *own]), "finally:", f"    {_HOOK}"]


def until_shown(rate: Rate) -> list[str]:
    """A loop right behind the imports: the program runs itself in fresh processes until one shows a flaky failure.

    Each run is a process of its own with the caches of graphs off: what compiled once without it would hide it from the next.
    """
    return [
        f"RUNS = {rate.repeats()}  # fresh processes that are tried",
        "if not sys.argv[1:]:",
        '    codes, without = [], {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}',
        "    while 1 not in codes and len(codes) < RUNS:",
        '        codes.append(subprocess.run([sys.executable, __file__, "once"], env=os.environ | without).returncode)',
        "    print(f\"{'BUG: shown' if 1 in codes else 'not shown'} by run {len(codes)} of {RUNS}\")",
        "    sys.exit(1 if 1 in codes else max(codes))",
    ]


def _inputs(case: Case, source: Source, names: Sequence[str], sizing: Sizing | None) -> tuple[list[str], bytes | None]:
    """The function that makes the inputs, and the file beside the program that it reads.

    It seeds what it draws and what the graph draws after it, so that every run starts alike.
    """
    lines = ["def make_inputs():"]
    if source.seeded or case.facts.is_random:
        lines.append("    torch.manual_seed(0)")
    sidecar = sidecar_bytes(source.file) if source.file else None
    if sidecar is not None:
        begin = 8 + int.from_bytes(sidecar[:8], "little")
        spans: list[str] = []
        for name, data in source.file.items():
            spans.append(f'("{name}", {begin}, {begin + len(data)})')
            begin += len(data)
        lines.append('    data = bytearray(Path(__file__).with_suffix(".safetensors").read_bytes())')
        one = "torch.frombuffer(data[a:b], dtype=torch.uint8)"
        lines += broken(f"    stored = {{n: {one} for n, a, b in {items(spans)}}}")
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
    lines += [f"    torch._dynamo.mark_dynamic(inputs[{names.index(name)}], {at})  # {name}" for name, at in dims.items()]
    return [*lines, *(["    return inputs"] if dims else [])], sidecar


def _compiled(case: Case, entry: Entry, sizing: Sizing | None, *, wide: bool) -> tuple[str, list[str]]:
    """The compiled function as an expression, and the function that it names, if it does. `wide`: the graph has parameters with
    defaults, which make_fx takes for inputs.
    """
    if entry != "torch.compile":
        return "compiled", _by_inner_compiler(case, "lambda *given: graph(*given)" if wide else "graph")
    backend = BACKENDS.get(case.rung)
    if backend is None:
        raise CannotExpressError(
            f"no repro can be written for the rung {case.rung!r}", "stock torch has no backend of that name"
        )
    options = ["fullgraph=True", f"dynamic={_varying(case)}"]
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
    return f"torch.compile(graph, {', '.join(options)})", []


def _varying(case: Case) -> bool:
    """Whether some size was open when the graph was recorded; one that is known only as it runs (u0) is so in any case."""
    return any(not symbol.name.startswith(("u", "zuf")) for symbol in case.record.symbols)


def _by_inner_compiler(case: Case, function: str) -> list[str]:
    """The function `compiled` that enters behind AOTAutograd."""
    tracing = "symbolic" if case.record.symbols else "real" if case.only_compiled else "fake"
    kwargs = inner_kwargs(case.record.compile_kwargs)
    head = ["def compiled(*inputs):", f'    gm = make_fx({function}, tracing_mode="{tracing}")(*inputs)']
    if case.only_compiled:
        return [
            *head,
            f'    compile_fx_inner(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]{kwargs})',
            '    print("gone: it compiles; it is not run")',
            "    sys.exit(0)",
        ]
    return [
        *head,
        '    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]',
        f"    return compile_fx_inner(gm, fakes{kwargs})(list(inputs))",
    ]
