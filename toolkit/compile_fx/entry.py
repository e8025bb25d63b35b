"""`compile_fx`: the whole path, from Dynamo's graph to a callable.

What `torch._inductor.compile_fx.compile_fx` does under the same configuration, with the same result; the difference is the
pipeline, which sees each stage.

>>> compiled = compile_fx(gm, inputs, pipeline=(pipeline := Pipeline()))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...dumps.errors import UsageError
from . import _torch as t
from . import caching
from .capturing import Compilers
from .devices import refuse_moved
from .inner import compile_inner
from .loaded import finished_by_us
from .pipeline import Action, Observer, Pipeline, Stopped, Unfinished
from .regions import partitioned_by
from .returning import wrapped
from .work import Work


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
    """Compiles a graph, of which it takes ownership, for example inputs (real or fake tensors, sizes, nested containers).

    The first seven parameters are those of Inductor's function of this name, and so is what comes back: a callable that takes the
    inputs one by one; ahead of time the library's path. `observers`, `skip`, `replace` and `until` make a Pipeline, or one is
    given. Raises UsageError for what cannot be skipped or is on the wrong device, and what the stages raise.
    """
    observers, skip = list(observers), (skip,) if isinstance(skip, str) else tuple(skip)
    if pipeline is not None and (observers or skip or replace or until):
        raise UsageError(
            "a pipeline was given, and observers, skip, replace or until beside it", "it has its own of these",
            "name them where the Pipeline is made",
        )  # fmt: skip
    pipeline = pipeline or Pipeline(observers, skip, replace, until)
    inner = inner_compile or functools.partial(compile_inner, pipeline=pipeline)
    make_decompositions = t.select_decomp_table if decompositions is None else _Table(decompositions)
    try:
        with caching.apart(pipeline):
            return _configured(
                pipeline,
                gm,
                example_inputs,
                inner,
                config_patches,
                make_decompositions,
                ignore_shape_env,
                compile_region_name,
            )
    except Stopped:
        return Unfinished(pipeline.until or "")


def _Table(table: dict[Any, Callable[..., Any]]) -> Callable[[], Any]:
    """A table behind a call. Torch's own holder where there is one: the call is part of the cache's key."""
    holder = getattr(t.stock, "_ConstantDecompTable", None)
    return holder(table) if holder is not None else lambda: table


def _configured(
    pipeline: Pipeline, gm: Any, inputs: Sequence[Any], inner: Callable[..., Any], patches: dict[str, Any] | None,
    make_decompositions: Callable[[], Any], ignore_shape_env: bool, region: str | None,
) -> Any:  # fmt: skip
    if t.bisected("pre_grad_graph"):
        return gm
    if patches:
        with t.config.patch(patches):  # and around inner: a backward is compiled when this has ended
            return _configured(
                pipeline,
                gm,
                inputs,
                t.config.patch(patches)(inner),
                None,
                make_decompositions,
                ignore_shape_env,
                region,
            )
    if t.OUTPUT_TAKES_REGION:
        inner = functools.partial(inner, compile_region_name=region)
    if any(isinstance(value, t.torch.Tensor) and value.device.type in ("cuda", "xpu") for value in inputs):
        t.AsyncCompile.wakeup()
    refuse_moved(gm, inputs)

    def compile_graph(gm: Any, inputs: Sequence[Any], inner: Callable[..., Any] = inner) -> Any:
        again = functools.partial(compile_graph, inner=inner)
        main = functools.partial(_main, pipeline, inner, make_decompositions, ignore_shape_env, region)
        return wrapped(gm, inputs, again, main)

    if t.config.cpp_wrapper or t.config.fx_wrapper:
        return _with_other_wrapper(gm, inputs, inner, compile_graph)
    return compile_graph(gm, inputs)


def _with_other_wrapper(
    gm: Any, inputs: Sequence[Any], inner: Callable[..., Any], compile_graph: Callable[..., Any]
) -> Any:
    """A wrapper in C++, or as a graph: no script objects but fake ones, and Triton kernels that can be kept."""
    wrappers = {"cpp_wrapper": t.config.cpp_wrapper, "fx_wrapper": t.config.fx_wrapper}
    with t.config.patch(t.stock.get_cpp_wrapper_config()), t.V.set_real_inputs(inputs):
        given = _traced_inputs(gm, inputs) if isinstance(gm, t.fx.GraphModule) else inputs
        with t.fake_script_objects(gm, given) as (patched, fakes, *_):
            return compile_graph(patched, fakes, functools.partial(inner, **wrappers))


def _traced_inputs(gm: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """The fake inputs that an exported graph was traced with, where it has any; with a C++ wrapper tensors alone."""
    traced = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    if not t.config.fx_wrapper:
        traced = [value if isinstance(value, t.torch.Tensor) else None for value in traced]
    return traced if any(value is not None for value in traced) else inputs


def _main(
    pipeline: Pipeline, inner: Callable[..., Any], make_decompositions: Callable[[], Any], ignore_shape_env: bool,
    region: str | None, gm: Any, inputs: Sequence[Any],
) -> Any:  # fmt: skip
    """Everything behind the wrappers: a graph that returns a tuple, flat inputs."""
    with t.around_whole():
        ahead = t.V.aot_compilation and not t.config.enable_autograd_for_aot
        compilers = Compilers(pipeline, gm, inputs, inner, make_decompositions)
        if isinstance(gm, t.fx.GraphModule) and (ahead or not t.AOT_RUNS_PRE_GRAD):
            compilers.model = gm = compilers.pre_grad(gm, inputs)
        fake_mode = t.detect_fake_mode(inputs) or t.FakeTensorMode(allow_non_fake_inputs=True)
        if ahead:
            from .ahead import compile_ahead

            return compile_ahead(compilers, gm, inputs)
        tracing = t.TracingContext.try_get() or t.TracingContext(fake_mode)
        work = Work("dynamo", gm, inputs, compilers.aot_arguments(ignore_shape_env, region))
        with (
            t.V.set_fake_mode(fake_mode),
            t.tracing(tracing),
            t.compiled_autograd._disable(),
            t.functorch_config.patch(unlift_effect_tokens=True, selective_decompose=t.config.selective_decompose),
            partitioned_by(compilers.partition),
            finished_by_us(pipeline),
        ):
            try:
                pipeline.run("capture", work)
            except t.ShortenTraceback as error:
                raise error.remove_dynamo_frames() from None
        return work.compiled

