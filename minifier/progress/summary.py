"""The end of a minification in words and as the last line of --json. Prints nothing.

>>> sentences(result, {"repro": "small/repro.py"})[0]
'53 nodes, 6048 bytes of inputs -> 3 nodes, 4 bytes of inputs'
"""

from __future__ import annotations

from typing import Any

from ...dumps.amounts import size_text
from ...dumps.wording import counted
from ..minified import Minified
from ..needs import sentences as needs_sentences
from ..results import needed
from .telling import queries_text


def summary(result: Minified, report: dict[str, Any]) -> dict[str, Any]:
    """The `done` event."""
    return {
        "event": "done", "case": str(result.path), "nodes": result.nodes, "input_bytes": result.input_bytes,
        "original_nodes": result.original[0], "original_input_bytes": result.original[1], "queries": result.queries,
        "asked": result.asked, "history": result.history,
        "signature": result.signature.text() if result.signature else None, "verified": list(result.verified),
        "verdicts": result.verdicts, "stopped": result.stopped, "notes": result.notes,
        "others": [
            {"signature": other.signature, "count": other.count, "nodes": other.nodes,
             "case": str(other.path) if other.path else None, "command": other.command or None}
            for other in result.also
        ],
        "passes": str(result.passing) if result.passing else None, "difference": result.difference or None,
        "parts": result.parts, "needs": result.needs, "unneeded": result.unneeded, "neighbour": result.neighbour or None,
        "record": result.record.plain(),
        **report,
    }  # fmt: skip


def sentences(result: Minified, report: dict[str, Any]) -> list[str]:
    """What is said at the end."""
    (nodes, size), (shown, times) = result.original, result.verified
    lines = [
        f"{counted(nodes, 'node')}, {size_text(size)} of inputs -> "
        f"{counted(result.nodes, 'node')}, {size_text(result.input_bytes)} of inputs",
        queries_text(result.asked, result.verdicts),
    ]
    if times:
        lines.append(f"verified: the saved case fails the same way in {shown} of {counted(times, 'fresh process')}")
    if result.stopped:
        lines.append(f"stopped early: {result.stopped}")
    lines += needs_sentences(result.needs) or needed(result.parts)
    if result.passing:
        lines.append(f"nearest case that passes: {result.passing} ({result.difference})")
    for other in result.also:
        lines.append(f"another failure, seen {_times(other.count)}, not followed: {other.signature}")
        if other.path:
            lines.append(f"  {counted(other.nodes, 'node')} in {other.path}; to minify it: {other.command}")
    lines += result.notes
    lines += [f"{name}: {path}" for name, path in report.items() if name in ("repro", "issue") and path]
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else counted(count, "time")
