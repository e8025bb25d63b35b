"""Code that AOTAutograd's cache hands out: it goes through align and cudagraphs as well, though no compiler of ours was called.

Torch finishes such a graph by a method of it, in the thread that compiles. While one of our compiles runs in a thread,
that method is our two stages there; other threads get torch's. Must not touch what stock compiles.

>>> with finished_by_us(pipeline):
...     compile_fx(gm, inputs)
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from . import _torch as t
from . import finishing
from .hooks import Function, Hooks
from .pipeline import Pipeline
from .work import Work


def finished_by_us(pipeline: Pipeline) -> AbstractContextManager[None]:
    """While entered, compiled graphs from AOTAutograd's cache go through the last stages of `pipeline`, in this thread."""
    return _hooks.inside(pipeline)


def last_stages(work: Work, pipeline: Pipeline) -> None:
    """From loaded code to what is called."""
    finishing.begin(work)
    pipeline.run("align", work)
    pipeline.run("cudagraphs", work)
    finishing.finish(work)


def _post_compile(usual: Function) -> Function:
    def post_compile(compiled: Any, inputs: Any, constants: Any, kwargs: Any) -> None:
        pipeline: Pipeline | None = _hooks.here
        if pipeline is None or "graph_id" in kwargs:  # with it, an inner compiler calls: stock's, nested in a compile of ours
            usual(compiled, inputs, constants, kwargs)
            return
        backward = kwargs["is_backward"]
        part = "backward" if backward else "inference" if compiled.fx_kwargs.get("is_inference") else "forward"
        work = Work(part, None, inputs, kwargs, compiled=compiled, constants=constants)
        work.cache, work.cache_detail = "hit", "AOTAutograd's cache"
        last_stages(work, pipeline)

    return post_compile


_hooks = Hooks(lambda: [(t.CompiledFxGraph, "post_compile", _post_compile)])
