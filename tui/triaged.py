"""The last triage of a graph that was run from the workbench: which rung fails first. Reads the folders of jobs only.

>>> first_failing("myrun/0_0/forward")
'inductor'
"""

from __future__ import annotations

import json

from . import job_files


def first_failing(graph: str) -> str | None:
    """The first failing rung of the newest triage of this graph that has ended; None where there was none or nothing failed."""
    for kept in job_files.recent():
        words = kept.record.words
        if words[:1] == ["triage"] and graph in words and kept.state in ("ended", "gone"):
            return _told(kept)
    return None


def _told(kept: job_files.Kept) -> str | None:
    try:
        lines = (kept.folder / job_files.OUT_FILE).read_text(errors="replace").splitlines()
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
