"""Compiles a saved graph from the stage at which it was recorded, with the recorded arguments.

What lies before that stage is not run again: a forward graph starts at post_grad, a joint graph at joint, a post-grad
graph at lower. The entry points are those of the rung `inductor`, with the stages of this package in place of torch's.

"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ...dumps.errors import CannotCompileError, OptionsExcludeError, UnknownWordError
from .. import torch_private as t
from ..live import entries
from ..live.entries import compiling
from ..live.rung import Compiled
from ..live.spec import ReplaySpec
from ..rungs import inductor
from .capturing import Compilers, compile_ahead, partitioned_by
from .errors import told
from .finishing import finished_by_us
from .inner import apart, compile_inner
from .input_names import listed, name_of
from .pipeline import Action, Observer, Pipeline, Stopped, Unfinished
from .work import Work

_CompileGraph = Callable[[Any, Sequence[Any]], Any]


def compile_fx(
    gm: Any,
    example_inputs: Sequence[Any],
    inner_compile: Callable[..., Any] | None = None,
    config_patches: dict[str, Any] | None = None,
    decompositions: dict[Any, Callable[..., Any]] | None = None,
    ignore_shape_env: bool = False,
    compile_region_name: str | None = None,
    *,
    observers: Iterable[Observer] = (),
    skip: Iterable[str] = (),
    replace: Mapping[str, Action] | None = None,
    until: str | None = None,
    pipeline: Pipeline | None = None,
) -> Any:
    """Compiles a graph, of which it takes ownership, for example inputs (real or fake tensors, sizes, nested
    containers).

    The first seven parameters are those of Inductor's function of this name, and so is what comes back: a callable that
    takes the inputs one by one; ahead of time the library's path. `observers`, `skip`, `replace` and `until` make a
    Pipeline, or one is given. Raises UsageError for what cannot be skipped or is on the wrong device, and what the
    stages raise.

    >>> compiled = compile_fx(torch.fx.symbolic_trace(model), [x])
    >>> compiled(x).shape
    torch.Size([3, 2])
    """
    observers, skip = list(observers), (skip,) if isinstance(skip, str) else tuple(skip)
    if pipeline is not None and (observers or skip or replace or until):
        raise OptionsExcludeError(
            "a pipeline was given, and observers, skip, replace or until beside it",
            "it has its own of these",
            "name them where the Pipeline is made",
        )
    pipeline = pipeline or Pipeline(observers, skip, replace, until)
    inner = inner_compile or functools.partial(compile_inner, pipeline=pipeline)
    patches = config_patches or {}
    if patches:  # around inner, too: a backward is compiled when this has ended
        inner = t.inductor_config.patch(patches)(inner)
    if t.takes("CompiledFxGraph", "compile_region_name"):
        inner = functools.partial(inner, compile_region_name=compile_region_name)
    make_decompositions = t.select_decomp_table if decompositions is None else _Table(decompositions)
    main = functools.partial(_main, pipeline, make_decompositions, ignore_shape_env, compile_region_name)
    try:
        with apart(pipeline), t.inductor_config.patch(patches):
            return _configured(gm, example_inputs, inner, main)
    except Stopped:
        return Unfinished(pipeline.until or "")


@contextlib.contextmanager
def _around() -> Iterator[None]:
    """The context of a whole compile, as stock's."""
    with (
        t.use_lazy_graph_module(t.dynamo_config.use_lazy_graph_module),
        t.enable_python_dispatcher(),
        t.preserve_node_meta(t.inductor_config.trace.provenance_tracking_level == 1),
        t.reset_provenance_globals(),
    ):
        yield


def _Table(table: dict[Any, Callable[..., Any]]) -> Callable[[], Any]:
    """A table behind a call. Torch's own holder where there is one: the call is part of the cache's key."""
    holder = t.optional("ConstantDecompTable")
    return holder(table) if holder is not None else lambda: table


def _configured(gm: Any, inputs: Sequence[Any], inner: Callable[..., Any], main: Callable[..., Any]) -> Any:
    if t.CompilerBisector.disable_subsystem("inductor", "pre_grad_graph"):
        return gm
    if any(isinstance(value, torch.Tensor) and value.device.type in ("cuda", "xpu") for value in inputs):
        t.AsyncCompile.wakeup()
    refuse_moved(gm, inputs)

    def compile_graph(gm: Any, inputs: Sequence[Any], inner: Callable[..., Any] = inner) -> Any:
        again = functools.partial(compile_graph, inner=inner)
        return _wrapped(gm, inputs, again, functools.partial(main, inner))

    if t.inductor_config.cpp_wrapper or t.inductor_config.fx_wrapper:
        return _with_other_wrapper(gm, inputs, inner, compile_graph)
    return compile_graph(gm, inputs)


def _wrapped(gm: Any, inputs: Sequence[Any], compile_graph: _CompileGraph, compile_main: _CompileGraph) -> Any:
    """Compiles with `compile_main`; `compile_graph` is called with what Inductor takes in place of a graph that it does
    not.

    That is a graph without a tuple of outputs, one of export with pytrees in its code, or one for nested inputs.
    """
    if not t.graph_returns_tuple(gm):
        return t.make_graph_return_tuple(gm, inputs, compile_graph)
    if isinstance(gm, fx.GraphModule) and isinstance(gm.graph._codegen, t.PyTreeCodeGen):
        return t.handle_dynamo_export_graph(gm, inputs, compile_graph)
    if any(isinstance(value, (list, tuple, dict)) for value in inputs):
        return t.flatten_graph_inputs(gm, inputs, compile_graph)
    return compile_main(gm, inputs)


def _with_other_wrapper(
    gm: Any, inputs: Sequence[Any], inner: Callable[..., Any], compile_graph: Callable[..., Any]
) -> Any:
    """A wrapper in C++, or as a graph: no script objects but fake ones, and Triton kernels that can be kept."""
    wrappers = {"cpp_wrapper": t.inductor_config.cpp_wrapper, "fx_wrapper": t.inductor_config.fx_wrapper}
    with t.inductor_config.patch(t.get_cpp_wrapper_config()), t.V.set_real_inputs(inputs):
        given = _traced_inputs(gm, inputs) if isinstance(gm, fx.GraphModule) else inputs
        with t.fakify_script_objects(gm, given, {}, t.detect_fake_mode(given)) as (patched, fakes, *_):
            return compile_graph(patched, fakes, functools.partial(inner, **wrappers))


def _traced_inputs(gm: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """The fake inputs that an exported graph was traced with, where it has any; with a C++ wrapper tensors alone."""
    traced = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    if not t.inductor_config.fx_wrapper:
        traced = [value if isinstance(value, torch.Tensor) else None for value in traced]
    return traced if any(value is not None for value in traced) else inputs


def _main(
    pipeline: Pipeline,
    make_decompositions: Callable[[], Any],
    ignore_shape_env: bool,
    region: str | None,
    inner: Callable[..., Any],
    gm: Any,
    inputs: Sequence[Any],
) -> Any:
    """Everything behind the wrappers: a graph that returns a tuple, flat inputs."""
    with _around():
        ahead = t.V.aot_compilation and not t.inductor_config.enable_autograd_for_aot
        compilers = Compilers(pipeline, gm, inputs, inner, make_decompositions)
        if isinstance(gm, fx.GraphModule) and (ahead or not t.takes("aot_module_simplified", "pre_grad_passes")):
            compilers.model = gm = compilers.pre_grad(gm, inputs)
        fake_mode = t.detect_fake_mode(inputs) or t.FakeTensorMode(allow_non_fake_inputs=True)
        if ahead:
            return compile_ahead(compilers, gm, inputs)
        tracing = t.TracingContext.try_get() or t.TracingContext(fake_mode)
        work = Work("dynamo", gm, inputs, compilers.aot_arguments(ignore_shape_env, region))
        with (
            t.V.set_fake_mode(fake_mode),
            t.tracing(tracing),
            t.compiled_autograd_off(),
            t.functorch_config.patch(
                unlift_effect_tokens=True, selective_decompose=t.inductor_config.selective_decompose
            ),
            partitioned_by(compilers.partition),
            finished_by_us(pipeline),
        ):
            try:
                pipeline.run("capture", work)
            except t.ShortenTraceback as error:
                raise error.remove_dynamo_frames() from None
        return work.compiled


def refuse_moved(gm: Any, inputs: Sequence[Any]) -> None:
    """Raises UsageError where inputs lie on another device than their placeholders: it names them, and the devices."""
    if not isinstance(gm, torch.fx.GraphModule):
        return
    moved: list[tuple[str, torch.device, torch.device]] = []
    for index, (node, given) in enumerate(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False)):
        traced = node.meta.get("val", node.meta.get("example_value"))
        if not isinstance(traced, torch.Tensor) or not isinstance(given, torch.Tensor):
            continue
        if traced.device.type != given.device.type or (traced.device.index or 0) != (given.device.index or 0):
            moved.append((f"{name_of(node)} (input {index})", given.device, traced.device))
    if not moved:
        return
    name, here, there = moved[0]
    more = f"; the same holds for {listed(name for name, *_ in moved[1:])}" if len(moved) > 1 else ""
    error = CannotCompileError(
        "the graph cannot be compiled for these inputs",
        f"{name} is on {here}, and the graph was traced with it on {there}{more}",
        f"move {'them' if more else 'it'} to {there}, or trace the model again where its inputs are",
    )
    told(error, None, "pre_grad")
    raise error


_OURS = ("observers", "skip", "replace", "until", "pipeline")
"""Options that are not Inductor's."""


def compile_graph(
    gm: Any, example_inputs: Sequence[Any], options: dict[str, Any] | None, mode: str | None
) -> Callable[..., Any]:
    """Compiles one Dynamo graph. `options` are Inductor's settings and those of a Pipeline, or a `pipeline`; `mode` is
    torch.compile's."""
    settings = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    ours = {name: settings.pop(name) for name in _OURS if name in settings}
    pipeline = ours.pop("pipeline", None)
    if pipeline is not None and ours:
        raise OptionsExcludeError(
            f"a pipeline was given, and {', '.join(ours)} beside it",
            "it has its own",
            "name them where the Pipeline is made",
        )
    pipeline = pipeline or Pipeline(**ours)
    try:
        patches = (dict(t.list_mode_options(mode)) if mode not in (None, "default") else {}) | settings
    except RuntimeError as error:
        raise UnknownWordError(f"the backend graphdbg_triton has no mode {mode!r}", str(error)) from None
    known = set(t.inductor_config.get_config_copy())
    if unknown := sorted(set(patches) - known):
        raise UnknownWordError(
            f"the backend graphdbg_triton has no option {', '.join(map(repr, unknown))}",
            f"it takes {', '.join(_OURS)}, and the settings of Inductor",
            "python -c 'import torch._inductor; print(torch._inductor.list_options())' lists those",
        )
    return compile_fx(gm, example_inputs, config_patches=patches or None, pipeline=pipeline)


def enter(gm: Any, fakes: Sequence[Any], spec: ReplaySpec, pipeline: Pipeline) -> Compiled:
    """Compiles a graph that it may change; returns what takes the flat inputs, an Unfinished where the pipeline
    stops."""

    def run(stage: str, work: Work, mode: Any) -> Work:
        with compiling(mode):
            pipeline.run(stage, work)
        return work

    def half(gm: Any, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
        given = entries.inner_arguments(kwargs)
        with compiling(mode, kwargs.get("bw_donated_idxs")), t.TracingContext.report_output_strides() as strides:
            compiled = compile_inner(gm, list(fakes), pipeline=pipeline, **given)
        return compiled, list(strides or ())

    def joint_passes(gm: Any, fakes: Sequence[Any], mode: Any) -> Any:
        return run("joint", Work("inference", gm, fakes), mode).gm

    def partition(
        gm: Any, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any], *, passes: bool
    ) -> tuple[Any, Any]:
        given = {name: kwargs[name] for name in ("num_fwd_outputs", "static_lifetime_input_indices") if name in kwargs}
        work = Work("joint", gm, list(fakes), given, skip_invoke_subgraph=True)
        if passes:
            run("joint", work, mode)
        run("partition", work, mode)
        assert work.halves is not None
        return work.halves

    def whole(gm: Any, fakes: Sequence[Any], mode: Any, *, pre_grad: bool) -> Any:
        entries.mark_as_dynamos(gm)
        passes = pre_grad and t.inductor_config.use_pre_grad_passes
        with (
            compiling(mode),
            t.inductor_config.patch(use_pre_grad_passes=passes),
            t.functorch_config.patch(
                force_non_lazy_backward_lowering=True
            ),  # so that the stages of the backward are seen
        ):
            return compile_fx(gm, list(fakes), pipeline=pipeline)

    try:
        return inductor.enter(gm, fakes, spec, whole=whole, compile_one=half, joint=joint_passes, partition=partition)
    except Stopped:
        return Unfinished(pipeline.until or "")
