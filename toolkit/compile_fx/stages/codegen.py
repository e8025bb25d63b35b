"""Code generation: a kernel for each fused group and the wrapper that allocates and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.wrapper_code`, with `.value`, the text, and `work.kernel_code`, which is apart only ahead of time."""
    lowering = work.lowering
    lowering.wrapper_code.push_codegened_graph(lowering)
    lowering.scheduler.codegen()
    work.wrapper_code, work.kernel_code = lowering.wrapper_code.generate(lowering.is_inference)
    lowering.wrapper_code.pop_codegened_graph()
    text = getattr(work.wrapper_code, "value", None)  # a wrapper that is a graph has no text
    work.made = (text.count("\n") + 1, "lines") if text is not None else None
