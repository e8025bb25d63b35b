"""The inner compile: one ATen graph in, one boxed callable out, through post_grad .. cudagraphs.

What Inductor's `compile_fx_inner` does, by its own order of contexts, counters and caches: the same graph under the
same configuration gets the same code and the same cache key. Must not compile in another process (torch's experimental
modes for that are refused).

For example:

    compiled = compile_inner(gm, fakes, is_inference=True)
    compiled([x, y])
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...dumps.errors import UsageError
from .. import torch_private as t
from . import caching, logs
from .errors import carried
from .finishing import last_stages
from .pipeline import Pipeline, Stopped, Unfinished
from .work import Work

_DEFAULTS: dict[str, Any] = {
    "cudagraphs": None,
    "static_input_idxs": (),
    "is_backward": False,
    "graph_id": None,
    "cpp_wrapper": False,
    "fx_wrapper": False,
    "is_inference": False,
    "boxed_forward_device_index": None,
    "layout_opt": None,
    "extern_node_serializer": None,
}


def compile_inner(
    gm: Any,
    example_inputs: Sequence[Any],
    compile_region_name: str | None = None,
    *,
    pipeline: Pipeline | None = None,
    **kwargs: Any,
) -> Any:
    """Compiles a graph that returns a tuple, and takes ownership of it. `kwargs` are those of Inductor's inner
    compiler.

    Returns torch's object for a compiled graph, which takes one list (ahead of time: with the library's path); an
    `Unfinished` where the pipeline stops. Raises what a stage raises, wrapped in torch's InductorError as stock does.
    """
    pipeline = pipeline or Pipeline()
    for name, value in _DEFAULTS.items():
        kwargs.setdefault(name, value)
    if t.fx_compile_mode.name != "NORMAL" or t.fx_compile_async or t.fx_compile_progressive:
        raise UsageError(
            "the compile path cannot run", "TORCHINDUCTOR_FX_COMPILE_MODE asks for another process", "unset it"
        )
    with _around(kwargs), caching.apart(pipeline):
        compile_one = functools.partial(_compile, pipeline=pipeline)
        try:
            return t.wrap_compiler_debug(compile_one, compiler_name="inductor")(
                gm, example_inputs, compile_region_name=compile_region_name, **kwargs
            )
        except Stopped:
            return Unfinished(pipeline.until or "")
        except Exception as error:
            carried(error)  # what wraps the error of a stage has its account, too
            raise


@contextlib.contextmanager
def _around(kwargs: dict[str, Any]) -> Iterator[None]:
    """The context of one inner compile, as stock's; a backward may enter it long after the whole compile has ended."""
    with contextlib.ExitStack() as stack:
        if kwargs["cpp_wrapper"] and t.takes("get_cpp_wrapper_config", "log_cudagraph_skip"):
            stack.enter_context(t.inductor_config.patch(t.get_cpp_wrapper_config(log_cudagraph_skip=False)))
        stack.enter_context(t.modes_off())
        stack.enter_context(t.use_lazy_graph_module(t.dynamo_config.use_lazy_graph_module))
        stack.enter_context(
            t.dynamo_timed(
                "compile_fx_inner",
                phase_name="inductor_compile",
                log_pt2_compile_event=True,
                log_waitcounter=True,
                waitcounter_name_override="compile_inductor",
                dynamo_compile_column_us="inductor_cumulative_compile_time_us",
            )
        )
        stack.enter_context(t.with_fresh_cache_if_config())
        stack.enter_context(t.DebugContext())
        t.CompileEventLogger.pt2_compile("inductor_compile", is_backward=kwargs["is_backward"])
        yield


@functools.cache
def _step_log() -> Callable[..., None]:
    """Torch's numbered log of a compile's steps."""
    return t.get_step_logger(t.compile_log)


def _compile(
    gm: Any, example_inputs: Sequence[Any], compile_region_name: str | None = None, *, pipeline: Pipeline, **kwargs: Any
) -> Any:
    clear = t.CompiledTritonKernels.cache_clear
    if t.optional("use_pipelined_autotuning", lambda: False)():  # torch's pool of autotuning processes
        t.AutotuneProcessPool.get_instance().warm_up()
    clear()  # futures of a former compile may not be valid any more
    if _is_empty(gm):
        t.LazyGraphModule.force_recompile(gm)
        return t.make_boxed_func(gm.forward)
    part = "backward" if kwargs["is_backward"] else "inference" if kwargs["is_inference"] else "forward"
    work = Work(part, gm, example_inputs, kwargs, compile_region_name=compile_region_name)
    work.inputs_to_check = t.get_input_idxs_to_check(example_inputs, kwargs["static_input_idxs"])
    _refuse_single_output(gm)
    if kwargs["cudagraphs"] is None:
        kwargs["cudagraphs"] = t.BoxedBool(t.inductor_config.triton.cudagraphs)
    if t.inductor_config.save_args:
        region = (
            {"compile_region_name": compile_region_name} if t.takes("CompiledFxGraph", "compile_region_name") else {}
        )
        t.save_args_for_compile_fx_inner(gm, example_inputs, **region, **kwargs)
    work.constants = t.CompiledFxGraphConstantsWithGm(gm)
    with t.dynamo_timed("fx_codegen_and_compile", log_pt2_compile_event=True, log_waitcounter=True):
        caching.load_or(work, pipeline, _generate)
        if isinstance(work.compiled, t.CompiledFxGraph) and t.takes("CompiledFxGraph", "compile_region_name"):
            work.compiled.compile_region_name = compile_region_name
        last_stages(work, pipeline)
        policy = getattr(t.inductor_config, "cudagraph_policy", None)
        if policy is not None:
            work.compiled = policy.wrap_output(work.compiled)
    logs.of_products()
    clear()
    _log("done compiling", kwargs)
    return work.compiled


def _generate(work: Work, pipeline: Pipeline) -> None:
    """From the graph to loaded code, without caches; sets `work.compiled`."""
    with t.preserve_rng_state(), work.open:
        _log("compiling", work.kwargs)
        work.counters_before = t.counters["inductor"].copy()
        pipeline.run("post_grad", work)
        if work.fake_mode is None:
            _prepare_without_passes(work)
        pipeline.run("lower", work)
        with t.dynamo_timed("GraphLowering.compile_to_fn", log_pt2_compile_event=True), _timed_as_module(work):
            _write_code(work, pipeline)
            pipeline.run("load", work)


def _timed_as_module(work: Work) -> contextlib.AbstractContextManager[Any]:
    """The timer of torch's metrics for code generation; ahead of time it has another."""
    if work.lowering is None or work.lowering.aot_mode:
        return contextlib.nullcontext()
    return t.dynamo_timed(
        "GraphLowering.compile_to_module",
        phase_name="code_gen",
        log_pt2_compile_event=True,
        dynamo_compile_column_us="inductor_code_gen_cumulative_compile_time_us",
    )


def _prepare_without_passes(work: Work) -> None:
    """Where post_grad was skipped or replaced: lowering needs fake values and sizes all the same."""
    from .stages import graphs

    graphs.prepare(work)
    with t.V.set_fake_mode(work.fake_mode):
        graphs.keep_text(work)


def _write_code(work: Work, pipeline: Pipeline) -> None:
    """Schedule and codegen. Ahead of time on a GPU torch writes the code twice, so its own function is called, with
    ours inside."""
    lowering = work.lowering

    def codegen() -> tuple[Any, Any]:
        with t.dynamo_timed("GraphLowering.codegen", log_pt2_compile_event=True):
            pipeline.run("schedule", work)
            pipeline.run("codegen", work)
        return work.wrapper_code, work.kernel_code

    lowering.codegen = codegen
    try:
        if lowering.cpp_wrapper:
            lowering.codegen_with_cpp_wrapper()
        else:
            codegen()
    finally:
        del lowering.codegen  # it would keep the whole compile alive


def _is_empty(gm: Any) -> bool:
    return t.count_calls(gm.graph) == 0 and not t.V.aot_compilation and not t.functorch_config.bundled_autograd_cache


def _refuse_single_output(gm: Any) -> None:
    made = t.output_node(gm).args[0]
    if not isinstance(made, (tuple, list)):
        raise UsageError(
            "the graph cannot be compiled as it is",
            f"it returns {made} and not a tuple",
            "return a tuple, or call compile_fx, which wraps such graphs",
        )


def _log(doing: str, kwargs: dict[str, Any]) -> None:
    direction = "BACKWARDS" if kwargs["is_backward"] else "FORWARDS"
    _step_log()(logging.INFO, f"torchinductor {doing} {direction} graph {kwargs['graph_id']}")
