"""The result of a minification, from its last event or, where there is none (it is old, or was killed), from the files
in OUT. No torch.

Also: the last event and the final sentences of a minification. Reports only what is there; judges nothing.

For example:

    outcome = outcome_of(Path("small"), story)
    outcome.nodes, outcome.verified, outcome.repro  # -> (3, (3, 3), PosixPath('small/repro.py'))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from ...dumps import opening
from ...dumps.errors import GraphdbgError
from ...dumps.wording import counted, size_text
from ...toolkit.verdicts.verdict_words import first_line, tone
from ..casefile import read as read_case
from ..minified import Also, Minified
from ..needs import sentences as needs_sentences
from ..results import ALSO, PASSES, needed
from ..story import Story
from .telling import queries_text

NEAREST = "the nearest case that passes: "


@dataclass
class Conclusion:
    """The result. `needed`: sentences on what the remaining parts are needed for; `nearest`: what makes the case pass,
    with the folder of that passing case, `passes`."""

    out: Path
    case: Path | None = None
    nodes: int = 0
    input_bytes: int = 0
    original: tuple[int, int] = (0, 0)
    verified: tuple[int, int] = (0, 0)
    signature: str = ""
    stopped: str = ""
    needed: list[str] = field(default_factory=list[str])
    nearest: str = ""
    passes: Path | None = None
    repro: Path | None = None
    issue: Path | None = None
    rate: str = ""
    notes: list[str] = field(default_factory=list[str])

    def sentences(self) -> list[str]:
        """The result in sentences, one per line."""
        size = f"{counted(self.nodes, 'node')}, {size_text(self.input_bytes)} of inputs"
        shown, times = self.verified
        nodes, inputs = self.original
        lines = [f"{counted(nodes, 'node')}, {size_text(inputs)} of inputs -> {size}" if nodes else size]
        lines += [f"fails with: {self.signature}"] if self.signature else []
        verified = f"verified: {shown} of {counted(times, 'fresh process')} failed the same way"
        lines.append(verified if times else "not verified")
        lines += [f"stopped early: {self.stopped}"] if self.stopped else []
        lines += self.needed
        lines += [f"{NEAREST}{self.nearest}" + (f" ({self.passes})" if self.passes else "")] if self.nearest else []
        lines += [f"repro: {self.repro}" + (f", fails in {self.rate}" if self.rate else "")] if self.repro else []
        lines += [f"issue text: {self.issue}"] if self.issue else []
        lines += [f"case: {self.case}"] if self.case else []
        return lines + [f"note: {note}" for note in self.notes]


def outcome_of(out: Path, story: Story) -> Conclusion:
    """The result as it is known now. A case folder that cannot be read is reported in `notes`."""
    conclusion = Conclusion(out, original=story.original, signature=story.signature)
    conclusion.nodes, conclusion.input_bytes = story.best or story.original
    there = {name: out / name if (out / name).exists() else None for name in ("case", PASSES, "repro.py", "issue.md")}
    conclusion.case, conclusion.passes, conclusion.repro, conclusion.issue = there.values()
    if story.done is not None:
        _from_event(conclusion, story.done)
    elif conclusion.case is not None:
        _from_case(conclusion)
    return conclusion


def others_on_disk(out: Path) -> list[Also]:
    """The other failures that an ended minification wrote as cases."""
    others: list[Also] = []
    for folder in sorted((out / ALSO).iterdir()) if (out / ALSO).is_dir() else ():
        try:
            data = cast("dict[str, Any]", msgspec.json.decode(opening.read(folder / "case.json")))
            case = read_case(folder)
        except (GraphdbgError, OSError, msgspec.MsgspecError):
            continue
        text = case.signature.text() if case and case.signature else folder.name
        others.append(Also(text, int(data.get("count") or 1), 0, folder))
    return others


def _from_event(conclusion: Conclusion, done: dict[str, Any]) -> None:
    conclusion.nodes, conclusion.input_bytes = int(done.get("nodes") or 0), int(done.get("input_bytes") or 0)
    conclusion.original = int(done.get("original_nodes") or 0), int(done.get("original_input_bytes") or 0)
    verified = done.get("verified") or (0, 0)
    conclusion.verified = int(verified[0]), int(verified[1])
    conclusion.signature, conclusion.stopped = str(done.get("signature") or ""), str(done.get("stopped") or "")
    conclusion.needed = needs_sentences(done.get("needs") or []) or needed(done.get("parts") or [])
    conclusion.nearest, conclusion.rate = str(done.get("difference") or ""), str(done.get("report_rate") or "")
    conclusion.notes = [str(note) for note in cast("list[Any]", done.get("notes") or [])]


def _from_case(conclusion: Conclusion) -> None:
    assert conclusion.case is not None
    try:
        case = read_case(conclusion.case)
    except GraphdbgError as error:
        conclusion.notes.append(str(error))
        return
    if case is None:
        return
    conclusion.verified = case.verified
    conclusion.signature = conclusion.signature or (case.signature.text() if case.signature else "")
    if case.original is not None:
        conclusion.original = case.original.nodes, case.original.input_bytes
    conclusion.nearest = next((text.removeprefix(NEAREST) for text in case.told if text.startswith(NEAREST)), "")
    conclusion.needed = needs_sentences(case.needs) or [text for text in case.told if text.startswith("without ")]


def summary(result: Minified, report: dict[str, Any]) -> dict[str, Any]:
    """The `done` event."""
    return {
        "event": "done", "case": str(result.path), "nodes": result.nodes, "input_bytes": result.input_bytes,
        "original_nodes": result.original[0], "original_input_bytes": result.original[1], "queries": result.queries,
        "asked": result.asked, "history": result.history,
        "signature": result.signature.text() if result.signature else None, **_which(result),
        "verified": list(result.verified),
        "verdicts": result.verdicts, "stopped": result.stopped, "notes": result.notes,
        "others": [
            {"signature": other.signature, "count": other.count, "nodes": other.nodes,
             "case": str(other.path) if other.path else None, "command": other.command or None}
            for other in result.also
        ],
        "passes": str(result.passing) if result.passing else None, "difference": result.difference or None,
        "parts": result.parts, "needs": result.needs, "unneeded": result.unneeded,
        "neighbour": result.neighbour or None,
        **result.verdict.flat(), **report,
    }  # fmt: skip


def _which(result: Minified) -> dict[str, str]:
    """`signature_id`, where there is one."""
    return {"signature_id": known} if (known := result.signature_id) else {}


def sentences(result: Minified, report: dict[str, Any]) -> list[str]:
    """The final sentences of a minification."""
    (nodes, size), (shown, times) = result.original, result.verified
    lines = [
        *_first(report),
        f"{counted(nodes, 'node')}, {size_text(size)} of inputs -> "
        f"{counted(result.nodes, 'node')}, {size_text(result.input_bytes)} of inputs",
        queries_text(result.asked, result.verdicts),
    ]
    if times:
        lines.append(f"verified: the saved case fails the same way in {shown} of {counted(times, 'fresh process')}")
    if signature := result.signature_id:
        lines.append(f"signature: {signature} (the same for the same failure elsewhere; graphdbg same A B compares)")
    if result.stopped:
        lines.append(f"stopped early: {result.stopped}")
    lines += needs_sentences(result.needs) or needed(result.parts)
    if result.difference:
        lines.append(NEAREST + (f"{result.passing} ({result.difference})" if result.passing else result.difference))
    for other in result.also:
        lines.append(f"another failure, seen {_times(other.count)}, not followed: {other.signature}")
        if other.path:
            lines.append(f"  {counted(other.nodes, 'node')} in {other.path}; to minify it: {other.command}")
    files = {"repro": report.get("repro_path"), "issue": report.get("issue")}
    return [*lines, *result.notes, *(f"{name}: {path}" for name, path in files.items() if path)]


def of_minified(result: Minified) -> str:
    """The HTML that a notebook shows: the verdict, the result, and the reduced graph."""
    from ...dumps.commands.display import code, commands, lines, shown

    inside = lines(sentences(result, {"issue": None})), code(result.module.code.strip()), commands(result.verdict.next)
    return shown(first_line(result.verdict), tone(result.verdict), *inside)


def _first(report: dict[str, Any]) -> list[str]:
    """Whether a repro shows the failure; nothing where none was looked for."""
    if not report["issue"]:
        return []
    if report["repro"] == "shows":
        return [f"it fails, and repro.py {report['repro_told']}"]
    other = f": repro.py {report['repro_told']}" if report["repro_path"] else ""
    return [f"it fails, and no repro shows it{other}"]


def _times(count: int) -> str:
    return "once" if count == 1 else counted(count, "time")
