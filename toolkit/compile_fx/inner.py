"""The inner compile: one ATen graph in, one boxed callable out, through post_grad .. cudagraphs.

Does what Inductor's `compile_fx_inner` does, with the same order of contexts, counters and caches: the same graph under
the same configuration gets the same code and the same cache key. Torch's experimental modes that compile in another
process are refused.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import currentframe
from typing import Any

import torch

from ...dumps.errors import CannotCompileError, CannotSkipError, UsageError
from .. import torch_private as t
from ..live.entries import has_cpp_compiler
from ..torch_private.replacing import Function, Hooks
from . import graphs
from .calls import last_stages, part_named
from .errors import carried
from .pipeline import Pipeline, Stopped, Unfinished
from .stage import InnerOptions, Lowered, Work, reaches


@contextlib.contextmanager
def apart(pipeline: Pipeline) -> Iterator[None]:
    """Turns compile caches off for the block if the pipeline's code may differ from stock's."""
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


def load_or_generate(work: Work, options: InnerOptions, pipeline: Pipeline) -> None:
    """Sets `work.compiled` from the cache, or by the stages, whose result is saved after a miss. Notes which it was."""
    remote = t.should_use_remote_fx_graph_cache()
    info: dict[str, Any] | None = None
    key: tuple[str, Any] | None = None
    remote_cache = None
    started_ns = time.time_ns()
    for index in options.arguments.get("static_input_idxs", ()):  # the key depends on which inputs stay in place
        value: Any = work.inputs[index] if index < len(work.inputs) else None
        if isinstance(value, torch.Tensor) and t.is_gpu(value.device.type):
            value._is_inductor_static = True  # pyright: ignore[reportAttributeAccessIssue]
    if _may_cache(work, remote):
        key, info = t.FxGraphCache.prepare_key(work.gm, work.inputs, options.arguments, options.to_check, remote)
        if key is not None:
            remote_cache = t.FxGraphCache.get_remote_cache() if remote else None
            work.compiled, info = t.FxGraphCache.load_with_key(
                *key,
                work.inputs,
                t.inductor_config.fx_graph_cache,
                remote_cache,
                is_backward=options.arguments.get("is_backward", False),
                constants=options.constants,
            )
    state = info["cache_state"] if info is not None else "off"
    compiled: Any = work.compiled
    if state == "miss":
        assert key is not None and info is not None
        compiled, bundle = _bundled(work, options, pipeline)
        compiled._time_taken_ns = info["time_taken_ns"] = time.time_ns() - started_ns
        if bundle is not None:
            info["triton_bundler_meta"] = str(bundle)
    elif state != "hit" and t.functorch_config.bundled_autograd_cache:
        _bundled(work, options, pipeline)
    elif state != "hit":
        try:
            _generate(work, options, pipeline)
        except UsageError:
            raise  # of our own, such as a pass that this graph cannot do without
        except Exception as error:  # noqa: BLE001
            raise t.InductorError(error, currentframe()).with_traceback(error.__traceback__) from None
    if state in ("hit", "miss") and key is not None:
        compiled._fx_graph_cache_key, compiled._fx_graph_cache_debug_lines = key
        if state == "miss":
            t.FxGraphCache._save_graph(key[0], compiled, work.inputs, t.inductor_config.fx_graph_cache, remote_cache)
    _tell(info, started_ns, remote)
    detail = (info or {}).get("cache_bypass_reason") or (key[0] if key else "")
    pipeline.caches.append((work.part, state, str(detail)))


def _may_cache(work: Work, remote: bool) -> bool:
    t.init_backend_registration()
    wrappers = (
        t.get_wrapper_codegen_for_device(device.type, t.inductor_config.cpp_wrapper, t.inductor_config.fx_wrapper)
        for device in t.get_all_devices(work.gm)
    )
    supported = all(wrapper.supports_caching for wrapper in wrappers if wrapper is not None)
    asked = bool(t.inductor_config.fx_graph_cache or remote) and not t.inductor_config.force_disable_caches
    used = asked and supported and not t.V.aot_compilation and not t.functorch_config.bundled_autograd_cache
    t.set_feature_use("fx_cache", used)
    return used


def _bundled(work: Work, options: InnerOptions, pipeline: Pipeline) -> tuple[Any, Any]:
    """Generates code and collects Triton's results for the cache; returns the compiled graph and the bundle's
    metadata."""
    t.TritonBundler.begin_compile()
    try:
        _generate(work, options, pipeline)
        compiled: Any = work.compiled
        bundle, metadata = t.TritonBundler.collect()
        compiled.set_triton_bundle(bundle)
    except (t.ShortenTraceback, t.SkipFrame):
        raise
    except Exception as error:  # noqa: BLE001
        raise t.InductorError(error, currentframe()).with_traceback(error.__traceback__) from None
    finally:
        t.TritonBundler.end_compile()
    return compiled, metadata


def _tell(info: dict[str, Any] | None, started_ns: int, remote: bool) -> None:
    """Emits torch's own events of a cache lookup."""
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
        graphs.trace_text(f"fx_graph_cache_{state}", lambda: json.dumps(event), "json")


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
    for name, value in _DEFAULTS.items():  # after the given ones: the cache key has their order
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
    if t.count_calls(gm.graph) == 0 and not t.V.aot_compilation and not t.functorch_config.bundled_autograd_cache:
        t.LazyGraphModule.force_recompile(gm)
        return t.make_boxed_func(gm.forward)
    _refuse_single_output(gm)
    if kwargs["cudagraphs"] is None:
        kwargs["cudagraphs"] = t.BoxedBool(t.inductor_config.triton.cudagraphs)
    names_region = t.takes("CompiledFxGraph", "compile_region_name")
    if t.inductor_config.save_args:
        region = {"compile_region_name": compile_region_name} if names_region else {}
        t.save_args_for_compile_fx_inner(gm, example_inputs, **region, **kwargs)
    options = InnerOptions(
        kwargs,
        t.CompiledFxGraphConstantsWithGm(gm),
        t.get_input_idxs_to_check(example_inputs, kwargs["static_input_idxs"]),
        compile_region_name,
    )
    work = Work(part_named(kwargs["is_backward"], kwargs["is_inference"]), gm, example_inputs, options)
    with t.dynamo_timed("fx_codegen_and_compile", log_pt2_compile_event=True, log_waitcounter=True):
        load_or_generate(work, options, pipeline)
        compiled: Any = work.compiled
        if isinstance(compiled, t.CompiledFxGraph) and names_region:
            compiled.compile_region_name = compile_region_name
        last_stages(work, options, pipeline)
        compiled = work.compiled
        policy = getattr(t.inductor_config, "cudagraph_policy", None)
        if policy is not None:
            compiled = policy.wrap_output(compiled)
    _log_products()
    clear()
    _log("done compiling", kwargs)
    return compiled


def _generate(work: Work, options: InnerOptions, pipeline: Pipeline) -> None:
    """From the graph to loaded code, without caches; sets `work.compiled`."""
    with t.preserve_rng_state(), options.open:
        _log("compiling", options.arguments)
        pipeline.run("post_grad", work)
        if work.prepared is None:  # skipped or replaced: lowering needs fake values and sizes all the same
            work.prepared = graphs.prepare(work, options, passes=False)
        pipeline.run("lower", work)
        with t.dynamo_timed("GraphLowering.compile_to_fn", log_pt2_compile_event=True), _timed_as_module(work.lowered):
            _write_code(work, pipeline)
            pipeline.run("load", work)


def _timed_as_module(lowered: Lowered | None) -> contextlib.AbstractContextManager[Any]:
    """The timer of torch's metrics for code generation; ahead of time torch has another."""
    if lowered is None or lowered.graph.aot_mode:
        return contextlib.nullcontext()
    return t.dynamo_timed(
        "GraphLowering.compile_to_module",
        phase_name="code_gen",
        log_pt2_compile_event=True,
        dynamo_compile_column_us="inductor_code_gen_cumulative_compile_time_us",
    )


def _write_code(work: Work, pipeline: Pipeline) -> None:
    """Schedule and codegen. Ahead of time on a GPU torch writes the code twice, so its own function is called, with
    ours inside."""
    assert work.lowered is not None
    lowering: Any = work.lowered.graph

    def codegen() -> tuple[Any, Any]:
        with t.dynamo_timed("GraphLowering.codegen", log_pt2_compile_event=True):
            pipeline.run("schedule", work)
            pipeline.run("codegen", work)
        assert work.coded is not None
        return work.coded.wrapper, work.coded.kernels

    lowering.codegen = codegen
    try:
        if lowering.cpp_wrapper:
            lowering.codegen_with_cpp_wrapper()
        else:
            codegen()
    finally:
        del lowering.codegen  # it would keep the whole compile alive


def _refuse_single_output(gm: Any) -> None:
    returned = t.output_node(gm).args[0]
    if not isinstance(returned, (tuple, list)):
        raise CannotCompileError(
            "the graph cannot be compiled as it is",
            f"it returns {returned} and not a tuple",
            "return a tuple, or call compile_fx, which wraps such graphs",
        )


def _log(doing: str, kwargs: Mapping[str, Any]) -> None:
    direction = "BACKWARDS" if kwargs["is_backward"] else "FORWARDS"
    _step_log()(logging.INFO, f"torchinductor {doing} {direction} graph {kwargs['graph_id']}")


def _log_products() -> None:
    """How many matrix products of which sizes were lowered so far (TORCH_LOGS=inductor): keys of the counter end in
    batch (if any), m, n and k."""
    log = t.compile_log
    if not log.isEnabledFor(logging.INFO):
        return
    line = "{:<30} | {:<20} | {:<20} | {:<20} | {:<20} | {:<20}"
    log.info("Overview info of inductor aten mms: ")
    log.info(line.format("Name", "B", "M", "N", "K", "Count"))
    log.info("-" * 130)
    for key, count in t.counters["aten_mm_info"].items():
        log.info(line.format(*product_of(key), count))
        log.info("-" * 130)


def product_of(key: str) -> tuple[str, str, str, str, str]:
    """Name, batch, m, n and k from a key of torch's counter `aten_mm_info`; "?" where the key has none.

    >>> product_of("aten.bmm_2_3_4_5")
    ('aten.bmm', '2', '3', '4', '5')
    """
    name, *sizes = key.rsplit("_", 3)
    if len(sizes) < 3:
        return key, "-", "?", "?", "?"
    m, n, k = sizes
    start, _, batch = name.rpartition("_")
    return (start, batch, m, n, k) if start.endswith(("bmm", "baddbmm")) else (name, "-", m, n, k)
