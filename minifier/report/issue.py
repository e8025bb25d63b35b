"""Writes `issue.md`: in the sections of PyTorch's bug form where the compiler is at fault, else for the owner of the
user's line.

Pure text from a Facts record; all of it passes the redactor here, on its way out.

For example: `render(facts, Redactor()).splitlines()[2]` gives `'### 🐛 Describe the bug'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

from ...dumps import opening
from ...dumps.pack.redact import Redactor
from ...dumps.program.case import ReproFacts
from ...dumps.program.entering import ENTERS
from ...dumps.schema import GraphRecord, SequenceValue, TensorValue
from ...dumps.sidecar import ITEM_BYTES
from ...dumps.tables import visible
from ...dumps.wording import counted, flat, size_text
from ...toolkit.verdicts import verdict_words
from ...toolkit.verdicts.verdict import OK, Verdict
from ..casefile import CaseFile
from ..needs import facts as tried_words

PRIVACY = (
    "Before you publish this: it holds parts of your program (the operations of a graph, source lines from "
    "stack traces, "
    "names of functions and modules, and input values where the failure needs them). Home folders, user names and "
    "credentials that could be recognised are replaced, and the environment is told by allow-list only; "
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
    """The facts of an issue. `case`: what a minification has found out; `verdict`: on the failure as it is described
    here."""

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
    ops = ", ".join(dict.fromkeys(node.target for node in compute[:4]))
    verdict = report.verdict
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
        layer=report.first_layer or case.rung,
        stage=case.recorded_at or case.record.stage,
        entry=report.entry,
        log=log,
        versions=versions,
        search=search if compiler else "",
    )


def render(facts: IssueFacts, redactor: Redactor) -> str:
    """The whole text of an issue."""
    title, text = (visible(redactor.text(part)) for part in (facts.title, "\n\n".join(_parts(facts))))
    known = f"<!-- {KNOWN}: {facts.search} -->\n\n" if facts.search else ""
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
    codes = (
        " (exit code 1 while the bug is there, 0 when it is gone, 2 when it cannot tell; for `git bisect run`: "
        "--git-bisect)"
    )
    if report.repro is not None:
        yield f"`{report.repro.name}`{codes}:\n\n{_fenced(opening.read_text(report.repro).rstrip(), 'python')}"
    if facts.case is not None:
        yield from _explained(facts.case)
    if lines := user_lines(facts.graph):
        shown = "\n".join(lines)
        yield f"The operations come from these lines:\n\n{_fenced(shown)}"
    yield "### Error logs"
    log = shorten(facts.log)
    yield _fenced(log) if log else "None: nothing is raised or logged."
    yield "### Versions"
    yield _fenced(facts.versions)


def _description(facts: IssueFacts) -> str:
    expected, got = verdict_words.expected(facts.verdict)
    report, known, has_program = facts.report, facts.case or CaseFile(), facts.report.repro is not None
    size = f"{counted(report.nodes, 'node')}, placeholders and output included"
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
        _inline(facts.symptom, 600),
        "",
        f"- Expected: {_inline(expected)}.",
        f"- Got: {_inline(got)}.",
        *([f"- First failing layer: {facts.layer}."] if facts.verdict.fault == "compiler" else []),
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
        lines.append(f"- Seen to work instead, before the first compile:\n\n{_fenced(around, 'python')}")
    beside = NEAREST if known.neighbour.get("diff") else "\n"
    lines += [
        f"- {_inline(sentence[:1].upper() + sentence[1:].rstrip('.'))}."
        for sentence in known.told
        if not sentence.startswith(beside)
    ]
    lines += [f"- Note: {_inline(note)}" for note in report.notes]
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
        yield f"The nearest case that passes: {case.neighbour['difference']}:\n\n{_fenced(diff, 'diff')}"


def _part(row: dict[str, Any]) -> str:
    name, value = _cell(str(row["name"])), _cell(one_line(str(row["value"]), 60))
    return f"`{name}` (`{value}`)" if row["what"] == "node" else f"`{name}` = `{value}`"


def _cell(text: str) -> str:
    """Text that cannot end a cell of a table."""
    return _inline(text, 300).replace("|", "\\|").replace("`", "'")


def _inline(text: str, limit: int = 2_000) -> str:
    """Text of a dump in a sentence, without tags, pictures, links and mentions."""
    return _MARKUP.sub(lambda match: "@\u200b" if match[0] == "@" else f"&#{ord(match[0])};", one_line(text, limit))


def user_place(verdict: Verdict, record: GraphRecord) -> str:
    """The user's file and line of a failure, as far as it is known."""
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
        frames = re.findall(r'File "([^"]+)", line (\d+), in ([^\n]+)(?:\n\s+([^\n]*))?', record.strings[node.stack])
        if frames:
            path, line, function, source = frames[-1]
            lines[f"{path}:{line} in {function}" + (f": {source.strip()}" if source.strip() else "")] = None
    return list(lines)[:limit]


def shorten(log: str, head: int = _LOG_HEAD, tail: int = _LOG_TAIL) -> str:
    """The beginning and the end of a log, compiler warnings left out, very long lines cut; says what is missing."""
    lines = _without_warnings(log.strip().splitlines())
    lines = [
        line if len(line) <= _WIDEST else f"{line[:_WIDEST]} [... {counted(len(line) - _WIDEST, 'character')}]"
        for line in lines
    ]
    if len(lines) > head + tail + 1:
        lines = [*lines[:head], f"[... {counted(len(lines) - head - tail, 'line')} left out ...]", *lines[-tail:]]
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


def _fenced(text: str, language: str = "") -> str:
    """A block of code whose fence the text cannot close."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{fence}{language}\n{text}\n{fence}"


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
