"""CUDA graphs: where asked for and possible, the call is recorded and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Wraps `work.compiled`."""
    work.compiled.post_compile(work.inputs, work.constants, work.kwargs)
