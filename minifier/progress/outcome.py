"""How a minification ended: its last event, the sentences that say it, and what the files in OUT tell where there is no
such event (it is old, or was killed). No torch.

Reports only what is there; judges nothing.

For example:

    done = ended(Path("small"), story)
    done["nodes"], done["verified"], done["repro_path"]  # -> (3, (3, 3), PosixPath('small/repro.py'))
"""

from __future__ import annotations

from collections.abc import Mapping
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


def ended(out: Path, story: Story) -> dict[str, Any]:
    """The `done` event as far as it is known now, with the paths of the files that are there. A case folder that cannot
    be read is reported in `notes`."""
    there = {name: out / name if (out / name).exists() else None for name in ("case", PASSES, "repro.py", "issue.md")}
    files = dict(zip(("case", "passes", "repro_path", "issue"), there.values(), strict=True))
    nodes, size = story.best or story.original
    known: dict[str, Any] = {"nodes": nodes, "input_bytes": size, "signature": story.signature}
    known |= dict(zip(("original_nodes", "original_input_bytes"), story.original, strict=True))
    done = _of_case(files["case"], story) if story.done is None else story.done
    return known | done | files | ({} if "repro_told" in done else {"repro": ""})


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


def _of_case(folder: Path | None, story: Story) -> dict[str, Any]:
    try:
        case = None if folder is None else read_case(folder)
    except GraphdbgError as error:
        return {"notes": [str(error)]}
    if case is None:
        return {}
    known: dict[str, Any] = {"verified": case.verified, "needs": case.needs}
    known["difference"] = next((text.removeprefix(NEAREST) for text in case.told if text.startswith(NEAREST)), "")
    known["without"] = [text for text in case.told if text.startswith("without ")]
    if case.original is not None:
        known |= {"original_nodes": case.original.nodes, "original_input_bytes": case.original.input_bytes}
    if case.signature and not story.signature:
        known["signature"] = case.signature.text()
    return known


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


def sentences(done: Mapping[str, Any]) -> list[str]:
    """The final sentences of a minification, from its `done` event."""
    nodes, inputs = int(done.get("original_nodes") or 0), int(done.get("original_input_bytes") or 0)
    size = f"{counted(int(done['nodes'] or 0), 'node')}, {size_text(int(done['input_bytes'] or 0))} of inputs"
    lines = [*_first(done), f"{counted(nodes, 'node')}, {size_text(inputs)} of inputs -> {size}" if nodes else size]
    lines += [queries_text(done["asked"], done.get("verdicts") or {})] if done.get("asked") else []
    shown, times = done.get("verified") or (0, 0)
    verified = f"verified: the saved case fails the same way in {shown} of {counted(times, 'fresh process')}"
    lines.append(verified if times else "not verified")
    if signature := done.get("signature_id"):
        lines.append(f"signature: {signature} (the same for the same failure elsewhere; graphdbg same A B compares)")
    if stopped := done.get("stopped"):
        lines.append(f"stopped early: {stopped}")
    lines += needs_sentences(done.get("needs") or []) or needed(done.get("parts") or []) or done.get("without", [])
    if difference := done.get("difference"):
        lines.append(NEAREST + (f"{done['passes']} ({difference})" if done.get("passes") else difference))
    others: list[dict[str, Any]] = done.get("others") or []
    for other in others:
        lines.append(f"another failure, seen {_times(other['count'])}, not followed: {other['signature']}")
        if other["case"]:
            lines.append(f"  {counted(other['nodes'], 'node')} in {other['case']}; to minify it: {other['command']}")
    files = {"repro": done.get("repro_path"), "issue": done.get("issue")}
    return [*lines, *(done.get("notes") or []), *(f"{name}: {path}" for name, path in files.items() if path)]


def sentences_afterwards(done: Mapping[str, Any]) -> list[str]:
    """The same for those who did not follow the search: with the failure, and where the case lies."""
    rest = {"fails with": done["signature"], "case": done["case"]}
    return [*sentences(done), *(f"{name}: {what}" for name, what in rest.items() if what)]


def of_minified(result: Minified) -> str:
    """The HTML that a notebook shows: the verdict, the result, and the reduced graph."""
    from ...dumps.commands.display import code, commands, lines, shown

    inside = lines(sentences(summary(result, {}))), code(result.module.code.strip()), commands(result.verdict.next)
    return shown(first_line(result.verdict), tone(result.verdict), *inside)


def _first(done: Mapping[str, Any]) -> list[str]:
    """Whether a repro shows the failure; nothing where none was looked for."""
    if not done.get("issue") or not done.get("repro"):
        return []
    if done["repro"] == "shows":
        return [f"it fails, and repro.py {done['repro_told']}"]
    other = f": repro.py {done['repro_told']}" if done["repro_path"] else ""
    return [f"it fails, and no repro shows it{other}"]


def _times(count: int) -> str:
    return "once" if count == 1 else counted(count, "time")
