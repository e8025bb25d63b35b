"""Writes `issue.md` in the sections of PyTorch's bug form: Describe the bug, Error logs, Versions.

Pure text from a Facts record; every text that comes from the user's machine passes the redactor here, on its way out.

>>> render(facts, Redactor()).splitlines()[2]
'### 🐛 Describe the bug'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...dumps.amounts import size_text
from ...dumps.redact import Redactor
from ...dumps.schema import GraphRecord
from ...dumps.wording import counted
from ...toolkit import verdict_words
from ...toolkit.verdict import Verdict
from ..needs import facts as tried_words
from .casefile import CaseFile

PRIVACY = (
    "Before you publish this: it holds parts of your program (the operations of a graph, source lines from stack traces, "
    "names of functions and modules, and input values where the failure needs them). Home folders, user names and "
    "credentials that could be recognised are replaced, and the environment is told by allow-list only; "
    "what else is confidential, only you can tell. Read it through."
)

_GCC_WARNING = re.compile(r":\d+:\d+: (?:warning|note):")
_GCC_CONTEXT = re.compile(
    r"In instantiation of |In (?:member )?function |required from here|In file included from|^\s+from .*[:,]$|At global scope:"
)
_GCC_EXCERPT = re.compile(r"^\s*\d* \|")
_LOG_HEAD, _LOG_TAIL = 25, 60
_WIDEST = 400
MOST_ROWS = 12
NEAREST = "the nearest case that passes: "


@dataclass
class Facts:
    """Everything that the issue tells."""

    title: str
    record: Verdict
    symptom: str
    layer: str
    stage: str
    entry: str
    nodes: int
    original_nodes: int | None
    input_bytes: int
    program: str
    rate: str
    verified: bool
    log: str
    versions: str
    user_lines: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    plain: str = ""
    """program.py, where there is one; it is shown first."""
    told: list[str] = field(default_factory=list[str])
    """What the case needs, and what makes it pass."""
    needs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    unneeded: list[str] = field(default_factory=list[str])
    neighbour: dict[str, str] = field(default_factory=dict[str, str])

    def tell(self, known: CaseFile | None) -> None:
        """Takes over what a minification has found out about the case."""
        if known is not None:
            self.told, self.needs, self.unneeded, self.neighbour = known.told, known.needs, known.unneeded, known.neighbour


def render(facts: Facts, redactor: Redactor) -> str:
    """The whole text."""
    parts = [
        f"<!-- {PRIVACY} -->",
        f"<!-- Suggested title: {one_line(redactor.text(facts.title), 120)} -->",
        "### 🐛 Describe the bug",
        redactor.text(_description(facts)),
    ]
    if facts.plain:
        fence = _fence(facts.plain)
        parts.append(f"`program.py`:\n\n{fence}python\n{redactor.text(facts.plain).rstrip()}\n{fence}")
    if facts.program:
        codes = "exit code 1 while the bug is there, 0 when it is gone, 2 when it cannot tell"
        program, fence = redactor.text(facts.program).rstrip(), _fence(facts.program)
        parts.append(f"`repro.py` ({codes}):\n\n{fence}python\n{program}\n{fence}")
    parts += [redactor.text(part) for part in _explained(facts)]
    if facts.user_lines:
        lines = "\n".join(redactor.text(line) for line in facts.user_lines)
        parts.append(f"The operations come from these lines:\n\n```\n{lines}\n```")
    log = redactor.text(shorten(facts.log))
    parts += ["### Error logs", f"{_fence(log)}\n{log}\n{_fence(log)}" if log else "None: nothing is raised or logged."]
    parts += ["### Versions", f"```\n{redactor.text(facts.versions)}\n```"]
    return "\n\n".join(parts) + "\n"


def _description(facts: Facts) -> str:
    expected, got = verdict_words.expected(facts.record)
    size = f"{counted(facts.nodes, 'node')}, placeholders and output included"
    if facts.original_nodes is None:
        reduced = f"The graph is as recorded, not minimised: {size}. `graphdbg minify` makes it smaller."
    else:
        reduced = f"Minimised from {facts.original_nodes} to {size}; the inputs take {size_text(facts.input_bytes)}."
    shown = (
        "The program below shows it" if facts.verified else "**The program below does not show it reliably:** it did"
    )
    entered = f"; the program enters through `{facts.entry}`" if facts.program else ""
    lines = [
        f"{one_line(facts.symptom, 600)}",
        "",
        f"- Expected: {expected}.",
        f"- Got: {got}.",
        f"- First failing layer: {facts.layer}.",
        f"- Recorded at stage `{facts.stage}`{entered}.",
        f"- {reduced}",
    ]  # fmt: skip
    if facts.program:
        lines.append(f"- {shown} in {facts.rate}, each with its own compile cache.")
    beside = NEAREST if facts.neighbour.get("diff") else "\n"
    lines += [f"- {told[:1].upper()}{told[1:].rstrip('.')}." for told in facts.told if not told.startswith(beside)]
    lines += [f"- Note: {note}" for note in facts.notes]
    return "\n".join(lines)


def _explained(facts: Facts) -> list[str]:
    """What each part of the case is needed for, what is gone, and the nearest case that passes beside this one."""
    parts: list[str] = []
    rows = [row for row in facts.needs if row["tried"]]
    if rows:
        shown = rows[:MOST_ROWS]
        table = ["| left in the case | needed? | in its place, one change at a time |", "|---|---|---|"]
        table += [f"| {_part(row)} | {verdict_words.needed(row['verdict'])} | {_cell(tried_words(row))} |" for row in shown]
        if len(rows) > len(shown):
            table.append(f"| {len(rows) - len(shown)} more | | see `case/case.json` |")
        parts.append("What each part is needed for:\n\n" + "\n".join(table))
    silent: dict[str, list[str]] = {}
    for row in facts.needs:
        if not row["tried"]:
            silent.setdefault(row["why"], []).append(_part(row))
    lines = [f"- {why[:1].upper()}{why[1:]}: {', '.join(names)}." for why, names in silent.items()]
    lines += [f"- Gone, and it still fails: {', '.join(facts.unneeded)}."] if facts.unneeded else []
    parts += ["\n".join(lines)] if lines else []
    if diff := facts.neighbour.get("diff"):
        fence = _fence(diff)
        parts.append(f"The nearest case that passes: {facts.neighbour['difference']}:\n\n{fence}diff\n{diff}\n{fence}")
    return parts


def _part(row: dict[str, Any]) -> str:
    name, value = _cell(str(row["name"])), _cell(one_line(str(row["value"]), 60))
    return f"`{name}` (`{value}`)" if row["what"] == "node" else f"`{name}` = `{value}`"


def _cell(text: str) -> str:
    """Text that ends no cell of a table."""
    return one_line(text, 300).replace("|", "\\|").replace("`", "'")


def user_lines(record: GraphRecord, limit: int = 8) -> list[str]:
    """The innermost user line of each computing node's stack, as `file:line in function: source`; no line twice."""
    found: dict[str, None] = {}
    for node in record.graph.nodes:
        if node.stack < 0 or node.op in ("placeholder", "output", "get_attr"):
            continue
        frames = re.findall(r'File "([^"]+)", line (\d+), in ([^\n]+)(?:\n\s+([^\n]*))?', record.strings[node.stack])
        if frames:
            path, line, function, source = frames[-1]
            found[f"{path}:{line} in {function}" + (f": {source.strip()}" if source.strip() else "")] = None
    return list(found)[:limit]


def shorten(log: str, head: int = _LOG_HEAD, tail: int = _LOG_TAIL) -> str:
    """The beginning and the end of a log, compiler warnings left out, very long lines cut; says what is missing."""
    lines = _without_warnings(log.strip().splitlines())
    lines = [
        line if len(line) <= _WIDEST else f"{line[:_WIDEST]} [... {counted(len(line) - _WIDEST, 'character')}]" for line in lines
    ]
    if len(lines) > head + tail + 1:
        lines = [*lines[:head], f"[... {counted(len(lines) - head - tail, 'line')} left out ...]", *lines[-tail:]]
    return "\n".join(lines)


def _without_warnings(lines: Sequence[str]) -> list[str]:
    """Drops gcc's warnings with their excerpts (torch's headers give hundreds of lines), keeps its errors with theirs."""
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
    flat = " ".join(text.replace("-->", "->").split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _fence(text: str) -> str:
    """A code fence that the text cannot close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    return "`" * max(3, longest + 1)
