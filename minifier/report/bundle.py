"""Writes the report of one failing graph: finds the plainest program that shows the failure, verifies it, describes it
as an issue.

Also: packs `artifacts.zip`: repro, issue text, the case, generated code and the journal lines of the graph, all texts
redacted. And the report of a case that the user's command decides on: a repro.py that runs the command on case/; no
rung is involved, so no program in plain torch is searched for.

Everything is decided by running programs in fresh processes (`verify`). Nothing is overwritten, and nothing claimed
that was not seen: a program that does not fail is written with those words in the issue.

For example:

    report = emit_report(saved, Path("out"), signature=signature, rung="inductor", original=318)
    report.rate  # -> '3 of 3 fresh processes'
"""

from __future__ import annotations

import builtins
import io
import math
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from urllib.parse import quote_plus

import msgspec

from ... import __version__
from ...dumps import inert, opening, trust, written
from ...dumps.atomic import write_file
from ...dumps.errors import ExistsAlreadyError, RefusedError
from ...dumps.graph_folder import GRAPH_FILE, INPUTS_FILE, PROGRAM_FILE, encode, stored_names
from ...dumps.lines import decoded
from ...dumps.output import say
from ...dumps.pack import records
from ...dumps.pack.making import secrets_of, texts_of
from ...dumps.pack.records import Texts
from ...dumps.pack.redact import Redactor
from ...dumps.program.case import ReproFacts
from ...dumps.program.entering import CHECKED_BY, RUNG, plain_change
from ...dumps.program.module import program
from ...dumps.program.repro import flaky_sentence
from ...dumps.program.text import CannotExpressError
from ...dumps.reading import read_bytes, stored
from ...dumps.schema import GraphRecord
from ...dumps.secrets import Secrets
from ...dumps.store import SavedGraph
from ...dumps.walk import node_count
from ...dumps.wording import counted, size_text
from ...toolkit.isolation import ForkServer
from ...toolkit.isolation.fresh import BUG, GONE, UNSURE
from ...toolkit.isolation.imports import TRUST, import_modules, without_trust
from ...toolkit.verdicts.identity import CPP, SPEAKING, Identity, of_record
from ...toolkit.verdicts.signature import Signature
from ...toolkit.verdicts.verdict import Verdict, backend_layer, judged
from ...toolkit.verdicts.verdict_words import happens, searched
from .. import casefile
from ..casefile import NAME
from . import custom_ops, environment, issue
from .trying import ChosenProgram, ReportRuns, asking, lay_down, search
from .verify import first_layer

MAX_TENSOR_BYTES = 64 << 20
_DATE = (1980, 1, 1, 0, 0, 0)


def gather(saved: SavedGraph, files: Mapping[str, bytes], secrets: Secrets) -> tuple[dict[str, bytes], list[str]]:
    """The members of artifacts.zip by name, and a sentence for each thing left out. `files` are the written reports,
    which are redacted once more: the program of a case that a command decides on holds the command as it was given."""
    redactor = Redactor(secrets=secrets)
    members = {
        name: redactor.text(data.decode()).encode() if name.endswith((".py", ".md")) else data
        for name, data in files.items()
    }
    notes: list[str] = []
    texts = texts_of(saved, secrets)
    record = records.graph(saved.record, texts, keep=lambda _: True)
    members[f"case/{GRAPH_FILE}"] = encode(record)
    with suppress(RefusedError):
        members[f"case/{PROGRAM_FILE}"] = program(record).encode()
    if saved.own_inputs_record is not None:
        members[f"case/{INPUTS_FILE}"] = encode(records.inputs(saved.own_inputs_record, texts, keep=lambda _: True))
    if stored(saved.path / NAME) is not None:
        members[f"case/{NAME}"] = _redacted(read_bytes(saved.path / NAME), texts)
    room = MAX_TENSOR_BYTES
    for name in sorted({name for name in stored_names(saved.record, saved.inputs_record) if name}):
        size = saved.tensors.size_bytes(name)
        if not size:
            notes.append(f"tensor {name} is missing from {saved.tensors_dir.name}/")
        elif size > room:
            notes.append(f"tensor {name} ({size_text(size)}) was left out of artifacts.zip for its size")
        else:
            room -= size
            members[f"case/tensors/{name}"] = opening.read(saved.tensors_dir / name)
    for path in saved.code_files():
        if (redacted := texts.generated(path.read_bytes().decode(errors="replace"))) is not None:
            members[f"code/{path.name}"] = redacted.encode()
    excerpt = journal_excerpt(saved)
    if excerpt:
        members["journal.jsonl"] = b"".join(_redacted(line.encode(), texts) + b"\n" for line in excerpt.splitlines())
    return members, notes


def journal_excerpt(saved: SavedGraph) -> str:
    """The lines about this graph from its process's journal; for a minified case the journal beside it."""
    if saved.run is None or saved.process is None:
        beside = saved.path.parent / "journal.jsonl"
        return opening.read_text(beside) if beside.is_file() else ""
    path = saved.run.path / saved.process / "journal.jsonl"
    if not path.is_file():
        return ""
    lines = opening.read_text(path).splitlines()
    rows = [(line, fields) for line in lines if (fields := decoded(line.encode())) is not None]
    return "".join(f"{line}\n" for line, fields in rows if fields.get("graph") in (saved.local_id, None))


def write_zip(path: Path, members: Mapping[str, bytes]) -> None:
    """Writes the archive whole or not at all; raises UsageError when `path` exists, else as `write_file`."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            item = zipfile.ZipInfo(name, _DATE)
            item.external_attr = 0o644 << 16
            item.create_system = 3
            archive.writestr(item, members[name], zipfile.ZIP_DEFLATED)
    if not write_file(path, data.getvalue(), exclusive=True):
        raise ExistsAlreadyError(f"cannot write {path}", "it exists already", "choose another folder with -o")


def _redacted(data: bytes, texts: Texts) -> bytes:
    """JSON with all its texts redacted; anything else is redacted as a text."""
    try:
        return msgspec.json.encode(records.tree(msgspec.json.decode(data), texts))
    except (msgspec.MsgspecError, RecursionError):
        return texts.text(data.decode(errors="replace")).encode()


ISSUES = "https://github.com/pytorch/pytorch/issues"
SCOPE = "(inductor OR torch.compile)"
"""Narrows a search for an operation; a search for an error's text needs no more."""

_MOST_WORDS, _MOST_CALLS = 8, 3
_BREAK = re.compile(r"<[^<>\s]*>|[\[(]\.+[\])]|\.\.+|[‘’“”`'\"\n:=\[\](){}]|\S+\.(?:py|cpp|h|so|cu)\b\S*")
"""Where the text of an error differs between programs: numbers, names, paths; and signs with a meaning in a search."""


def search_link(failure: Identity, message: str, redactor: Redactor) -> str:
    """The address of a search of PyTorch's issues. `message`: the error's normalised text."""
    return f"{ISSUES}?q={quote_plus('is:issue ' + query(failure, redactor.text(message)))}"


def query(failure: Identity, message: str) -> str:
    """The search text: an error by the longest stretch of its own words, anything else by its kind and operations."""
    stretch, calls = phrase(message), [name for name in failure.calls if "." not in name][:_MOST_CALLS]
    error = failure.error if failure.error and not hasattr(builtins, failure.error) else ""
    if failure.detail and failure.kind in SPEAKING and failure.detail != CPP:
        calls = [failure.detail] if "." not in failure.detail else []
    if stretch:
        words = [error, f'"{stretch}"', *([] if failure.kind == "crash" and len(stretch.split()) > 3 else calls)]
    else:
        words = [SCOPE, searched(failure.kind, failure.detail) or failure.error, *calls]
    return " ".join(filter(None, words))


def phrase(message: str) -> str:
    """The longest stretch of a text that is the same in every program; empty where no two words stand together."""
    pieces = [" ".join(piece.split()[:_MOST_WORDS]).strip(" .,;-") for piece in _BREAK.split(message)]
    longest = max(pieces, key=len, default="")
    return longest if " " in longest else ""


TIMES = 3


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
    verdict: Verdict | None = None,
    until: float = math.inf,
) -> issue.Report:
    """Writes OUT/repro.py (and repro.safetensors when needed), OUT/issue.md and, on demand, OUT/zip.

    `signature` is the failure to show, `original` the graph (or its number of nodes) that `saved` was minimised from.
    `imports` are modules to import first, which a repro imports too where it needs them. Takes `times` fresh processes,
    a few more when the plainest program does not fail. `bare`: a server of programs that was started before. `trusted`:
    the graph was just written by us, so that its targets are known to be on the allow-list. `until`: from that time on
    no further program is tried. Raises UsageError when a file exists.
    """
    names = ["repro.py", "repro.safetensors", "issue.md", *(["artifacts.zip"] if with_artifacts else [])]
    _refuse_taken(out, names)
    given, imports = TRUST in imports, without_trust(imports) if imports else ()
    with trust.granted() if given else nullcontext():
        record, inputs, read = inert.record(saved.record), saved.inputs_record, saved.kept
        needed = _checked(record, imports, str(saved.path / GRAPH_FILE)) if imports or not trusted else False
    out.mkdir(parents=True, exist_ok=True)
    recorded = saved.run or (original.run if isinstance(original, SavedGraph) else None)
    redactor = Redactor(secrets=secrets_of(recorded))
    before = node_count(original.record.graph) if isinstance(original, SavedGraph) else original
    report = issue.Report(out, out / "issue.md", nodes=node_count(record.graph), original_nodes=before)
    known = casefile.read(saved.path)
    report.verdict = verdict or (known.record if known and known.rung == rung else None) or judged(signature, rung)
    failure = of_record(signature, record, reduced=before is not None)
    report.signature_id = failure.id
    case = ReproFacts(
        record,
        inputs,
        read,
        signature,
        rung,
        provenance=f"{_made(report.nodes, before)} Signature {report.signature_id}.",
        imports=imports,
        needs_imports=needed,
        trust=given,
        ours=trust.trusted(saved.path),
        recorded_at=known.recorded_at if known else "",
        only_compiled=known is not None and known.only_compiled,
        rate=known.rate if known else None,
        torch=environment.package_version("torch") or "",
        workaround=plain_change(report.verdict.workaround or ""),
        happens=happens(signature.kind, signature.detail, report.verdict.fault),
    )
    chosen: ChosenProgram | None = None
    with asking(case, saved, times, redactor, narrate, bare, until) as asked:
        try:
            chosen = search(case, asked)
            _write_program(report, chosen, asked)
        except (CannotExpressError, RefusedError) as error:
            report.notes.append(f"no repro.py: {error}")
    log = chosen.runs.output if chosen else case.failure_text
    search_for = search_link(failure, signature.message, redactor)
    text = issue.render(issue.facts_of(case, report, known, log, asked.versions, search_for), redactor)
    write_file(report.issue, text.encode())
    if with_artifacts:
        report.artifacts = out / "artifacts.zip"
        report.notes += pack(saved, (report.repro, report.sidecar, report.issue), report.artifacts, redactor)
    for note in report.notes:
        narrate(note)
    return report


def _checked(record: GraphRecord, imports: Sequence[str], where: str) -> bool:
    """Whether the graph has ops of these modules, which are imported here for that. Refuses whatever is off the
    allow-list: the graph's own text is then run as a program, with stand-ins where needed.
    """
    needed = bool(imports and custom_ops.unregistered(record, where))
    if imports:
        import_modules(imports)
    custom_ops.refuse_others(record, where)
    return needed


def _write_program(report: issue.Report, chosen: ChosenProgram, asked: ReportRuns) -> None:
    script, case = chosen.script, chosen.script.case
    report.repro = lay_down(script, report.out, asked.redactor)
    written.remember(report.repro)
    report.sidecar = report.repro.with_suffix(".safetensors") if script.sidecar is not None else None
    report.entry, report.inputs = CHECKED_BY if case.checked else script.entry, script.way
    report.shown, report.times = chosen.runs.shown, len(chosen.runs.trials)
    earliest, layer = first_layer(chosen.layers, case.rung)
    report.first_layer = layer if chosen.layers or not case.facts.grad else ""
    report.verdict = report.verdict.in_layer(backend_layer(earliest))
    if case.imports:
        report.notes.append(f"repro.py imports {', '.join(case.modules)}, which has to be attached to the issue")
    report.notes += [script.sizing.sentence().rstrip(".")] if script.sizing is not None and script.sizing.marks else []
    report.notes += list(case.ops.remarks) if case.ops is not None and case.ops.stands_in else []
    report.notes += [f"left out of repro.py: {note}" for note in script.notes]
    report.flaky = case.rate is not None and case.rate.flaky
    report.unsure = all(trial.code == UNSURE for trial in chosen.runs.trials)
    report.notes += [flaky_sentence(case.rate, "repro.py")] if case.rate is not None and case.rate.flaky else []
    if case.rung == RUNG and report.unsure:
        report.notes.append(
            "repro.py needs an NVIDIA GPU and there is none here: its kernels failed on Triton's interpreter, "
            "the program itself was not seen to fail"
        )
    elif report.says != "shows":
        behind = (
            "" if asked.how["wall"] is None else ", behind the wall that is around runs of others (--trust: without it)"
        )
        report.notes.append(
            f"repro.py shows it in {report.rate}, so it does not prove the failure, although the case fails; it ended "
            f"with {asked.redactor.text(chosen.runs.ending)}{behind}"
        )
    ends = {GONE: "ends with 0", BUG: "still fails", UNSURE: "cannot tell"}
    ended = chosen.without.code if chosen.without is not None else None
    report.without = "ended otherwise" if ended is None else ends.get(ended, "ended otherwise")


def pack(saved: SavedGraph, written: Iterable[Path | None], archive: Path, redactor: Redactor) -> list[str]:
    """Writes the archive of a case and what was written about it; returns a sentence for each thing left out. Raises
    UsageError when it exists."""
    members, notes = gather(saved, {path.name: path.read_bytes() for path in written if path}, redactor.secrets)
    write_zip(archive, members)
    return notes


def _made(nodes: int, before: int | None) -> str:
    if before is None:
        return f"Written by graphdbg {__version__} from a recorded graph of {counted(nodes, 'node')}, not minimised."
    if before == nodes:
        return (
            f"Written by graphdbg {__version__}, which found no smaller graph than this one of "
            f"{counted(nodes, 'node')}."
        )
    return f"Reduced by graphdbg {__version__} from {before} to {counted(nodes, 'node')}."


def _refuse_taken(out: Path, names: Sequence[str]) -> None:
    if taken := [name for name in names if (out / name).exists()]:
        raise ExistsAlreadyError(f"cannot write {out / taken[0]}", "it exists already", "choose another folder with -o")


COMMAND_PROGRAM = '''"""Runs the command that found this failure on the case beside it, case/. Made by graphdbg.
Signature {which}.

Exit code 1 while the command ends as it did ({ending}), 0 when it ends with 0, 2 else (with --git-bisect 125).
With --without-fault it is 2: only the command knows what the fault is.
The command is run where you are; case/graph.py is the graph as a program, case/graph.json and case/tensors/ are what
graphdbg.load_graph reads.
"""

import pathlib
import shlex
import signal
import subprocess
import sys

COMMAND = {command!r}
ENDING = {ending!r}

UNSURE = 125 if "--git-bisect" in sys.argv else 2
if "--without-fault" in sys.argv:
    print("cannot tell: only the command knows what the fault is")
    sys.exit(UNSURE)
case = pathlib.Path(__file__).resolve().parent / "case"
command = COMMAND.replace("{{case}}", shlex.quote(str(case)))
print("$", command, flush=True)
code = subprocess.run(command, shell=True).returncode
number = -code if code < 0 else code - 128
ending = f"signal {{signal.Signals(number).name}}" if number in set(signal.Signals) else f"exit code {{code}}"
print(ending)
sys.exit(1 if ending == ENDING else 0 if code == 0 else UNSURE)
'''


def write_report(
    saved: SavedGraph, out: Path, command: str, signature: Signature, *, shown: int = 0, times: int = 0
) -> issue.Report:
    """Writes OUT/repro.py and OUT/issue.md, and a copy of the case as OUT/case where it lies elsewhere.

    `shown` of `times` runs of the command on the case failed. Raises UsageError where one of them exists.
    """
    _refuse_taken(out, ("repro.py", "issue.md"))
    out.mkdir(parents=True, exist_ok=True)
    if (out / "case").resolve() != saved.path.resolve():
        shutil.copytree(saved.path, out / "case")
    known = casefile.read(saved.path)
    ending = signature.detail or signature.kind
    report = issue.Report(out, out / "issue.md", out / "repro.py", entry=command, shown=shown, times=times)
    report.flaky = bool(known and known.rate and known.rate.flaky)
    report.verdict = (known.record if known else None) or Verdict("fails", reason=f"the command: {ending}")
    report.nodes = node_count(saved.record.graph)
    report.original_nodes = known.original.nodes if known and known.original else None
    report.signature_id = of_record(signature, saved.record, reduced=report.original_nodes is not None).id
    program = COMMAND_PROGRAM.format(command=command, ending=ending, which=report.signature_id)
    write_file(out / "repro.py", program.encode())
    written.remember(out / "repro.py")
    facts = issue.IssueFacts(
        report,
        saved.record,
        known,
        Verdict("fails", reason=report.verdict.reason),
        title=f"{issue.one_line(command, 60)}: {ending}",
        symptom=f"`{command}` ends with {ending} on the case in case/ (graph.py there is its text).",
        layer="as the command says",
        stage=saved.record.stage,
        entry="the command",
        log=signature.raw,
        versions=environment.versions_text(),
    )
    write_file(report.issue, issue.render(facts, Redactor()).encode())
    return report
