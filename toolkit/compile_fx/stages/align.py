"""Alignment: which inputs must start on 16 bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Says which inputs are looked at in each call."""
    checked = len(work.inputs_to_check)
    work.notes.append(f"{checked} inputs are checked in each call" if checked else "no input needs a check")
