"""Code that AOTAutograd's cache hands out: it goes through align and cudagraphs as well, though no compiler of ours was called.

Torch finishes such a graph by a method of it, in the thread that compiles. While one of our compiles runs in a thread,
that method is our two stages there; other threads get torch's. Must not touch what stock compiles.

>>> with finished_by_us(pipeline):
...     compile_fx(gm, inputs)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from . import _torch as t
from . import finishing
from .pipeline import Pipeline
from .work import Work

_lock = threading.Lock()
_here = threading.local()
_running = 0
_usual: Any = None


@contextlib.contextmanager
def finished_by_us(pipeline: Pipeline) -> Iterator[None]:
    """While entered, compiled graphs from AOTAutograd's cache go through the last stages of `pipeline`, in this thread."""
    outer = getattr(_here, "pipeline", None)
    _here.pipeline = pipeline
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _here.pipeline = outer


def last_stages(work: Work, pipeline: Pipeline) -> None:
    """From loaded code to what is called."""
    finishing.begin(work)
    pipeline.run("align", work)
    pipeline.run("cudagraphs", work)
    finishing.finish(work)


def _count(by: int) -> None:
    global _running, _usual
    with _lock:
        if _running == 0:
            _usual = t.CompiledFxGraph.post_compile
            t.CompiledFxGraph.post_compile = _post_compile
        _running += by
        if _running == 0:
            t.CompiledFxGraph.post_compile = _usual


def _post_compile(compiled: Any, inputs: Any, constants: Any, kwargs: Any) -> None:
    pipeline: Pipeline | None = getattr(_here, "pipeline", None)
    if pipeline is None or "graph_id" in kwargs:  # with it, an inner compiler calls: stock's, nested in a compile of ours
        _usual(compiled, inputs, constants, kwargs)
        return
    backward = kwargs["is_backward"]
    part = "backward" if backward else "inference" if compiled.fx_kwargs.get("is_inference") else "forward"
    work = Work(part, None, inputs, kwargs, compiled=compiled, constants=constants)
    work.cache, work.cache_detail = "hit", "AOTAutograd's cache"
    last_stages(work, pipeline)
