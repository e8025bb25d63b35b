"""Finishes loaded code around the stages align and cudagraphs, whether or not these run: reports strides and adds
wrappers.

In stock's order: the strides of the outputs go to whoever traces, CUDA graphs are put on, then inputs are realigned
where nothing was recorded (a recording has aligned inputs of its own), then the whole is made one operator where that
is set. Not saved in any cache.

Graphs from AOTAutograd's cache go through align and cudagraphs as well, though no inner compiler was called for them:
torch finishes such a graph by a method of the graph, in the thread that compiles. During a compile of this package that
method runs the two stages in this thread; other threads run torch's, so that stock compiles are unaffected.

"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from .. import torch_private as t
from ..torch_private.replacing import Function, Hooks
from .input_names import name_at, names_for
from .pipeline import Pipeline
from .work import Work

BYTES = 16
Call = Callable[[list[Any]], Any]
Tell = Callable[[str], None]


def in_wrapper(to_check: Sequence[int], mutated: Collection[int], deferred: bool) -> list[int]:
    """The inputs that are checked before the call. Where the generated code copies by itself (2.13), only those that
    are written to."""
    return [index for index in to_check if not deferred or index in mutated]


def aligning(
    call: Call,
    to_check: Sequence[int],
    mutated: Collection[int] = (),
    names: Sequence[Any] = (),
    tell: Tell | None = None,
) -> Call:
    """Wraps `call` in a check of the inputs `to_check`: a misaligned one is copied, and written back if it is one of
    `mutated`.

    `tell` gets a sentence for each input when it is copied for the first time.
    """
    if not to_check:
        return call
    indices, written, reported = tuple(to_check), frozenset(mutated), set[int]()

    def run(inputs: list[Any]) -> Any:
        back: list[tuple[torch.Tensor, torch.Tensor]] = []
        for index in indices:
            given = inputs[index]
            if given.data_ptr() % BYTES:
                copy = inputs[index] = t.clone_preserve_strides(given)
                if index in written:
                    back.append((given, copy))
                if tell is not None and index not in reported:
                    reported.add(index)
                    tell(f"{name_at(names, index)} did not start on {BYTES} bytes: copied where that is so")
        outputs = call(inputs)
        for given, copy in back:
            given.copy_(copy)
        return outputs

    return run


def later(pipeline: Pipeline, stage: str, work: Work) -> Callable[[str], None]:
    """A function that adds a sentence to the report of the running stage, also when the compiled code is called long
    after."""
    report = next(report for report in reversed(pipeline.reports) if report.stage == stage and report.part == work.part)
    return lambda sentence: report.notes.append(sentence)


def customized_wrapper() -> Callable[..., Any] | None:
    """What the user set by `set_customized_partition_wrappers`, where graphs are partitioned."""
    return t.customized_partition_wrapper.wrapper if t.inductor_config.graph_partition else None


def wraps_itself(work: Work) -> bool:
    """Whether the user's own wrapper takes each partition: then neither torch nor this package wraps the call."""
    return isinstance(work.compiled, t.CompiledFxGraph) and customized_wrapper() is not None


def _finish(work: Work) -> None:
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
        compiled.current_callable = _as_one_operator(compiled)


def _as_one_operator(compiled: Any) -> Callable[[list[Any]], Any]:
    """The compiled call, seen by dispatch modes as one operator (the setting `wrap_inductor_compiled_regions`)."""
    call = shown = compiled.current_callable
    region = getattr(compiled, "compile_region_name", None)
    wrap = t.optional("InductorCompiledCallable")
    if wrap is not None:  # with the graph, for fake values
        _restore_graph(compiled)
        shown = wrap(call, compiled._original_gm, compile_region_name=region)
    named = {"name": region} if region is not None and shown is not call else {}

    def run(inputs: list[Any]) -> Any:
        return t.inductor_compiled_code(shown, inputs, **named) if t.is_in_torch_dispatch_mode() else call(inputs)

    return run


def _restore_graph(compiled: Any) -> None:
    """Deserialises a graph that comes from a cache as bytes."""
    if compiled._original_gm is None and compiled._serialized_original_gm is not None:
        mode = t.FakeTensorMode(allow_non_fake_inputs=True, shape_env=t.ShapeEnv())
        compiled._original_gm = t.GraphPickler.loads(compiled._serialized_original_gm, mode)
        compiled._original_gm.recompile()
        compiled._serialized_original_gm = None


def finished_by_us(pipeline: Pipeline) -> AbstractContextManager[None]:
    """While entered, compiled graphs from AOTAutograd's cache go through the last stages of `pipeline`, in this
    thread."""
    return _hooks.inside(pipeline)


def last_stages(work: Work, pipeline: Pipeline) -> None:
    """From loaded code to what is called."""
    if isinstance(work.compiled, t.CompiledFxGraph) and not wraps_itself(work):
        t.set_tracing_context_output_strides(work.inputs, work.compiled)  # AOTAutograd compiles the backward for them
    pipeline.run("align", work)
    pipeline.run("cudagraphs", work)
    _finish(work)


def _post_compile(usual: Function) -> Function:
    def post_compile(compiled: Any, inputs: Any, constants: Any, kwargs: Any) -> None:
        pipeline: Pipeline | None = _hooks.here
        if (
            pipeline is None or "graph_id" in kwargs
        ):  # with it, an inner compiler calls: stock's, nested in a compile of ours
            usual(compiled, inputs, constants, kwargs)
            return
        backward = kwargs["is_backward"]
        part = "backward" if backward else "inference" if compiled.fx_kwargs.get("is_inference") else "forward"
        work = Work(part, None, inputs, kwargs, compiled=compiled, constants=constants)
        work.cache, work.cache_detail = "hit", "AOTAutograd's cache"
        last_stages(work, pipeline)

    return post_compile


_hooks = Hooks(lambda: [(t.CompiledFxGraph, "post_compile", _post_compile)])
