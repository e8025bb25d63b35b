# pyright: basic
"""How a graph enters Inductor at each stage, and how parts of it are switched off.

Importing this module imports torch; Inductor is imported by the functions.

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

from .. import torch_private as t
from ..settings import no_caches
from ..torch_private import replaced


def propagate(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> None:
    """Fills every node's `meta["val"]` from fake inputs, as Inductor's joint passes and the partitioner expect. Not public.
    """

    with mode, torch.no_grad(), t.enable_python_dispatcher():  # or symbolic sizes are refused by operators in C++
        t.FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)


@contextlib.contextmanager
def compiling(mode: Any, donated: list[int] | None = None) -> Iterator[None]:
    """The context in which AOTAutograd calls the inner compiler: its fake mode, and the little of its metadata that
    Inductor reads.

    `donated`: indices of backward inputs whose memory may be reused. `torch._guards.TracingContext` has no public alternative.
    """

    context = t.TracingContext(mode)
    if donated is not None:
        context.fw_metadata = SimpleNamespace(bw_donated_idxs=list(donated))  # type: ignore[assignment]
    with t.V.set_fake_mode(mode), t.tracing(context), no_caches():
        yield


@contextlib.contextmanager
def patterns_without_device() -> Iterator[None]:
    """Has Inductor trace its joint patterns for the CPU: it traces them on the inputs' device, which may not be there.

    Nothing public says where.; a torch without that function traces them as it does.
    """

    usual = t.optional("joint_lazy_init")
    with contextlib.nullcontext() if usual is None else replaced(*t.home("joint_lazy_init"), lambda *_: usual()):
        yield


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

    with compiling(mode, kwargs.get("bw_donated_idxs")), t.TracingContext.report_output_strides() as strides:
        compiled = t.compile_fx_inner(gm, list(fakes), **inner_arguments(kwargs))
    return compiled, list(strides or ())


def inner_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded arguments as the inner compiler takes them."""

    given = {name: kwargs[name] for name in _INNER_KWARGS if name in kwargs}
    if isinstance(kwargs.get("cudagraphs"), bool):
        given["cudagraphs"] = t.BoxedBool(kwargs["cudagraphs"])
    return given


def restrided(fake: Any, stride: Any) -> Any:
    """A fake tensor with the strides that a forward gave the real one, as AOTAutograd restrides a backward's inputs."""
    if not isinstance(fake, torch.Tensor) or stride is None or tuple(stride) == tuple(fake.stride()):
        return fake
    with fake.fake_mode:  # type: ignore[attr-defined]
        return fake.as_strided(fake.size(), tuple(stride))


def joint_passes(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> fx.GraphModule:
    """Inductor's joint-graph passes, as run on an inference graph. Not public."""

    device = next((value.device for value in fakes if isinstance(value, torch.Tensor)), torch.device("cpu"))
    with compiling(mode):
        try:
            return t.recursive_joint_graph_passes(gm, input_device=device)
        except TypeError:  # before 2.12 it took no device
            return t.recursive_joint_graph_passes(gm)


def partition(
    gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any], *, passes: bool
) -> tuple[Any, Any]:
    """Inductor's joint passes (if `passes`) and its partitioner: (forward, backward). Not public."""

    given = {name: kwargs[name] for name in ("num_fwd_outputs", "static_lifetime_input_indices") if name in kwargs}
    with (
        compiling(mode),
        t.inductor_config.patch(use_joint_graph_passes=passes and t.inductor_config.use_joint_graph_passes),
    ):
        return t.partition_fn(gm, list(fakes), **given)


def donated_inputs(forward: fx.GraphModule, backward: fx.GraphModule, kept: int) -> list[int] | None:
    """The places of the backward's inputs that alias nothing the user holds, whose memory Inductor may reuse.

    AOTAutograd works it out between partitioning and compiling; there is no public call. None where this torch has none.
    """

    collect = t.optional("collect_fw_donated_buffer_idxs")
    if collect is None or not getattr(t.functorch_config, "donated_buffer", False):
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

    `torch._inductor.compile` is public but takes no fake inputs, so it would lose the recorded symbols.
    """

    if pre_grad:
        gm = as_handed_to_backends(gm)
    mark_as_dynamos(gm)
    with compiling(mode), t.inductor_config.patch(use_pre_grad_passes=pre_grad and t.inductor_config.use_pre_grad_passes):
        compiled: Any = t.compile_fx(gm, list(fakes))
    return compiled


def as_handed_to_backends(gm: fx.GraphModule) -> fx.GraphModule:
    """Dynamo's graph after the last thing that Dynamo does to it: regions that are called once are put in place.

    There is no public call.; 2.11 does no such thing.
    """

    for setting in ("inline_invoke_subgraph", "inline_single_use_invoke_subgraph"):
        if getattr(t.dynamo_config, setting, False):
            return t.optional(setting, lambda given: given)(gm)
    return gm


def mark_as_dynamos(gm: fx.GraphModule) -> None:
    """Restores what AOTAutograd knows a Dynamo graph by: then it reads from placeholders which inputs are static parameters."""

    names = [
        name for name, _ in (*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False))
    ]
    gm.meta.setdefault("dynamo_compile_id", t.CompileId(frame_id=0, frame_compile_id=0))
    marked: Any = gm
    marked._param_name_to_source = {name: t.LocalSource(f"_graphdbg_{index}") for index, name in enumerate(names)}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            node._dynamo_source = t.LocalSource(node.name)


@contextlib.contextmanager
def without_post_grad_passes() -> Iterator[None]:
    """Keeps the inner compiler from running the post-grad passes a second time on a graph that has them behind it."""

    with t.inductor_config.patch(use_post_grad_passes=False):
        yield


@contextlib.contextmanager
def drawing_like_torch() -> Iterator[None]:
    """Inductor calls torch's own random functions; `torch.compile(options=...)` is public, but starts from the top."""

    with t.inductor_config.patch(fallback_random=True):
        yield


@contextlib.contextmanager
def unfused(*, kernels_draw: bool = False) -> Iterator[None]:
    """Inductor with one loop per node and without its optional passes: what is left is lowering and code generation.

    Its settings for fusion act on the scheduler, but pointwise nodes are inlined before it, at lowering; no setting realises each
    node, so `GraphLowering.run_node` does it here. Passes that later steps rely on stay. Random numbers are drawn by torch
    itself, because a joint pass would have to replace them; with `kernels_draw` one has.
    """

    lower, skips = t.look_up("GraphLowering.run_node"), t.look_up("GraphTransformObserver._check_disable_pass")

    def run_node(self: Any, n: fx.Node) -> Any:
        value = lower(self, n)
        if n.op == "call_function" and isinstance(value, t.TensorBox) and isinstance(value.data, t.StorageBox):
            value.realize()
        return value

    def skip(self: Any) -> bool:
        optional = self.subsystem == "post_grad_passes" and not self.passname.startswith(_NEEDED_PASSES)
        return optional or skips(self)

    off = {name: None for name in _CUSTOM_PASSES if hasattr(t.inductor_config, name)}
    settings: dict[str, Any] = {"use_pre_grad_passes": False, "use_joint_graph_passes": False, **off}
    if not kernels_draw:
        settings["fallback_random"] = True
    with (
        replaced(*t.home("GraphLowering.run_node"), run_node),
        replaced(*t.home("Scheduler.fuse_nodes"), lambda self, nodes: nodes),
        replaced(*t.home("GraphTransformObserver._check_disable_pass"), skip),
        t.inductor_config.patch(settings),
    ):
        yield


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
    """Why this torch cannot compile and load one graph ahead of time, or None."""
    lacking = [t.NAMES.whole(name) for name in ("aot_compile", "aot_load") if t.optional(name) is None]
    return f"this torch has no {' and no '.join(lacking)}" if lacking else None


def compile_ahead(gm: fx.GraphModule, fakes: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """Compiles a graph with flat inputs and outputs to a shared library, and loads it. The wrapper is not optimised: g++ takes
    most of the time.
    """
    import logging

    outputs = gm.graph.output_node().args[0]
    gm._in_spec = t.pytree.tree_structure((tuple(fakes), {}))  # type: ignore[assignment]  # loading reads how a call nests
    gm._out_spec = t.pytree.tree_structure(tuple(None if one is None else 0 for one in outputs))  # type: ignore[assignment]
    path = t.aot_compile(gm, tuple(fakes), options={"aot_inductor.compile_wrapper_opt_level": "O0"})
    cuda = [value.device for value in fakes if isinstance(value, torch.Tensor) and value.is_cuda]
    logging.getLogger("torch._export").setLevel(logging.ERROR)  # it warns that it will be replaced
    loaded = t.aot_load(str(path), str(cuda[0]) if cuda else "cpu")
    return lambda inputs: t.tree_leaves(loaded(*inputs), is_leaf=lambda value: value is None)


@contextlib.contextmanager
def with_cudagraphs() -> Iterator[None]:
    """Inner compiles inside make CUDA graphs; `mode="reduce-overhead"` is public, but belongs to `torch.compile` as a whole."""

    with t.inductor_config.patch({"triton.cudagraphs": True, "triton.cudagraph_trees": True}):
        yield


def decomposed_ops(gm: fx.GraphModule, *, without_lowering: bool = False) -> list[str]:
    """Ops of a graph, and of graphs inside it, that Inductor's table of decompositions takes apart; with `without_lowering` those
    that Inductor cannot compile unless they were.
    """

    table = t.select_decomp_table()
    found: dict[str, None] = {}
    for part in (one for one in gm.modules() if isinstance(one, fx.GraphModule)):
        for node in part.graph.nodes:
            if (
                node.op == "call_function"
                and node.target in table
                and not (without_lowering and node.target in t.lowerings)
            ):
                found[str(node.target)] = None
    return list(found)


@contextlib.contextmanager
def python_decompositions(mode: Any) -> Iterator[None]:
    """While it is entered, composite ops keep symbols for sizes, and the mode's symbols are the tracing ones.

    There is no public switch for the dispatcher.
    """

    with compiling(mode), t.enable_python_dispatcher():
        yield


def decompose(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> fx.GraphModule:
    """The graph traced once more through Inductor's decompositions, with the names of its inputs and its nodes' origins.

    `make_fx` is public, Inductor's table and the tracer's memory of origins are not.
    """

    def run(*inputs: Any) -> Any:
        with t.preserve_node_meta():
            return fx.Interpreter(gm).run(*inputs)

    with compiling(mode), mode, t.enable_python_dispatcher(), torch.no_grad():
        traced = t.make_fx(run, decomposition_table=t.select_decomp_table())(*fakes)
        if _writes(traced) > _writes(gm):
            traced = t.make_fx(torch.func.functionalize(run), decomposition_table=t.select_decomp_table())(*fakes)
    _name_inputs_like(gm, traced)
    before, after = gm.graph.output_node(), traced.graph.output_node()
    after.meta.update({name: value for name, value in before.meta.items() if name not in after.meta})
    traced.meta.update(gm.meta)
    return traced


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
    random prims as torch does, not as kernels do.
    """

    from functorch.compile import min_cut_rematerialization_partition

    mark_as_dynamos(gm)
    with compiling(mode), t.functorch_config.patch(unlift_effect_tokens=True):
        compiled: Any = t.aot_autograd(
            fw_compiler=inner, bw_compiler=inner, decompositions=t.select_decomp_table,
            partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
        )(gm, list(fakes))  # fmt: skip
    return compiled
