"""The entry points of the compile path: `compile_fx`, torch.compile's backend, a saved graph, a package ahead of time.

`enter` compiles a saved graph from the stage at which it was recorded, with the recorded arguments; what lies before
that stage is not run again: a forward graph starts at post_grad, a joint graph at joint, a post-grad graph at lower.
The entry points are those of the rung `inductor`, with the stages of this package in place of torch's.

`compile_ahead_of_time` makes a `.pt2` package, which another process loads and runs with torch alone: what
`torch._inductor.aoti_compile_and_package` does, through this path's stages; it takes plain graphs, too. The package
appears whole or not at all, and nothing else is left behind. The caller's graph and module stay unchanged.

For example:

    path = compile_ahead_of_time(torch.export.export(model, (x,)), path="model.pt2")
    torch._inductor.aoti_load_package(path)(x)
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ...dumps.errors import BadValueError, CannotCompileError, OptionsExcludeError, UnknownWordError
from ...dumps.torchside.values import fake_of
from ...dumps.wording import counted, listed
from .. import torch_private as t
from ..live import entries
from ..live.eager import copy_graph
from ..live.entries import compiling
from ..live.rung import Compiled
from ..live.spec import ReplaySpec
from ..rungs import inductor
from .calls import finished_by_us
from .capturing import Compilers, capture_settings, compile_ahead, partitioned_by
from .errors import explained
from .inner import apart, compile_inner
from .inputs import name_of
from .pipeline import Action, Observer, Pipeline, Stopped, Unfinished
from .stage import CaptureOptions, JointOptions, Work

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
    given = "observers, skip, replace or until" if observers or skip or replace or until else ""
    _refuse_beside(pipeline, given, "it has its own of these")
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


def _refuse_beside(pipeline: Pipeline | None, given: str, why: str) -> None:
    if pipeline is not None and given:
        fix = "name them where the Pipeline is made"
        raise OptionsExcludeError(f"a pipeline was given, and {given} beside it", why, fix)


def _Table(table: dict[Any, Callable[..., Any]]) -> Callable[[], Any]:
    """A function that returns the decomposition table; torch's own holder where this torch has one, because the
    function is part of the cache key."""
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
    """Compiles with `compile_main`, or first turns the graph into one that Inductor takes and calls `compile_graph`
    with that.

    Turned so are a graph that does not return a tuple, one of export with pytrees in its code, and one for nested
    inputs.
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
    """Compiles with a wrapper in C++ or as an FX graph, under torch's settings for it; script objects are replaced by
    fake ones."""
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
    """Compiles a graph that returns a tuple and takes flat inputs: all that comes after the wrapping."""
    with (
        t.use_lazy_graph_module(t.dynamo_config.use_lazy_graph_module),
        t.enable_python_dispatcher(),
        t.preserve_node_meta(t.inductor_config.trace.provenance_tracking_level == 1),
        t.reset_provenance_globals(),
    ):
        ahead = t.V.aot_compilation and not t.inductor_config.enable_autograd_for_aot
        compilers = Compilers(pipeline, gm, inputs, inner, make_decompositions)
        if isinstance(gm, fx.GraphModule) and (ahead or not t.takes("aot_module_simplified", "pre_grad_passes")):
            compilers.model = gm = compilers.pre_grad(gm, inputs)
        fake_mode = t.detect_fake_mode(inputs) or t.FakeTensorMode(allow_non_fake_inputs=True)
        if ahead:
            return compile_ahead(compilers, gm, inputs)
        tracing = t.TracingContext.try_get() or t.TracingContext(fake_mode)
        options = CaptureOptions(compilers.aot_arguments(ignore_shape_env, region), caches=pipeline.caches)
        work = Work("dynamo", gm, inputs, options)
        with (
            t.V.set_fake_mode(fake_mode),
            t.tracing(tracing),
            t.compiled_autograd_off(),
            capture_settings(),
            partitioned_by(compilers.partition),
            finished_by_us(pipeline),
        ):
            try:
                pipeline.run("capture", work)
            except t.ShortenTraceback as error:
                raise error.remove_dynamo_frames() from None
        return work.captured


def refuse_moved(gm: Any, inputs: Sequence[Any]) -> None:
    """Raises UsageError where inputs lie on another device than their placeholders: it names them, and the devices."""
    if not isinstance(gm, torch.fx.GraphModule):
        return
    moved: list[tuple[str, torch.device, torch.device]] = []
    for index, (node, given) in enumerate(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False)):
        traced, tensors = fake_of(node), torch.Tensor
        if isinstance(traced, tensors) and isinstance(given, tensors):
            here, there = ((value.device.type, value.device.index or 0) for value in (given, traced))
            moved += [(f"{name_of(node)} (input {index})", given.device, traced.device)] if here != there else []
    if not moved:
        return
    name, here, there = moved[0]
    more = f"; the same holds for {listed(name for name, *_ in moved[1:])}" if len(moved) > 1 else ""
    error = CannotCompileError(
        "the graph cannot be compiled for these inputs",
        f"{name} is on {here}, and the graph was traced with it on {there}{more}",
        f"move {'them' if more else 'it'} to {there}, or trace the model again where its inputs are",
    )
    explained(error, None, "pre_grad")
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
    _refuse_beside(pipeline, ", ".join(ours), "it has its own")
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
    """Compiles a graph, which it may change; returns a callable of the flat inputs, or an Unfinished where the pipeline
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
        work = Work("joint", gm, list(fakes), JointOptions(given, skip_invoke_subgraph=True))
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
            t.functorch_config.patch(force_non_lazy_backward_lowering=True),  # the backward's stages are to be seen
        ):
            return compile_fx(gm, list(fakes), pipeline=pipeline)

    try:
        return inductor.enter(gm, fakes, spec, whole=whole, compile_one=half, joint=joint_passes, partition=partition)
    except Stopped:
        return Unfinished(pipeline.until or "")


def compile_ahead_of_time(
    program: Any,
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    *,
    path: str | Path | None = None,
    config_patches: dict[str, Any] | None = None,
    pipeline: Pipeline | None = None,
) -> Path | Unfinished:
    """Compiles an ExportedProgram, or a GraphModule for tensors like `args`, and returns the package's path.

    An ExportedProgram has example inputs of its own, so `args` may be left out. A GraphModule's sizes become numbers
    unless its placeholders hold symbols. `path` ends in .pt2 (default: in Inductor's cache folder, named after the
    graph's code). Returns an Unfinished where the pipeline stops. Raises UsageError for what no library can take, and
    what the stages raise.
    """
    gm, args, kwargs = _graph_of(program, args, kwargs)
    target = _target(path, gm)
    inputs, specs = _flattened(gm, args, kwargs)
    pipeline = pipeline or Pipeline()
    t.unwrap_tensor_subclass_parameters(gm)
    with tempfile.TemporaryDirectory(prefix="graphdbg-aot-") as folder:
        asked = copy.copy(config_patches or {})
        serializer = asked.pop("extern_node_serializer", None)
        inner = functools.partial(compile_inner, pipeline=pipeline, extern_node_serializer=serializer)
        compiled = _library(gm, inputs, inner, pipeline, _settings(asked, specs, folder))
        if isinstance(compiled, Unfinished):
            return compiled
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as beside:
            part = Path(beside) / target.name  # torch names folders in the package after it
            t.package_aoti(str(part), compiled.filename)
            part.replace(target)
    return target


def _graph_of(
    program: Any, args: Sequence[Any] | None, kwargs: dict[str, Any] | None
) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """A graph that may be changed, and the example inputs."""
    what = "the graph cannot be compiled ahead of time"
    if isinstance(program, torch.export.ExportedProgram):
        what = "the program cannot be compiled"
        if args is None and program.example_inputs is not None:
            args, kwargs = program.example_inputs
    elif not isinstance(program, torch.fx.GraphModule):
        raise CannotCompileError(
            f"a {type(program).__name__} cannot be compiled ahead of time",
            "only an ExportedProgram or a GraphModule can",
            "torch.export.export(model, args) makes one",
        )
    if args is None:
        raise CannotCompileError(what, "it has no example inputs", "give them as args")
    if isinstance(program, torch.export.ExportedProgram):
        return program.module(check_guards=False), args, kwargs or {}
    values = (*program.parameters(), *program.buffers())
    if any(t.is_traceable_wrapper_subclass(value) for value in values):
        return copy.deepcopy(program), args, kwargs or {}  # its submodules will be changed
    return copy_graph(program), args, kwargs or {}


def _target(path: str | Path | None, gm: Any) -> Path:
    if path is None:
        return Path(t.cache_dir()) / "graphdbg-packages" / f"{t.code_hash(gm.code)}.pt2"
    if Path(path).suffix != ".pt2":
        raise BadValueError(
            f"cannot write a package to {path}", "torch loads only files whose name ends in .pt2", "add it"
        )
    return Path(path).absolute()


def _flattened(gm: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, str]]:
    """The graph without pytrees, its flat inputs, and how calls of the package nest them: settings for Inductor."""
    _drop_guards(gm)
    leaves, given = t.pytree.tree_flatten((tuple(args), kwargs))
    if isinstance(gm.graph._codegen, t.PyTreeCodeGen):
        nesting = gm.graph._codegen.pytree_info
        gm.graph._codegen = t.CodeGen()
        gm.recompile()
        wanted, out_spec = nesting.in_spec, nesting.out_spec
        if wanted is not None and wanted != given:
            raise CannotCompileError(
                "the program cannot be compiled", f"it was exported with {wanted}, and is given {given}"
            )
        inputs = [leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves]  # others became constants
    else:
        _refuse_others(gm, (*args, *kwargs.values()))
        inputs, out_spec = leaves, _returning_flat(gm)
    return inputs, {
        "aot_inductor.serialized_in_spec": t.pytree.treespec_dumps(given),
        "aot_inductor.serialized_out_spec": t.pytree.treespec_dumps(out_spec) if out_spec is not None else "",
    }


def _refuse_others(gm: Any, values: Sequence[Any]) -> None:
    nodes = gm.graph.find_nodes(op="placeholder")
    if len(nodes) != len(values):
        why = f"it takes {counted(len(nodes), 'input')} and is given {len(values)}"
        raise CannotCompileError("the graph cannot be compiled", why)
    for node, value in zip(nodes, values, strict=True):
        if not isinstance(value, torch.Tensor):
            raise CannotCompileError(
                "the graph cannot be compiled ahead of time",
                f"a library takes tensors alone, and {node.name} is given a {type(value).__name__}",
                "make a program of the model with torch.export.export(model, args), which takes nested "
                "inputs and numbers",
            )


def _returning_flat(gm: Any) -> Any:
    """Makes a graph return a tuple of values, and returns how they were nested."""
    output = gm.graph.output_node()
    leaves, spec = t.pytree.tree_flatten(_plain(output.args[0]))
    output.args = (tuple(leaves),)
    gm.recompile()
    return spec


def _plain(value: Any) -> Any:
    """Replaces the lists and dictionaries that fx keeps in a node's arguments by Python's, which a package returns."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return tuple(map(_plain, value)) if type(value) is tuple else value


def _drop_guards(gm: Any) -> None:
    """Removes the input checks that export may put into the graph: they look at inputs that a library is not given."""
    if hasattr(gm, "_guards_fn"):
        for node in gm.graph.find_nodes(op="call_module", target="_guards_fn"):
            gm.graph.erase_node(node)
        del gm._guards_fn
        gm.recompile()


def _settings(asked: dict[str, Any], specs: dict[str, str], folder: str) -> dict[str, Any]:
    if asked.get("fx_wrapper", t.inductor_config.fx_wrapper):
        raise CannotCompileError("no package can be made", "fx_wrapper writes a graph and no library", "turn it off")
    if asked.get("aot_inductor.output_path", t.inductor_config.aot_inductor.output_path):
        raise CannotCompileError(
            "no package can be made", "aot_inductor.output_path asks for a library", "give path instead"
        )
    package = {"aot_inductor.package": True, "aot_inductor.output_path": str(Path(folder) / "model")}
    settings = {**asked, **specs, "cpp_wrapper": True, "enable_autograd_for_aot": False, **package}
    return t.maybe_aoti_standalone_config(settings)


def _library(gm: Any, inputs: list[Any], inner: Any, pipeline: Pipeline, settings: dict[str, Any]) -> Any:
    """Compiles in the context in which torch compiles ahead of time."""
    compile_id = t.CompileContext(gm.meta.get("dynamo_compile_id"))
    with (
        t.compiling_state_context(),
        t.V.set_aot_compilation(True),
        t.compile_context(compile_id),
        t.chromium_event_timed("compile_fx_aot", log_pt2_compile_event=True, reset_event_log_on_exit=True),
        t.get_metrics_context(),
    ):
        return compile_fx(gm, inputs, inner_compile=inner, config_patches=settings, pipeline=pipeline)
