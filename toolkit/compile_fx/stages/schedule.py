"""Scheduling: Inductor orders the loops, fuses them, and plans their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _torch as t

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Sets the lowering's `scheduler`."""
    lowering = work.lowering
    lowering.init_wrapper_code()
    lowering._update_scheduler()
    work.made = (len(lowering.scheduler.nodes), "groups")
    t.V.debug.draw_orig_fx_graph(lowering.orig_gm, lowering.scheduler.nodes)
