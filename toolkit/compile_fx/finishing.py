"""What becomes of loaded code around the stages align and cudagraphs, whether or not these run: strides told, wrappers put on.

In stock's order: the strides of the outputs go to whoever traces, CUDA graphs are put on, then inputs are realigned
where nothing was recorded (a recording has aligned inputs of its own), then the whole is made one operator where that is
set. Not saved in any cache.

>>> begin(work); pipeline.run("align", work); pipeline.run("cudagraphs", work); finish(work)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _torch as t
from .alignment import aligning
from .input_names import names_for

if TYPE_CHECKING:
    from .pipeline import Pipeline
    from .work import Work


def later(pipeline: Pipeline, stage: str, work: Work) -> Callable[[str], None]:
    """A function that adds a sentence to the report of the running stage, also when the compiled code is called long after."""
    report = next(one for one in reversed(pipeline.reports) if one.stage == stage and one.part == work.part)
    return lambda sentence: report.notes.append(sentence)


def wraps_itself(work: Work) -> bool:
    """Whether the user's own wrapper takes each partition: then torch does nothing else, and neither do we."""
    return isinstance(work.compiled, t.CompiledFxGraph) and t.customized_partition_wrapper() is not None


def begin(work: Work) -> None:
    """Tells the strides of the outputs to AOTAutograd, which compiles the backward for them."""
    if isinstance(work.compiled, t.CompiledFxGraph) and not wraps_itself(work):
        t.set_tracing_context_output_strides(work.inputs, work.compiled)


def finish(work: Work) -> None:
    """Realigns, unless recorded, what the stage align found; a stage that was skipped has found nothing."""
    compiled = work.compiled
    if not isinstance(compiled, t.CompiledFxGraph):
        compiled.post_compile(work.inputs, work.constants, work.kwargs)  # ahead of time: loads the library
        return
    if wraps_itself(work):
        return
    if not work.recorded:
        t.BoxedBool.disable(work.kwargs["cudagraphs"])  # a forward that is not recorded has no recorded backward
        call: Any = compiled.current_callable
        compiled.current_callable = aligning(
            call, work.to_align, compiled.mutated_input_idxs, names_for(work), work.tell_align
        )
    if compiled._wrap_compiled_regions and compiled.current_callable is not None:
        compiled.current_callable = t.as_one_operator(compiled)
