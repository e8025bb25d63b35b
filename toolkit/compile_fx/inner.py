"""The inner compile: one ATen graph in, one boxed callable out, through post_grad .. cudagraphs.

What Inductor's `compile_fx_inner` does, by its own order of contexts, counters and caches: the same graph under the
same configuration gets the same code and the same cache key. Torch's experimental modes that compile in another process
are refused.

For example:

    compiled = compile_inner(gm, fakes, is_inference=True)
    compiled([x, y])
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from inspect import currentframe
from typing import Any

import torch

from ...dumps.errors import CannotCompileError, CannotSkipError, UsageError
from .. import torch_private as t
from ..live.entries import has_cpp_compiler
from ..torch_private.replacing import Function, Hooks
from . import logs
from .errors import carried
from .finishing import last_stages
from .pipeline import Pipeline, Stopped, Unfinished
from .stage import reaches
from .work import Work

Generate = Callable[[Work, Pipeline], None]


@contextlib.contextmanager
def apart(pipeline: Pipeline) -> Iterator[None]:
    """Without caches for a pipeline whose code may differ from stock."""
    if not pipeline.changes_code:
        yield
        return
    if t.dynamo_config.caching_precompile:
        raise CannotSkipError(
            "the compile path cannot skip, replace or stop at a stage here",
            "torch._dynamo.config.caching_precompile keeps what is compiled for other processes",
            "turn it off",
        )
    functorch = {"enable_autograd_cache": False, "enable_remote_autograd_cache": False, "bundled_autograd_cache": False}
    inductor = _known(t.inductor_config, {"fx_graph_cache": False, "fx_graph_remote_cache": False})
    with (
        t.functorch_config.patch(_known(t.functorch_config, functorch)),
        t.inductor_config.patch(inductor),
        answered(pipeline.until),
    ):
        yield


def _known(module: Any, settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if hasattr(module, name)}


def load_or(work: Work, pipeline: Pipeline, generate: Generate) -> None:
    """Sets `work.compiled` from the cache, or by `generate`, whose result is saved after a miss. Notes in the last
    report which it was."""
    remote = t.should_use_remote_fx_graph_cache()
    info: dict[str, Any] | None = None
    key: tuple[str, Any] | None = None
    remote_cache = None
    started_ns = time.time_ns()
    _mark_static(work)
    cached = _may_cache(work, remote)
    if cached:
        key, info = t.FxGraphCache.prepare_key(work.gm, work.inputs, work.kwargs, work.inputs_to_check, remote)
        if key is not None:
            remote_cache = t.FxGraphCache.get_remote_cache() if remote else None
            work.compiled, info = t.FxGraphCache.load_with_key(
                *key,
                work.inputs,
                t.inductor_config.fx_graph_cache,
                remote_cache,
                is_backward=work.kwargs.get("is_backward", False),
                constants=work.constants,
            )
    state = info["cache_state"] if info is not None else "off"
    work.cache, work.cache_detail = state, str((info or {}).get("cache_bypass_reason") or (key[0] if key else ""))
    if state == "hit":
        _stamp(work, key)
    elif state == "miss":
        assert key is not None and info is not None
        bundle = _bundled(work, pipeline, generate)
        work.compiled._time_taken_ns = info["time_taken_ns"] = time.time_ns() - started_ns
        _stamp(work, key)
        if bundle is not None:
            info["triton_bundler_meta"] = str(bundle)
        t.FxGraphCache._save_graph(key[0], work.compiled, work.inputs, t.inductor_config.fx_graph_cache, remote_cache)
    elif t.functorch_config.bundled_autograd_cache:
        _bundled(work, pipeline, generate)
    else:
        try:
            generate(work, pipeline)
        except UsageError:
            raise  # of our own, such as a pass that this graph cannot do without
        except Exception as error:  # noqa: BLE001
            raise t.InductorError(error, currentframe()).with_traceback(error.__traceback__) from None
    _tell(work, pipeline, info, started_ns, remote)


def _may_cache(work: Work, remote: bool) -> bool:
    t.init_backend_registration()
    wrappers = (
        t.get_wrapper_codegen_for_device(device.type, t.inductor_config.cpp_wrapper, t.inductor_config.fx_wrapper)
        for device in t.get_all_devices(work.gm)
    )
    supported = all(wrapper.supports_caching for wrapper in wrappers if wrapper is not None)
    used = (
        not t.inductor_config.force_disable_caches
        and bool(t.inductor_config.fx_graph_cache or remote)
        and not t.V.aot_compilation
        and supported
        and not t.functorch_config.bundled_autograd_cache
    )
    t.set_feature_use("fx_cache", used)
    return used


def _mark_static(work: Work) -> None:
    """Marks inputs that stay in place, which the cache key depends on."""
    for index in work.kwargs["static_input_idxs"]:
        value: Any = work.inputs[index] if index < len(work.inputs) else None
        if isinstance(value, torch.Tensor) and t.is_gpu(value.device.type):
            value._is_inductor_static = True  # pyright: ignore[reportAttributeAccessIssue]


def _bundled(work: Work, pipeline: Pipeline, generate: Generate) -> Any:
    """Generates code and collects Triton's results for the cache; returns the bundle's metadata."""
    t.TritonBundler.begin_compile()
    try:
        generate(work, pipeline)
        bundle, metadata = t.TritonBundler.collect()
        work.compiled.set_triton_bundle(bundle)
    except (t.ShortenTraceback, t.SkipFrame):
        raise
    except Exception as error:  # noqa: BLE001
        raise t.InductorError(error, currentframe()).with_traceback(error.__traceback__) from None
    finally:
        t.TritonBundler.end_compile()
    return metadata


def _stamp(work: Work, key: tuple[str, Any] | None) -> None:
    assert key is not None
    work.compiled._fx_graph_cache_key, work.compiled._fx_graph_cache_debug_lines = key


def _tell(work: Work, pipeline: Pipeline, info: dict[str, Any] | None, started_ns: int, remote: bool) -> None:
    """Emits torch's own events of a cache lookup and notes it in the report."""
    state = info["cache_state"] if info is not None else "disabled"
    event = dict(info) if info else {}
    t.CompileEventLogger.instant(f"fx_graph_cache_{state}", metadata=event, time_ns=started_ns)
    t.CompileEventLogger.try_add_pt2_compile(
        "inductor_compile",
        cache_state=state,
        cache_event_time=started_ns,
        key=event.get("key"),
        components=event.get("components"),
        cache_bypass_reason=event.get("cache_bypass_reason") if info else "cache not enabled",
        remote_cache_enabled=remote,
        local_cache_enabled=t.inductor_config.fx_graph_cache,
    )
    if info is not None:
        logs.trace_text(f"fx_graph_cache_{state}", lambda: json.dumps(event), "json")
    pipeline.tell_cache(work)


def answered(until: str | None) -> contextlib.AbstractContextManager[None]:
    """For a compile that stops after `until`: torch's check that vector instructions compile succeeds where there is no
    C++ compiler, since none is needed.

    Torch keeps the answer for the life of the process; nothing can be built in it anyway.
    """
    return contextlib.nullcontext() if reaches(until, "load") or has_cpp_compiler() else _hooks.inside(True)


def _answered(usual: Function) -> Function:
    return lambda units, code: True if _hooks.here else usual(units, code)


_hooks = Hooks(lambda: [(*t.home("VecISA.check_build"), _answered)])


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
        raise CannotCompileError(
            "the compile path cannot run", "TORCHINDUCTOR_FX_COMPILE_MODE asks for another process", "unset it"
        )
    with _around(kwargs), apart(pipeline):
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
        load_or(work, pipeline, _generate)
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
    """The timer of torch's metrics for code generation; ahead of time torch has another."""
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
    returned = t.output_node(gm).args[0]
    if not isinstance(returned, (tuple, list)):
        raise CannotCompileError(
            "the graph cannot be compiled as it is",
            f"it returns {returned} and not a tuple",
            "return a tuple, or call compile_fx, which wraps such graphs",
        )


def _log(doing: str, kwargs: dict[str, Any]) -> None:
    direction = "BACKWARDS" if kwargs["is_backward"] else "FORWARDS"
    _step_log()(logging.INFO, f"torchinductor {doing} {direction} graph {kwargs['graph_id']}")
