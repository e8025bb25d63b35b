"""The newest jobs about one graph, kinds apart, as their folders tell: what Replay shows again after the workbench was left.

Reads the folders of jobs only; starts and stops nothing.

>>> [kind for kind in of_graph("myrun/0_0/forward")]
['triage', 'localize']
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .job_files import Kept, recent

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


def age_text(seconds: float) -> str:
    """How long ago, roughly.

    >>> age_text(750)
    '12 min ago'
    """
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.0f} h ago" if seconds < 172_800 else f"{seconds / 86_400:.0f} days ago"
