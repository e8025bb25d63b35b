"""AOTAutograd on Dynamo's graph: functionalised, decomposed ATen graphs, given to the compilers of `capturing.py` as they are
made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _torch as t

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.compiled`. `work.kwargs` are AOTAutograd's; the stages behind this one run inside it."""
    if work.export is not None:
        work.export(work)
        return
    hits = t.counters["aot_autograd"]["autograd_cache_hit"]
    work.compiled = t.dynamo_common.aot_autograd(**work.kwargs)(work.gm, work.inputs)
    if t.counters["aot_autograd"]["autograd_cache_hit"] > hits:
        work.cache, work.cache_detail = "hit", "AOTAutograd's cache"
        work.notes.append("taken from AOTAutograd's cache, forward and backward: the stages from joint on did not run")
        pipeline.tell_cache(work)
