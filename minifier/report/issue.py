"""Writes `issue.md`: in the sections of PyTorch's bug form where the compiler is at fault, else for the owner of the
user's line.

Also: the contents that a written report shares, counted in the texts that would be published, and whether anything
about this machine is left.

Makes text from an `IssueFacts` record; all of it passes the redactor here, on its way out.

For example: `render(facts, Redactor()).splitlines()[2]` gives `'### 🐛 Describe the bug'`.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ...dumps import opening
from ...dumps.atomic import free_path
from ...dumps.hints import size as number_of_dim
from ...dumps.lines import size_of
from ...dumps.pack.redact import Redactor
from ...dumps.program.case import ReproFacts
from ...dumps.program.entering import ENTERS
from ...dumps.schema import GraphRecord
from ...dumps.secrets import random_looking
from ...dumps.sidecar import value_columns
from ...dumps.tables import visible
from ...dumps.walk import calls
from ...dumps.wording import counted, flat, size_text
from ...toolkit.verdicts import verdict_words
from ...toolkit.verdicts.verdict import OK, Verdict
from ..casefile import CaseFile
from ..needs import facts as tried_words

PRIVACY = (
    "Before you publish this: it holds parts of your program (the operations of a graph, source lines from "
    "stack traces, "
    "names of functions and modules, and input values where the failure needs them). Home folders, user names and "
    "credentials that could be recognised are replaced, and the environment is reported by allow-list only; "
    "what else is confidential, only you can tell. Read it through."
)
KNOWN = "Before you publish this, look whether it is known already (a link to a search, nothing was sent)"

_GCC_WARNING = re.compile(r":\d+:\d+: (?:warning|note):")
_GCC_CONTEXT = re.compile(
    r"In instantiation of |In (?:member )?function |required from here|In file included from|^\s+from "
    r".*[:,]$|At global scope:"
)
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|@(?=\w)|\](?=\()")
_GCC_EXCERPT = re.compile(r"^\s*\d* \|")
_LOG_HEAD, _LOG_TAIL = 25, 60
_WIDEST = 400
MOST_ROWS = 12
NEAREST = "the nearest case that passes: "


@dataclass
class Report:
    """A written report and how sure it is. `repro` is None when the graph has no plain form (`notes` say why)."""

    out: Path
    issue: Path
    repro: Path | None = None
    artifacts: Path | None = None
    sidecar: Path | None = None
    entry: str = ""
    inputs: str = ""
    shown: int = 0
    times: int = 0
    verdict: Verdict = OK
    first_layer: str = ""
    nodes: int = 0
    original_nodes: int | None = None
    notes: list[str] = field(default_factory=list[str])
    signature_id: str = ""
    """The id of the failure (see `toolkit.verdicts.identity`)."""
    flaky: bool = False
    """Whether the case itself fails in only a share of its runs."""
    without: str = ""
    """How the repro ended with --without-fault, in words."""
    unsure: bool = False
    """Whether no process could decide: the program needs what this machine lacks."""

    @property
    def verified(self) -> bool:
        """Whether every fresh process showed the bug."""
        return self.times > 0 and self.shown == self.times

    @property
    def rate(self) -> str:
        """How often the repro showed the failure, in words."""
        return f"{self.shown} of {counted(self.times, 'fresh process')}"

    @property
    def sentence(self) -> str:
        """What the repro does, with and without the fault, in one line."""
        without = f", with --without-fault it {self.without}" if self.without and self.says == "shows" else ""
        enters = _enters(self.entry) + (f"; inputs: {self.inputs}" if self.inputs else "")
        return f"shows the failure in {self.rate}{without} (enters {enters})"

    @property
    def says(self) -> Literal["shows", "passes", "none"]:
        """What the repro does, for `repro` of --json: it shows the failure, as often as the case does, or it passes."""
        if self.repro is None or not self.times or self.unsure:
            return "none"
        return "shows" if self.verified or (self.flaky and self.shown) else "passes"

    @property
    def exit_code(self) -> int:
        """0: a repro shows the failure, 1: none does, 4: it could not be judged."""
        return 0 if self.says == "shows" else 4 if self.unsure else 1

    def as_json(self) -> dict[str, Any]:
        """The report for --json: paths as text, the rate in words, the verdict's fields flat."""
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        summary = {"rate": self.rate, "verified": self.verified, "repro_path": plain["repro"], "repro": self.says}
        return plain | summary | self.verdict.flat()


def _enters(entry: str) -> str:
    """Where a program enters, in words; an entry that is not ours is a command's."""
    return next((words for name, words in ENTERS.items() if name == entry), f"through `{entry}`")


@dataclass(frozen=True)
class IssueFacts:
    """The facts of an issue. `case`: the case file of a minification, if there was one; `verdict`: on the failure that
    the issue describes."""

    report: Report
    graph: GraphRecord
    case: CaseFile | None
    verdict: Verdict
    title: str
    symptom: str
    layer: str
    stage: str
    entry: str
    log: str
    versions: str
    search: str = ""
    """The address of a search for duplicates; empty where it is not for PyTorch's tracker."""


def facts_of(
    case: ReproFacts, report: Report, known: CaseFile | None, log: str, versions: str, search: str = ""
) -> IssueFacts:
    """The facts of the issue of a case. `search`: where to look for duplicates, if it is for PyTorch's tracker."""
    error = case.failure.error.rpartition(".")[2]
    head = ": ".join(part for part in (error, one_line(case.failure_text, 300)) if part)
    compute = [node for node in case.record.graph.nodes if node.op.startswith("call_")]
    verdict = report.verdict
    at_fault = verdict.where.node if verdict.where else ""
    first = sorted(compute, key=lambda node: node.name != at_fault)[:4]
    ops = ", ".join(dict.fromkeys(node.target for node in first))
    compiler = verdict.fault == "compiler"
    at = (
        f"[{verdict.layer or 'torch.compile'}]"
        if compiler
        else user_place(verdict, case.record) or verdict_words.owner(verdict)
    )
    return IssueFacts(
        report,
        case.record,
        known,
        verdict,
        title=f"{at}{'' if compiler else ':'} {case.happens}: {ops}" + (f" ({error})" if error else ""),
        symptom=f"{case.happens}. {head}".rstrip(". ") + ".",
        layer=report.first_layer or ("" if case.facts.grad else case.rung),
        stage=case.recorded_at or case.record.stage,
        entry=report.entry,
        log=log,
        versions=versions,
        search=search if compiler else "",
    )


def render(facts: IssueFacts, redactor: Redactor) -> str:
    """The whole text of an issue."""
    return framed(facts.title, _parts(facts), facts.search, redactor)


def framed(title: str, parts: Iterable[str], search: str, redactor: Redactor) -> str:
    """The text of an issue: its parts, redacted, under notes on what to do before it is published. `search`: see
    IssueFacts."""
    title, text = (visible(redactor.text(part)) for part in (title, "\n\n".join(parts)))
    known = f"<!-- {KNOWN}: {search} -->\n\n" if search else ""
    return f"{known}<!-- {PRIVACY} -->\n\n<!-- Suggested title: {one_line(title, 160)} -->\n\n{text}\n"


def _parts(facts: IssueFacts) -> Iterator[str]:
    report = facts.report
    if facts.verdict.fault == "compiler":
        yield "### 🐛 Describe the bug"
    else:
        yield "### What goes wrong"
        whose = f"Not for PyTorch's tracker: {verdict_words.owner(facts.verdict)}"
        yield f"{whose}{f', {place}' if (place := user_place(facts.verdict, facts.graph)) else ''}."
    yield _description(facts)
    if report.repro is not None:
        yield quoted(report.repro)
    if facts.case is not None:
        yield from _explained(facts.case)
    if lines := user_lines(facts.graph):
        shown = "\n".join(lines)
        yield f"The operations come from these lines:\n\n{fenced(shown)}"
    yield from logged(facts.log, facts.versions)


def quoted(repro: Path) -> str:
    """The part of an issue that holds its program."""
    codes = "exit code 1 while the bug is there, 0 when it is gone, 2 when it cannot tell"
    text = fenced(opening.read_text(repro).rstrip(), "python")
    return f"`{repro.name}` ({codes}; for `git bisect run`: --git-bisect):\n\n{text}"


def logged(log: str, versions: str) -> Iterator[str]:
    """The last parts of an issue: its error logs and versions."""
    log = shorten(log)
    yield from ("### Error logs", fenced(log) if log else "None: nothing is raised or logged.")
    yield from ("### Versions", fenced(versions))


def _description(facts: IssueFacts) -> str:
    expected, got = verdict_words.expected(facts.verdict)
    report, known, has_program = facts.report, facts.case or CaseFile(), facts.report.repro is not None
    inside = ", with those of the graphs inside" if facts.graph.graph.subgraphs else ""
    size = f"{counted(report.nodes, 'node')}, placeholders and output included{inside}"
    if report.original_nodes is None:
        reduced = f"The graph is as recorded, not minimised: {size}. `graphdbg minify` makes it smaller."
    else:
        reduced = (
            f"Minimised from {report.original_nodes} to {size}; the inputs take {size_text(input_bytes(facts.graph))}."
        )
    shown = (
        "The program below shows it" if report.verified else "**The program below does not show it reliably:** it did"
    )
    lines = [
        inline(facts.symptom, 600),
        "",
        f"- Expected: {inline(expected)}.",
        f"- Got: {inline(got)}.",
        *([f"- First failing layer: {facts.layer}."] if facts.verdict.fault == "compiler" and facts.layer else []),
        f"- Recorded at stage `{facts.stage}`{f'; the program enters {_enters(facts.entry)}' if has_program else ''}.",
        f"- {reduced}",
        *([f"- {shown} in {report.rate}, each with its own compile cache."] if has_program else []),
    ]
    if report.signature_id:
        lines.append(f"- Signature: `{report.signature_id}`, the same wherever graphdbg meets this failure.")
    if (same := facts.verdict.same) is not None:
        asked = "`torch._dynamo.utils.same(eager, compiled, float64)`, at its default tolerances, says"
        lines.append(f"- {asked} {same}" + (": it calls equal what this report does not." if same else "."))
    if around := facts.verdict.workaround:
        lines.append(f"- {verdict_words.around(around)}\n\n{fenced(around, 'python')}")
    beside = NEAREST if known.neighbour.get("diff") else "\n"
    lines += [
        f"- {inline(sentence[:1].upper() + sentence[1:].rstrip('.'))}."
        for sentence in known.told
        if not sentence.startswith(beside)
    ]
    lines += [f"- Note: {inline(note)}" for note in report.notes]
    return "\n".join(lines)


def _explained(case: CaseFile) -> Iterator[str]:
    """What each part of the case is needed for, what was removed, and the nearest case that passes beside this one."""
    rows = [row for row in case.needs if row["tried"]]
    if rows:
        shown = rows[:MOST_ROWS]
        table = ["| left in the case | needed? | in its place, one change at a time |", "|---|---|---|"]
        table += [
            f"| {_part(row)} | {verdict_words.needed(row['verdict'])} | {_cell(tried_words(row))} |" for row in shown
        ]
        if len(rows) > len(shown):
            table.append(f"| {len(rows) - len(shown)} more | | see `case/case.json` |")
        yield "What each part is needed for:\n\n" + "\n".join(table)
    silent: dict[str, list[str]] = {}
    for row in case.needs:
        if not row["tried"]:
            silent.setdefault(row["why"], []).append(_part(row))
    lines = [f"- {why[:1].upper()}{why[1:]}: {', '.join(names)}." for why, names in silent.items()]
    lines += [f"- Gone, and it still fails: {', '.join(case.unneeded)}."] if case.unneeded else []
    if lines:
        yield "\n".join(lines)
    if diff := case.neighbour.get("diff"):
        yield f"The nearest case that passes: {case.neighbour['difference']}:\n\n{fenced(diff, 'diff')}"


def _part(row: dict[str, Any]) -> str:
    name, value = _cell(str(row["name"])), _cell(one_line(str(row["value"]), 60))
    return f"`{name}` (`{value}`)" if row["what"] == "node" else f"`{name}` = `{value}`"


def _cell(text: str) -> str:
    """Text that cannot end a cell of a table."""
    return inline(text, 300).replace("|", "\\|").replace("`", "'")


def inline(text: str, limit: int = 2_000) -> str:
    """Text of a dump in a sentence, without tags, pictures, links and mentions."""
    return _MARKUP.sub(lambda match: "@\u200b" if match[0] == "@" else f"&#{ord(match[0])};", one_line(text, limit))


def user_place(verdict: Verdict, record: GraphRecord) -> str:
    """The user's file and line of a failure, with the node where it is known; empty where nothing is."""
    if verdict.where is not None and verdict.where.line:
        return ", ".join(part for part in (verdict.where.node, verdict.where.line) if part)
    if verdict.fault == "custom_pass":
        return verdict.where.name if verdict.where is not None else ""
    return next((line.partition(" in ")[0] for line in reversed(user_lines(record, limit=len(record.graph.nodes)))), "")


def user_lines(record: GraphRecord, limit: int = 8) -> list[str]:
    """The innermost user line of each computing node's stack, as `file:line in function: source`; no line twice."""
    lines: dict[str, None] = {}
    for node in record.graph.nodes:
        if node.stack < 0 or node.op in ("placeholder", "output", "get_attr"):
            continue
        for frame in calls(record.strings[node.stack])[-1:]:
            lines[f"{frame.file}:{frame.line} in {frame.function}" + (f": {frame.code}" if frame.code else "")] = None
    return list(lines)[:limit]


def shorten(log: str) -> str:
    """The beginning and the end of a log, compiler warnings left out, very long lines cut; says what is missing."""
    lines = _without_warnings(log.strip().splitlines())
    lines = [
        line if len(line) <= _WIDEST else f"{line[:_WIDEST]} [... {counted(len(line) - _WIDEST, 'character')}]"
        for line in lines
    ]
    if (over := len(lines) - _LOG_HEAD - _LOG_TAIL) > 1:
        lines = [*lines[:_LOG_HEAD], f"[... {counted(over, 'line')} left out ...]", *lines[-_LOG_TAIL:]]
    return "\n".join(lines)


def _without_warnings(lines: Sequence[str]) -> list[str]:
    """Drops gcc's warnings with their excerpts (torch's headers give hundreds of lines), and keeps its errors with
    theirs."""
    kept: list[str] = []
    context: list[str] = []
    dropping = False
    for line in lines:
        if _GCC_CONTEXT.search(line):
            context.append(line)  # belongs to the warning or error that follows
            dropping = False
        elif _GCC_WARNING.search(line):
            context.clear()
            dropping = True
        elif dropping and _GCC_EXCERPT.match(line):
            continue
        else:
            kept += context[-2:] if ": error:" in line else []
            context.clear()
            kept.append(line)
            dropping = False
    return kept


def one_line(text: str, limit: int) -> str:
    """Text without line breaks and comment ends, cut to `limit` characters."""
    return flat(text.replace("-->", "->"), limit)


def fenced(text: str, language: str = "") -> str:
    """A block of code whose fence the text cannot close."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{fence}{language}\n{text}\n{fence}"


def input_bytes(record: GraphRecord) -> int:
    """Bytes of all tensor inputs and constants, sizes taken at the symbols' hints; unknown sizes count as nothing."""
    hint = partial(number_of_dim, known={row.name: row.hint for row in record.symbols if row.hint is not None})
    values = [node.value for node in record.graph.nodes if node.op == "placeholder"]
    values += [tensor.value for tensor in record.graph.attrs.values()]
    return sum(value_columns(value, hint)[-1] or 0 for value in values)


ISSUE, REPRO, SIDECAR, ARTIFACTS = "issue.md", "repro.py", "repro.safetensors", "artifacts.zip"
MARKERS = {
    "...": "folder",
    "<path>": "path",
    "<folder>": "folder",
    "<cache>": "scratch folder",
    "<tmp>": "scratch folder",
    "<site-packages>": "library folder",
    "<python>": "library folder",
    "<graphdbg>": "library folder",
    "<user>": "user name",
    "<secret>": "credential",
}
"""Marker in a redacted text -> the kind of thing that it stands for."""
_MARKER = re.compile(r"\.\.\.(?=/)|<(?:path|folder|cache|tmp|site-packages|python|graphdbg|user|secret)>")
_LINES = re.compile(r"The operations come from these lines:\n\n```\n(?P<lines>.*?)\n```", re.DOTALL)
_PLACE = re.compile(r"^(?P<file>.+?):\d+ in ")
_GRAPH = re.compile(r"^def graph\(.*?(?=^\S)", re.DOTALL | re.MULTILINE)
_OPERATION = re.compile(r"(?:=|return) (?:torch\.ops\.)?([\w.]+?)(?:\.default)?\(")
_KNOWN = re.compile(r"https://github\.com/pytorch/pytorch/\S+|^Git revision: \w+$", re.MULTILINE)
"""Words of the report's own that look random: the link to a search, torch's revision."""
_RATE = re.compile(r"shows it in (\d+) of (\d+) fresh processes|it did in (\d+) of (\d+) fresh processes")


@dataclass
class Preview:
    """One folder with a report in it. `shown` and `times`: how often the repro failed when it was written."""

    folder: Path
    issue: str = ""
    repro: str = ""
    source_lines: list[str] = field(default_factory=list[str])
    replaced: Counter[str] = field(default_factory=Counter[str])
    leaks: list[str] = field(default_factory=list[str])
    random: list[str] = field(default_factory=list[str])
    """Words that look as if made at random: a credential that no rule knows may be among them."""
    members: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """The members of artifacts.zip: name and size in bytes."""
    sidecar_bytes: int = 0
    shown: int = 0
    times: int = 0
    damage: str = ""

    @classmethod
    def of(cls, folder: Path, redactor: Redactor | None = None) -> Preview:
        """Reads the report in a folder; a missing file is an empty text."""
        preview = cls(folder, _text(folder / ISSUE), _text(folder / REPRO))
        both = preview.issue + preview.repro
        listed = _LINES.search(preview.issue)
        preview.source_lines = listed["lines"].splitlines() if listed else []
        # issue.md has the text of repro.py in it: what stands there is counted once
        rest = preview.issue.replace(preview.repro.rstrip(), "") if preview.repro else preview.issue
        preview.replaced = Counter(MARKERS[marker] for marker in _MARKER.findall(rest + preview.repro))
        preview.leaks = list(dict.fromkeys((redactor or Redactor()).leaks(both)))
        preview.random = random_looking(_KNOWN.sub("", rest))
        rate = _RATE.search(preview.issue)
        if rate:
            preview.shown, preview.times = (int(number) for number in rate.groups() if number is not None)
        try:
            preview.sidecar_bytes = size_of(folder / SIDECAR)
            if (folder / ARTIFACTS).is_file():
                with opening.opened(folder / ARTIFACTS) as file, zipfile.ZipFile(file) as archive:
                    preview.members = [(item.filename, item.file_size) for item in archive.infolist()]
        except (OSError, zipfile.BadZipFile) as error:
            preview.damage = f"{folder / ARTIFACTS} cannot be read: {error}"
        return preview

    @property
    def is_there(self) -> bool:
        """Whether a report was written here."""
        return bool(self.issue or self.repro)

    def as_json(self) -> dict[str, Any]:
        """The preview for --json: what is shared, in numbers and words."""
        return {
            "folder": str(self.folder),
            "source_lines": self.source_lines,
            "replaced": dict(self.replaced),
            "leaks": self.leaks,
            "random": self.random,
            "artifacts": [name for name, _ in self.members],
            "shown": self.shown,
            "times": self.times,
            "says": self.sentences(),
            "warning": PRIVACY,
        }

    def sentences(self) -> list[str]:
        """Sentences on what will be shared, what was replaced, what the archive holds, and how often the repro
        failed."""
        files = _files(self.source_lines)
        operations = list(dict.fromkeys(_OPERATION.findall("".join(_GRAPH.findall(self.repro)) or self.repro)))
        values = f" and values ({size_text(self.sidecar_bytes)})" if self.sidecar_bytes else ""
        named = f"{counted(len(operations), 'operation')}{_named(operations[:4])}"
        lines = [f"what will be shared: {_shared(self.source_lines, len(files), _named(files), named, values)}"]
        lines.append(_replaced(self.replaced))
        if self.leaks:
            lines.append(f"STILL THERE, look at it: {', '.join(self.leaks[:4])}")
        else:
            lines.append(
                "looked through now: no known credential and no absolute path (but /dev/null and such) is left in it"
            )
        if self.random:
            lines.append(f"looks random, make sure that it is not a credential: {', '.join(self.random[:4])}")
        rate = f"{self.shown} of {counted(self.times, 'fresh process')}"
        lines.append(f"the repro failed in {rate}" if self.times else "the repro was not run")
        if self.members:
            size = sum(size for _, size in self.members)
            lines.append(
                f"{ARTIFACTS}: {counted(len(self.members), 'file')}, {size_text(size)} unpacked: "
                + ", ".join(name for name, _ in self.members)
            )
        return lines + ([self.damage] if self.damage else [])


def ahead(graph: str) -> list[str]:
    """What a report of a graph would share, before it is written. Raises GraphdbgError where the graph cannot be
    read."""
    from ...dumps.pack.making import secrets_of
    from ...dumps.store import resolve_graph

    saved = resolve_graph(graph)
    record, redactor = saved.record, Redactor(secrets=secrets_of(saved.run))
    lines = [redactor.text(line) for line in user_lines(record)]
    files = _files(lines)
    operations = dict.fromkeys(node.target for node in record.graph.nodes if node.op.startswith("call_"))
    replaced = Counter(MARKERS[marker] for line in lines for marker in _MARKER.findall(line))
    inputs = saved.inputs_record
    kept = sum(item.stored is not None for item in inputs.inputs) if inputs else 0
    return [
        f"what would be shared: {_shared(lines, len(files), _named(files[:4]), counted(len(operations), 'operation'))}",
        _replaced(replaced),
        f"{counted(kept, 'input')} with recorded values, which go along where the failure needs them",
        *lines,
    ]


def _files(lines: Iterable[str]) -> list[str]:
    """The files of source lines, each once."""
    return list(dict.fromkeys(match["file"] for line in lines if (match := _PLACE.match(line))))


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _shared(lines: Sequence[str], files: int, named: str, operations: str, values: str = "") -> str:
    of = f"{counted(len(lines), 'source line')} of {counted(files, 'file')}{named}, {operations}"
    return f"{of}, the shapes of the inputs{values}, versions of this machine, by allow-list"


def _replaced(replaced: Counter[str]) -> str:
    kinds = ", ".join(counted(count, kind) for kind, count in sorted(replaced.items()))
    return f"{counted(replaced.total(), 'path or name', 'paths or names')} replaced" + (f": {kinds}" if kinds else "")


def free_folder(cwd: Path) -> str:
    """`graphdbg-report-N` with the first N that is free: the folder that the command takes."""
    return free_path(str(cwd / "graphdbg-report"), bare=False).name


def reports(graph: str, cwd: Path) -> list[Path]:
    """Folders with a report that belongs to a case: beside it or around it, as minify leaves it. A run's graph has
    none."""
    path = cwd / graph
    return [place for place in (path, path.parent) if (place / ISSUE).is_file() and (path / "case.json").is_file()]


def _text(path: Path) -> str:
    try:
        return opening.read_text(path)
    except OSError:
        return ""
