"""The newest jobs about one graph, kinds apart, as their folders tell: what Replay shows again, and which rung failed.

Reads the folders of jobs only; starts and stops nothing.

>>> [kind for kind in of_graph("myrun/0_0/forward")]
['triage', 'localize']
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .job_files import OUT_FILE, Kept, recent

LINES = "--json-lines"


def kind_of(words: Sequence[str]) -> str:
    """triage, values, localize or bisect, as Replay starts them; empty for anything else."""
    if words[:1] == ["triage"] and LINES in words:
        return "triage"
    if words[:1] == ["replay"] and "--values" in words and LINES in words:
        return "values"
    return words[0] if words[:1] in (["localize"], ["bisect"]) and "--json" in words else ""


def of_graph(graph: str) -> dict[str, Kept]:
    """The newest job of each kind."""
    wanted = Path(graph).absolute()
    found: dict[str, Kept] = {}
    for kept in recent():
        words = kept.record.words
        kind = kind_of(words)
        if kind and len(words) > 1 and kind not in found and Path(kept.record.cwd, words[1]) == wanted:
            found[kind] = kept
    return found


def first_failing(graph: str) -> str | None:
    """The first failing rung of the newest triage of this graph that has ended; None where there was none or nothing failed."""
    for kept in recent():
        words = kept.record.words
        if words[:1] == ["triage"] and graph in words and kept.state in ("ended", "gone"):
            return _told(kept)
    return None


def _told(kept: Kept) -> str | None:
    try:
        lines = (kept.folder / OUT_FILE).read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            first = json.loads(line).get("first_failing")
        except (ValueError, AttributeError):
            continue
        if isinstance(first, str):
            return first
    return None
