"""Writes the report of one failing graph: finds the plainest program that shows the failure, verifies it, tells it as an issue.

Everything is decided by running programs in fresh processes (`verify`). Must not overwrite anything, and must not claim what
was not seen: a program that does not fail is written with those words in the issue.

>>> report = emit_report(saved, Path("out"), signature=signature, rung="inductor", original=318)
>>> report.rate
'3 of 3 fresh processes'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from ... import __version__
from ...dumps import trust
from ...dumps.atomic import write_file
from ...dumps.dtypes import ITEM_BYTES
from ...dumps.errors import EnvironmentLackError, RefusedError, UsageError
from ...dumps.output import say
from ...dumps.program.case import Case
from ...dumps.program.repro import RUNG, flaky_sentence
from ...dumps.program.text import CannotExpressError
from ...dumps.redact import Redactor
from ...dumps.schema import GraphBody, GraphRecord, SequenceValue, TensorValue
from ...dumps.store import SavedGraph
from ...dumps.walk import bodies
from ...dumps.wording import counted
from ...toolkit.imports import TRUST, without_trust
from ...toolkit.isolation import ForkServer
from ...toolkit.signature import Signature
from ...toolkit.verdict import OK, Verdict, judged
from ...toolkit.verdict_words import happens
from . import artifacts, casefile, environment, issue, layers, plain_program
from .custom_ops import custom_targets, refuse_others
from .trying import Found, lay_down, plain_of, search
from .verify import UNSURE

TIMES = 3


@dataclass
class Report:
    """What was written and how sure it is. `repro` is None when the graph has no plain form (`notes` say why)."""

    out: Path
    issue: Path
    repro: Path | None = None
    artifacts: Path | None = None
    sidecar: Path | None = None
    entry: str = ""
    inputs: str = ""
    shown: int = 0
    times: int = 0
    record: Verdict = OK
    layer: str = ""
    nodes: int = 0
    original_nodes: int | None = None
    notes: list[str] = field(default_factory=list[str])
    python: Path | None = None
    """The plain program, where one was asked for and seen to fail the same way; `python_reason`: why there is none."""
    python_reason: str = ""

    @property
    def verified(self) -> bool:
        """Whether every fresh process showed the bug."""
        return self.times > 0 and self.shown == self.times

    @property
    def rate(self) -> str:
        """How often, in words."""
        return f"{self.shown} of {counted(self.times, 'fresh process')}"

    def as_json(self) -> dict[str, Any]:
        """For --json: paths as text, and the rate in words."""
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return plain | {"rate": self.rate, "verified": self.verified, "record": self.record.plain()}


def emit_report(
    saved: SavedGraph,
    out: Path,
    *,
    signature: Signature,
    rung: str = "inductor",
    original: SavedGraph | int | None = None,
    with_artifacts: bool = False,
    imports: Sequence[str] = (),
    times: int = TIMES,
    narrate: Callable[[str], None] = say,
    bare: ForkServer | None = None,
    trusted: bool = False,
    python: bool = False,
) -> Report:
    """Writes OUT/repro.py (and repro.safetensors when needed), OUT/issue.md and, on demand, OUT/artifacts.zip.

    `signature` is the failure to show, `original` the graph (or its number of nodes) that `saved` was minimised from. `imports`
    are modules to import first, which a repro imports too where it needs them. Takes `times` fresh processes, a few more when the
    plainest program does not fail. `bare`: a server of programs that was started before. `trusted`: the graph was just
    written by us, so that its targets are known to be on the allow-list. `python`: OUT/program.py too, a plain program, where it
    fails the same way. Raises UsageError when a file exists.
    """
    names = ["repro.py", "repro.safetensors", "issue.md", *(["artifacts.zip"] if with_artifacts else []),
             *([plain_program.NAME] if python else [])]  # fmt: skip
    taken = [name for name in names if (out / name).exists()]
    if taken:
        raise UsageError(f"cannot write {out / taken[0]}", "it exists already", "choose another folder with -o")
    given, imports = TRUST in imports, without_trust(imports)
    with trust.granted() if given else nullcontext():
        needed = _needs(saved, imports) if imports else False
        if not trusted or imports:
            _refuse_unknown(saved)
    out.mkdir(parents=True, exist_ok=True)
    record, redactor = saved.record, Redactor()
    nodes = node_count(record.graph)
    before = node_count(original.record.graph) if isinstance(original, SavedGraph) else original
    report = Report(out, out / "issue.md", nodes=nodes, original_nodes=before)
    known = casefile.read(saved.path)
    report.record = (known.record if known and known.rung == rung else None) or judged(signature, rung)
    case = Case(record, saved.inputs_record, _reader(saved), signature, rung, made=_made(nodes, before),
                imports=tuple(imports), needs_imports=needed, trust=given, recorded_at=known.recorded_at if known else "",
                only_compiled=known is not None and known.only_compiled, rate=known.rate if known else None,
                torch=environment.package_version("torch") or "", happens=happens(signature.kind))
    found: Found | None = None
    try:
        found = search(case, saved, times, redactor, narrate, bare)
        if found.script.case.imports:
            report.notes.append(f"repro.py imports {', '.join(case.imports)}, which has to be attached to the issue")
    except (CannotExpressError, RefusedError) as error:
        report.notes.append(f"no repro.py: {error}")
    if found:
        _write_program(report, found, redactor)
        report.layer = layers.sentence(found.layers, rung)
        narrate(f"repro.py shows the failure in {report.rate} (enters through {report.entry}, {report.inputs} inputs)")
    if python:
        _write_plain(report, case, found, saved, redactor, times, narrate, bare)
    facts = _facts(case, report, found)
    facts.tell(known)
    write_file(report.issue, issue.render(facts, redactor).encode())
    if with_artifacts:
        _pack(saved, report, redactor)
    for note in report.notes:
        narrate(note)
    return report


def _refuse_unknown(saved: SavedGraph) -> None:
    """Refuses whatever is off the allow-list: what follows runs the graph's own text as a program, with stand-ins if need be."""
    try:
        saved.module()
    except EnvironmentLackError:
        if not custom_targets(saved.record):
            raise
        refuse_others(saved.record)


def _needs(saved: SavedGraph, imports: Sequence[str]) -> bool:
    """Whether the graph has ops of these modules, which are imported here for that."""
    from ...toolkit.imports import import_modules

    try:
        saved.module()
    except EnvironmentLackError:
        import_modules(imports)
        return bool(imports)
    import_modules(imports)
    return False


def _write_program(report: Report, found: Found, redactor: Redactor) -> None:
    report.repro = lay_down(found.script, report.out, redactor)
    report.sidecar = report.repro.with_suffix(".safetensors") if found.script.sidecar is not None else None
    report.entry, report.inputs = found.script.entry, found.script.way
    report.shown, report.times = found.runs.shown, len(found.runs.trials)
    sizing = found.script.sizing
    report.notes += [sizing.sentence().rstrip(".")] if sizing is not None and sizing.marks else []
    case = found.script.case
    report.notes += list(case.ops.told) if case.ops is not None and case.ops.stands_in else []
    report.notes += [f"left out of repro.py: {note}" for note in found.script.notes]
    report.notes += [flaky_sentence(case.rate, "repro.py")] if case.rate is not None and case.rate.flaky else []
    if case.rung == RUNG and all(trial.code == UNSURE for trial in found.runs.trials):
        report.notes.append("repro.py needs an NVIDIA GPU and there is none here: its kernels failed on Triton's interpreter, "
                            "the program itself was not seen to fail")  # fmt: skip
    elif not report.verified:
        report.notes.append(f"repro.py showed the failure in {report.rate} only: it is no proof by itself")


def _write_plain(
    report: Report, case: Case, found: Found | None, saved: SavedGraph, redactor: Redactor, times: int,
    narrate: Callable[[str], None], bare: ForkServer | None,
) -> None:  # fmt: skip
    """program.py, where it fails as repro.py does; else the reason."""
    if found is None or not report.verified:
        report.python_reason = "no repro.py shows the failure every time, of which it would be the plain form"
    else:
        made = plain_of(case, found, saved, report.out, redactor, times, narrate, bare)
        report.python, report.python_reason = made.path, made.reason
    if report.python:
        narrate(f"{plain_program.NAME} fails the same way in {times} of {counted(times, 'fresh process')}")
    else:
        narrate(f"no {plain_program.NAME}: {report.python_reason}")


def _facts(case: Case, report: Report, found: Found | None) -> issue.Facts:
    failure = case.failure
    program = report.repro.read_text(encoding="utf-8") if report.repro else ""
    sentence = case.happens
    telling = case.telling
    error = failure.error.rpartition(".")[2]
    head = ": ".join(part for part in (error, issue.one_line(telling, 300)) if part)
    compute = [node for node in case.record.graph.nodes if node.op.startswith("call_")]
    ops = ", ".join(dict.fromkeys(node.target for node in compute[:4]))
    return issue.Facts(
        title=f"[inductor] {sentence}: {ops}" + (f" ({error})" if error else ""),
        record=report.record,
        symptom=f"{sentence}. {head}".rstrip(". ") + ".",
        layer=report.layer or case.rung,
        stage=case.recorded_at or case.record.stage,
        entry=report.entry,
        nodes=report.nodes,
        original_nodes=report.original_nodes,
        input_bytes=input_bytes(case.record),
        program=program,
        plain=report.python.read_text(encoding="utf-8") if report.python else "",
        rate=report.rate,
        verified=report.verified,
        log=found.runs.output if found else telling,
        versions=environment.versions_text(),
        user_lines=issue.user_lines(case.record),
        notes=list(report.notes),
    )


def _pack(saved: SavedGraph, report: Report, redactor: Redactor) -> None:
    written = [path for path in (report.repro, report.sidecar, report.python, report.issue) if path is not None]
    members, notes = artifacts.gather(saved, {path.name: path.read_bytes() for path in written}, redactor)
    report.artifacts = report.out / "artifacts.zip"
    artifacts.write_zip(report.artifacts, members)
    report.notes += notes


def _reader(saved: SavedGraph) -> Callable[[str], memoryview] | None:
    return saved.tensors.get if saved.tensors_dir.is_dir() else None


def _made(nodes: int, before: int | None) -> str:
    if before is None:
        return f"Written by graphdbg {__version__} from a recorded graph of {counted(nodes, 'node')}, not minimised."
    if before == nodes:
        return f"Written by graphdbg {__version__}, which found no smaller graph than this one of {counted(nodes, 'node')}."
    return f"Reduced by graphdbg {__version__} from {before} to {counted(nodes, 'node')}."


def node_count(body: GraphBody) -> int:
    """All nodes, placeholders and output included, those of subgraphs too."""
    return sum(len(one.nodes) for one in bodies(body))


def input_bytes(record: GraphRecord) -> int:
    """Bytes of all tensor inputs and constants, sizes taken at the symbols' hints; unknown sizes count as nothing."""
    hints = {symbol.name: symbol.hint for symbol in record.symbols if symbol.hint is not None}

    def size(value: object) -> int:
        if isinstance(value, SequenceValue):
            return sum(size(item) for item in value.items)
        if not isinstance(value, TensorValue):
            return 0
        dims = [dim if isinstance(dim, int) else int(hints.get(dim, 0)) for dim in value.shape]
        return prod(dims) * ITEM_BYTES.get(value.dtype, 1)

    placeholders = sum(size(node.value) for node in record.graph.nodes if node.op == "placeholder")
    return placeholders + sum(size(tensor.value) for tensor in record.graph.attrs.values())
