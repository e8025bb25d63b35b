# pyright: basic
"""The plainest form that a case may have on several axes at once: sizes of 1, ones, contiguous; one query for all of them.

Proposes the other passes' edits and applies none itself. Most failures of a kernel or a compiler do not depend on any of it.

>>> together(case)
(['dims 8 1', 'values 0 ones', 'strides 0'], [])
"""

from __future__ import annotations

from ...toolkit.case import Live
from . import NAMES, PASSES

AXES = ("dims", "values", "strides")
"""What is changed together. Switches are not: they change how the case is run."""


def together(case: Live) -> tuple[list[str], list[str]]:
    """The edits (none where nothing can be plainer), and the passes that still have something to propose after them."""
    edits: list[str] = []
    for name in AXES:
        plainest = _plainest(name, case)
        try:
            for edit in plainest:
                case = PASSES[name].apply(case, edit)
        except (RuntimeError, ValueError, TypeError, IndexError):  # not all of them at once
            return [], list(NAMES)
        edits += plainest
    return edits, [name for name in NAMES if PASSES[name].propose(case)]


def _plainest(name: str, case: Live) -> list[str]:
    """The round of a pass after which it would propose least: the one to size 1, the one of ones, all strides."""
    rounds: list[list[str]] = PASSES[name].propose(case)
    if name != "dims":
        return rounds[0] if rounds else []
    to_one = [edits for edits in rounds if all(edit.endswith(" 1") for edit in edits)]
    return (to_one or rounds or [[]])[0]
