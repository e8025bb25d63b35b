# pyright: basic
"""The private names of torch that the rungs need: how a graph enters Inductor at each stage, how parts of it are
switched off.

Every function says which public alternative is missing; all were read on 2.13.0. Importing this module imports torch;
Inductor is imported by the functions.

>>> compiled = compile_inner(gm, fakes, mode_of(gm, fakes), {"is_inference": True})
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx

from .._torch import no_caches


def propagate(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> None:
    """Fills every node's `meta["val"]` from fake inputs, as Inductor's joint passes and the partitioner expect. Not public.
    Checked: 2.13.0.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    with mode, torch.no_grad(), enable_python_dispatcher():  # or symbolic sizes are refused by operators in C++
        FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)


@contextlib.contextmanager
def compiling(mode: Any, donated: list[int] | None = None) -> Iterator[None]:
    """The context in which AOTAutograd calls the inner compiler: its fake mode, and the little of its metadata that
    Inductor reads.

    `donated`: indices of backward inputs whose memory may be reused. `torch._guards.TracingContext` has no public alternative.
    Checked: 2.13.0.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor.virtualized import V

    context = TracingContext(mode)
    if donated is not None:
        context.fw_metadata = SimpleNamespace(bw_donated_idxs=list(donated))  # type: ignore[assignment]
    with V.set_fake_mode(mode), tracing(context), no_caches():
        yield


@contextlib.contextmanager
def patterns_without_device() -> Iterator[None]:
    """Has Inductor trace its joint patterns for the CPU: it traces them on the inputs' device, which may not be there.

    Nothing public says where. Checked: 2.13.0; a torch without that function traces them as it does.
    """
    from torch._inductor.fx_passes import joint_graph

    usual = getattr(joint_graph, "lazy_init", None)
    if usual is None:
        yield
        return
    joint_graph.lazy_init = lambda *_: usual()  # type: ignore[assignment]
    try:
        yield
    finally:
        joint_graph.lazy_init = usual


_INNER_KWARGS = (
    "static_input_idxs",
    "is_backward",
    "graph_id",
    "cpp_wrapper",
    "is_inference",
    "layout_opt",
    "fx_wrapper",
)


def compile_inner(
    gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any]
) -> Callable[[list[Any]], Any]:
    """Compiles one graph with Inductor's inner compiler; `torch._inductor.compile` is public but starts from the top."""
    return compile_inner_with_strides(gm, fakes, mode, kwargs)[0]


def compile_inner_with_strides(
    gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any]
) -> tuple[Callable[[list[Any]], Any], list[Any]]:
    """The same, with the strides that the compiled graph's outputs will have (None where it does not say)."""
    from torch._guards import TracingContext
    from torch._inductor.compile_fx import compile_fx_inner

    with compiling(mode, kwargs.get("bw_donated_idxs")), TracingContext.report_output_strides() as strides:
        compiled = compile_fx_inner(gm, list(fakes), **inner_arguments(kwargs))
    return compiled, list(strides or ())


def inner_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded arguments as the inner compiler takes them. Checked: 2.13.0."""
    from torch._inductor.utils import BoxedBool

    given = {name: kwargs[name] for name in _INNER_KWARGS if name in kwargs}
    if isinstance(kwargs.get("cudagraphs"), bool):
        given["cudagraphs"] = BoxedBool(kwargs["cudagraphs"])
    return given


def restrided(fake: Any, stride: Any) -> Any:
    """A fake tensor with the strides that a forward gave the real one, as AOTAutograd restrides a backward's inputs."""
    if not isinstance(fake, torch.Tensor) or stride is None or tuple(stride) == tuple(fake.stride()):
        return fake
    with fake.fake_mode:  # type: ignore[attr-defined]
        return fake.as_strided(fake.size(), tuple(stride))


def joint_passes(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> fx.GraphModule:
    """Inductor's joint-graph passes, as run on an inference graph. Not public. Checked: 2.13.0."""
    from torch._inductor import compile_fx

    device = next((value.device for value in fakes if isinstance(value, torch.Tensor)), torch.device("cpu"))
    with compiling(mode):
        try:
            return compile_fx._recursive_joint_graph_passes(gm, input_device=device)
        except TypeError:  # before 2.12 it took no device
            return compile_fx._recursive_joint_graph_passes(gm)


def partition(
    gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any], *, passes: bool
) -> tuple[Any, Any]:
    """Inductor's joint passes (if `passes`) and its partitioner: (forward, backward). Not public. Checked: 2.13.0."""
    import torch._inductor.config as inductor_config
    from torch._inductor.compile_fx import partition_fn

    given = {name: kwargs[name] for name in ("num_fwd_outputs", "static_lifetime_input_indices") if name in kwargs}
    with (
        compiling(mode),
        inductor_config.patch(use_joint_graph_passes=passes and inductor_config.use_joint_graph_passes),
    ):
        return partition_fn(gm, list(fakes), **given)


def donated_inputs(forward: fx.GraphModule, backward: fx.GraphModule, kept: int) -> list[int] | None:
    """The places of the backward's inputs that alias nothing the user holds, whose memory Inductor may reuse.

    AOTAutograd works it out between partitioning and compiling; there is no public call. None where this torch has none.
    """
    import torch._functorch.config as functorch_config
    from torch._functorch._aot_autograd import graph_compile

    collect = getattr(graph_compile, "collect_fw_donated_buffer_idxs", None)
    if collect is None or not getattr(functorch_config, "donated_buffer", False):
        return None

    def values(nodes: Sequence[Any]) -> list[Any]:
        return [node.meta.get("val") if isinstance(node, fx.Node) else None for node in nodes]

    outputs: Any = forward.graph.output_node().args[0]
    returned: Any = backward.graph.output_node().args[0]
    # AOTAutograd asks about saved tensors only, never about saved sizes; that of 2.11 fails on a size.
    saved = [
        node for node in outputs[kept:] if isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)
    ]
    free = collect(
        values(forward.graph.find_nodes(op="placeholder")), values(outputs[:kept]), values(returned), values(saved),
    )  # fmt: skip
    places = {node.name: index for index, node in enumerate(backward.graph.find_nodes(op="placeholder"))}
    return sorted(places[saved[index].name] for index in free if saved[index].name in places)


def compile_whole(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, *, pre_grad: bool) -> Callable[..., Any]:
    """Inductor's whole path on a Dynamo graph: pre-grad passes (if `pre_grad`), AOTAutograd, both inner compiles.

    `torch._inductor.compile` is public but takes no fake inputs, so it would lose the recorded symbols. Checked: 2.13.0.
    """
    import torch._inductor.config as inductor_config
    from torch._inductor.compile_fx import compile_fx

    if pre_grad:
        gm = as_handed_to_backends(gm)
    mark_as_dynamos(gm)
    with compiling(mode), inductor_config.patch(use_pre_grad_passes=pre_grad and inductor_config.use_pre_grad_passes):
        compiled: Any = compile_fx(gm, list(fakes))
    return compiled


def as_handed_to_backends(gm: fx.GraphModule) -> fx.GraphModule:
    """Dynamo's graph after the last thing that Dynamo does to it: regions that are called once are put in place.

    There is no public call. Checked: 2.13.0; 2.11 does no such thing.
    """
    import torch._dynamo.config as dynamo_config

    try:
        from torch._higher_order_ops.passes import inline_invoke_subgraph as passes
    except ImportError:
        return gm
    if getattr(dynamo_config, "inline_invoke_subgraph", False):
        return passes.inline_invoke_subgraph(gm)
    if getattr(dynamo_config, "inline_single_use_invoke_subgraph", False):
        return passes.inline_single_use_invoke_subgraph(gm)
    return gm


def mark_as_dynamos(gm: fx.GraphModule) -> None:
    """Restores what AOTAutograd knows a Dynamo graph by: then it reads from placeholders which inputs are static parameters."""
    from torch._dynamo.source import LocalSource
    from torch._guards import CompileId

    names = [
        name for name, _ in (*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False))
    ]
    gm.meta.setdefault("dynamo_compile_id", CompileId(frame_id=0, frame_compile_id=0))
    marked: Any = gm
    marked._param_name_to_source = {name: LocalSource(f"_graphdbg_{index}") for index, name in enumerate(names)}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            node._dynamo_source = LocalSource(node.name)


@contextlib.contextmanager
def without_post_grad_passes() -> Iterator[None]:
    """Keeps the inner compiler from running the post-grad passes a second time on a graph that has them behind it."""
    import torch._inductor.config as inductor_config

    with inductor_config.patch(use_post_grad_passes=False):
        yield


@contextlib.contextmanager
def drawing_like_torch() -> Iterator[None]:
    """Inductor calls torch's own random functions; `torch.compile(options=...)` is public, but starts from the top."""
    import torch._inductor.config as inductor_config

    with inductor_config.patch(fallback_random=True):
        yield


@contextlib.contextmanager
def unfused(*, kernels_draw: bool = False) -> Iterator[None]:
    """Inductor with one loop per node and without its optional passes: what is left is lowering and code generation.

    Its settings for fusion act on the scheduler, but pointwise nodes are inlined before it, at lowering; no setting realises each
    node, so `GraphLowering.run_node` does it here. Passes that later steps rely on stay. Random numbers are drawn by torch
    itself, because a joint pass would have to replace them; with `kernels_draw` one has. Checked: 2.13.0.
    """
    import torch._inductor.config as inductor_config
    from torch._inductor import graph, ir, scheduler
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver as Observer

    lower, fuse, skips = graph.GraphLowering.run_node, scheduler.Scheduler.fuse_nodes, Observer._check_disable_pass

    def run_node(self: Any, n: fx.Node) -> Any:
        value = lower(self, n)
        if n.op == "call_function" and isinstance(value, ir.TensorBox) and isinstance(value.data, ir.StorageBox):
            value.realize()
        return value

    def skip(self: Any) -> bool:
        optional = self.subsystem == "post_grad_passes" and not self.passname.startswith(_NEEDED_PASSES)
        return optional or skips(self)

    off = {name: None for name in _CUSTOM_PASSES if hasattr(inductor_config, name)}
    settings: dict[str, Any] = {"use_pre_grad_passes": False, "use_joint_graph_passes": False, **off}
    if not kernels_draw:
        settings["fallback_random"] = True
    graph.GraphLowering.run_node, scheduler.Scheduler.fuse_nodes = run_node, lambda self, nodes: nodes
    Observer._check_disable_pass = skip
    try:
        with inductor_config.patch(settings):
            yield
    finally:
        graph.GraphLowering.run_node, scheduler.Scheduler.fuse_nodes = lower, fuse
        Observer._check_disable_pass = skips


_CUSTOM_PASSES = (
    "pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass", "_pre_fusion_custom_pass", "_post_fusion_custom_pass",
)  # fmt: skip
_NEEDED_PASSES = (
    "remove_profiler_ops", "remove_assert_ops", "chain_random_ops_ordering", "stable_sort", "decomp", "reinplace_inplaceable_ops",
    "fix_auto_functionalized_dtype_views", "custom_backend_passes_",
)  # fmt: skip
"""Post-grad passes without which lowering fails (beginnings of their names)."""


def lacks_aot_inductor() -> str | None:
    """Why this torch cannot run one graph ahead of time, or None. `torch._inductor.aot_compile` is public by documentation, but
    starts from an exported program. Checked: 2.13.0.
    """
    import torch._inductor.config as inductor_config

    if not hasattr(inductor_config, "enable_autograd_for_aot"):
        return "this torch compiles only exported programs ahead of time"
    return None


@contextlib.contextmanager
def ahead_of_time() -> Iterator[None]:
    """Inner compiles inside make shared libraries, and load them. The wrapper is not optimised: g++ takes most of the time."""
    import torch._inductor.config as inductor_config
    from torch._inductor.virtualized import V

    settings: dict[str, Any] = {"cpp_wrapper": True, "enable_autograd_for_aot": True, "triton.cudagraphs": False}
    if hasattr(inductor_config.aot_inductor, "compile_wrapper_opt_level"):
        settings["aot_inductor.compile_wrapper_opt_level"] = "O0"
    with V.set_aot_compilation(True), inductor_config.patch(settings):
        yield


@contextlib.contextmanager
def with_cudagraphs() -> Iterator[None]:
    """Inner compiles inside make CUDA graphs; `mode="reduce-overhead"` is public, but belongs to `torch.compile` as a whole."""
    import torch._inductor.config as inductor_config

    with inductor_config.patch({"triton.cudagraphs": True, "triton.cudagraph_trees": True}):
        yield


def decomposed_ops(gm: fx.GraphModule, *, without_lowering: bool = False) -> list[str]:
    """Ops of a graph, and of graphs inside it, that Inductor's table of decompositions takes apart; with `without_lowering` those
    that Inductor cannot compile unless they were.
    """
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.lowering import lowerings

    table = select_decomp_table()
    found: dict[str, None] = {}
    for part in (one for one in gm.modules() if isinstance(one, fx.GraphModule)):
        for node in part.graph.nodes:
            if (
                node.op == "call_function"
                and node.target in table
                and not (without_lowering and node.target in lowerings)
            ):
                found[str(node.target)] = None
    return list(found)


@contextlib.contextmanager
def python_decompositions(mode: Any) -> Iterator[None]:
    """While it is entered, composite ops keep symbols for sizes, and the mode's symbols are the tracing ones.

    There is no public switch for the dispatcher. Checked: 2.13.0.
    """
    from torch._dispatch.python import enable_python_dispatcher

    with compiling(mode), enable_python_dispatcher():
        yield


def decompose(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> fx.GraphModule:
    """The graph traced once more through Inductor's decompositions, with the names of its inputs and its nodes' origins.

    `make_fx` is public, Inductor's table and the tracer's memory of origins are not. Checked: 2.13.0.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    def run(*inputs: Any) -> Any:
        with preserve_node_meta():
            return fx.Interpreter(gm).run(*inputs)

    with compiling(mode), mode, enable_python_dispatcher(), torch.no_grad():
        traced = make_fx(run, decomposition_table=select_decomp_table())(*fakes)
        if _writes(traced) > _writes(gm):
            traced = make_fx(torch.func.functionalize(run), decomposition_table=select_decomp_table())(*fakes)
    _name_inputs_like(gm, traced)
    before, after = gm.graph.output_node(), traced.graph.output_node()
    after.meta.update({name: value for name, value in before.meta.items() if name not in after.meta})
    traced.meta.update(gm.meta)
    return traced


def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """What Inductor takes apart before it compiles. Not public. Checked: 2.13.0."""
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def _writes(gm: fx.GraphModule) -> int:
    return sum(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in gm.graph.nodes)


def _name_inputs_like(gm: fx.GraphModule, traced: fx.GraphModule) -> None:
    """The partitioner tells tangents from primals by their names."""
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    for node in traced.graph.nodes:
        if node.op != "placeholder" and node.name in names:
            node._rename(f"{node.name}_traced")
    places = traced.graph.find_nodes(op="placeholder")
    for node in places:
        node._rename(f"_graphdbg_{node.name}")
    for node, name in zip(places, names, strict=True):
        node._rename(name)
        node.target = name
    traced.recompile()


def run_decomposed(
    gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, inner: Callable[..., Any]
) -> Callable[..., Any]:
    """A Dynamo graph through AOTAutograd with Inductor's decompositions and partitioner, each graph given to `inner(gm, fakes)`.

    The backend `aot_eager_decomp_partition` is public and does it too, but looks at the bisector's settings and runs Inductor's
    random prims as torch does, not as kernels do. Checked: 2.13.0.
    """
    import torch._functorch.config as functorch_config
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    mark_as_dynamos(gm)
    with compiling(mode), functorch_config.patch(unlift_effect_tokens=True):
        compiled: Any = aot_autograd(
            fw_compiler=inner, bw_compiler=inner, decompositions=select_decomp_table,
            partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
        )(gm, list(fakes))  # fmt: skip
    return compiled
