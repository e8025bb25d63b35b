# pyright: basic
"""How a graph enters Inductor at each stage: its fake values, the context of a compile, torch's own steps.

Importing this module imports torch; Inductor is imported by the functions.

For example: `compiled, strides = compile_inner(gm, fakes, mode_of(gm, fakes), {"is_inference": True})`.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx

from ...dumps.torchside.values import storage_key
from .. import torch_private as t
from .eager import clone_inputs
from .spec import no_caches


def shared_fakes(
    gm: fx.GraphModule, inputs: Sequence[Any], dynamic: bool, known: bool = False
) -> tuple[list[Any], Any]:
    """Fake inputs for a compile, and their fake mode.

    The placeholders' own `meta["val"]` when they belong to one fake mode and describe the inputs and their shared
    memory (with symbols only if `dynamic`); else new static ones made from the real inputs. `known`: new ones, in which
    0-d CPU tensors carry their values.
    """
    recorded = [_fake_of(node) for node in gm.graph.nodes if node.op == "placeholder"]
    modes = {id(value.fake_mode): value.fake_mode for value in recorded if isinstance(value, t.FakeTensor)}
    alike = all(_stands_for(*pair, dynamic) for pair in zip(recorded, inputs, strict=True))
    traced = any("example_value" in node.meta for node in gm.graph.nodes if node.op == "placeholder")
    if not known and len(modes) == 1 and alike and _share_as_promised(recorded, inputs, views=traced and not dynamic):
        mode = next(iter(modes.values()))  # below Dynamo a graph may use real constants
        mode.allow_non_fake_inputs |= not traced and any(node.op == "get_attr" for node in gm.graph.nodes)
        return recorded, mode
    gm.shape_env = None  # type: ignore[assignment]  # Inductor prefers it to the inputs' own
    given = next((value for value in inputs if isinstance(value, t.FakeTensor)), None)
    if given is not None:
        return list(inputs), given.fake_mode
    none_new = t.ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    # a loop needs a mode with a shape environment, even without symbols
    mode = t.FakeTensorMode(allow_non_fake_inputs=True, shape_env=none_new, static_shapes=True)
    # shared inputs become views of one base, as in the program
    real_ones = clone_inputs(inputs) if _any_shared(inputs) else inputs
    fakes = [mode.from_tensor(real) if isinstance(real, torch.Tensor) else real for real in real_ones]
    for fake, real in zip(fakes, inputs, strict=True) if known else ():
        if isinstance(real, torch.Tensor) and real.dim() == 0 and real.device.type == "cpu" and not real.requires_grad:
            fake.constant = real.detach().clone()
    return fakes, mode


def _share_as_promised(recorded: Sequence[Any], inputs: Sequence[Any], views: bool) -> bool:
    """Whether real inputs share memory wherever the recorded ones do, which a compiler relies on. `views` (the graph
    has yet to pass AOTAutograd): whether also autograd knows those as views of each other, and no others share memory.
    """
    first: dict[int, tuple[Any, Any]] = {}
    shared: dict[int, Any] = {}
    for fake, real in zip(recorded, inputs, strict=True):
        if isinstance(fake, torch.Tensor) and fake.layout is torch.strided and not _has_symbols(fake) and real.numel():
            mate, real_mate = first.setdefault(storage_key(fake), (fake, real))
            unrelated = views and _root(mate) is not _root(fake)
            if mate is not fake and (unrelated or storage_key(real_mate) != storage_key(real)):
                return False
            if views and storage_key(shared.setdefault(storage_key(real), fake)) != storage_key(fake):
                return False
    return True


def _root(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _any_shared(inputs: Sequence[Any]) -> bool:
    strided = [value for value in inputs if isinstance(value, torch.Tensor) and value.layout is torch.strided]
    seen = [storage_key(value) for value in strided if value.numel()]
    return len(set(seen)) < len(seen)


def _stands_for(fake: Any, real: Any, dynamic: bool) -> bool:
    """Whether a recorded value describes a real input: the same layout, or symbolic sizes where `dynamic` allows
    them."""
    # the inputs of a captured backward are lists
    if isinstance(fake, (list, tuple)) and isinstance(real, (list, tuple)):
        parts = zip(fake, real, strict=False)
        return len(fake) == len(real) and all(_stands_for(part, other, dynamic) for part, other in parts)
    if not isinstance(fake, torch.Tensor) or not isinstance(real, torch.Tensor):
        numbers = isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, type(None)))
        # an input that the graph only passes on, a device mesh for instance
        if type(fake).__name__ == "FakeScriptObject":
            return isinstance(real, type(getattr(fake, "real_obj", None)))
        return numbers and not isinstance(real, torch.Tensor) and (dynamic or not _has_symbols(fake))
    if _has_symbols(fake):
        return dynamic and fake.dim() == real.dim() and fake.dtype == real.dtype
    if (fake.shape, fake.stride(), fake.dtype) != (real.shape, real.stride(), real.dtype):
        return False
    # Random state of attention on a GPU: torch promises the compiler a scalar there and makes it on the CPU. Seen on
    # 2.11.0.
    return fake.device == real.device or (real.dim() == 0 and real.device.type == "cpu")


def is_number(node: fx.Node) -> bool:
    """Whether a node's value is a number (a size, for instance), not a tensor."""
    return isinstance(_fake_of(node), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


_MISSING = object()


def _fake_of(node: fx.Node) -> Any:
    value = node.meta.get("val", node.meta.get("example_value", _MISSING))
    return int(value) if isinstance(value, torch.SymInt) and value.node.is_constant() else value


def _has_symbols(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if not isinstance(value, torch.Tensor):
        return False
    return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride(), value.storage_offset()))


def mode_of(gm: fx.GraphModule, fakes: Sequence[Any]) -> Any:
    """The fake mode that fake inputs belong to; a fresh static one for a graph without tensor inputs."""
    values = [*fakes, *(node.meta.get("val") for node in gm.graph.nodes)]
    mode = next((value.fake_mode for value in values if isinstance(value, t.FakeTensor)), None)
    return t.FakeTensorMode(allow_non_fake_inputs=True) if mode is None else mode


def propagate(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> None:
    """Fills every node's `meta["val"]` from fake inputs, as Inductor's joint passes and the partitioner expect. Not
    public."""
    with mode, torch.no_grad(), t.enable_python_dispatcher():  # or symbolic sizes are refused by operators in C++
        t.FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)


@contextlib.contextmanager
def compiling(mode: Any, donated: list[int] | None = None) -> Iterator[None]:
    """The context in which AOTAutograd calls the inner compiler: its fake mode, and the little of its metadata that
    Inductor reads.

    `donated`: indices of backward inputs whose memory may be reused. `torch._guards.TracingContext` has no public
    alternative.
    """
    context = t.TracingContext(mode)
    if donated is not None:
        context.fw_metadata = SimpleNamespace(bw_donated_idxs=list(donated))  # type: ignore[assignment]
    with t.V.set_fake_mode(mode), t.tracing(context), no_caches():
        yield


@contextlib.contextmanager
def patterns_without_device() -> Iterator[None]:
    """Makes Inductor trace its joint patterns on the CPU: by default it traces them on the inputs' device, which may be
    absent.

    There is no public way; a torch without that function traces them as it does.
    """
    usual = t.optional("joint_lazy_init")
    with contextlib.nullcontext() if usual is None else t.swapped("joint_lazy_init", lambda *_: usual()):
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
) -> tuple[Callable[[list[Any]], Any], list[Any]]:
    """Compiles one graph with Inductor's inner compiler; also returns the strides of its outputs (None where it does
    not report them). `torch._inductor.compile` is public but starts from the top.
    """
    with compiling(mode, kwargs.get("bw_donated_idxs")), t.TracingContext.report_output_strides() as strides:
        compiled = t.compile_fx_inner(gm, list(fakes), **inner_arguments(kwargs))
    return compiled, list(strides or ())


def inner_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Converts recorded arguments to those that the inner compiler takes."""
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
    passes = passes and t.inductor_config.use_joint_graph_passes
    with compiling(mode), t.inductor_config.patch(use_joint_graph_passes=passes):
        return t.partition_fn(gm, list(fakes), **given)


def donated_inputs(forward: fx.GraphModule, backward: fx.GraphModule, kept: int) -> list[int] | None:
    """The places of the backward's inputs that alias nothing the user holds, so that Inductor may reuse their memory.

    AOTAutograd works it out between partitioning and compiling; there is no public call. None where this torch has
    none.
    """
    collect = t.optional("collect_fw_donated_buffer_idxs")
    if collect is None or not getattr(t.functorch_config, "donated_buffer", False):
        return None

    def values(nodes: Sequence[Any]) -> list[Any]:
        return [node.meta.get("val") if isinstance(node, fx.Node) else None for node in nodes]

    outputs: Any = forward.graph.output_node().args[0]
    returned: Any = backward.graph.output_node().args[0]
    # AOTAutograd asks about saved tensors only, never about saved sizes; that of 2.11 fails on a size.
    nodes = [node for node in outputs[kept:] if isinstance(node, fx.Node)]
    saved = [node for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    given = forward.graph.find_nodes(op="placeholder")
    free = collect(values(given), values(outputs[:kept]), values(returned), values(saved))
    places = {node.name: index for index, node in enumerate(backward.graph.find_nodes(op="placeholder"))}
    return sorted(places[saved[index].name] for index in free if saved[index].name in places)


def compile_whole(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, *, pre_grad: bool) -> Callable[..., Any]:
    """Inductor's whole path on a Dynamo graph: pre-grad passes (if `pre_grad`), AOTAutograd, both inner compiles.

    `torch._inductor.compile` is public but takes no fake inputs, so it would lose the recorded symbols.
    """
    if pre_grad:
        gm = as_handed_to_backends(gm)
    mark_as_dynamos(gm)
    pre_grad = pre_grad and t.inductor_config.use_pre_grad_passes
    with compiling(mode), t.inductor_config.patch(use_pre_grad_passes=pre_grad):
        compiled: Any = t.compile_fx(gm, list(fakes))
    return compiled


def as_handed_to_backends(gm: fx.GraphModule) -> fx.GraphModule:
    """Dynamo's graph after Dynamo's last step: regions that are called only once are inlined.

    There is no public call; 2.11 has no such step.
    """
    for setting in ("inline_invoke_subgraph", "inline_single_use_invoke_subgraph"):
        if getattr(t.dynamo_config, setting, False):
            return t.optional(setting, lambda given: given)(gm)
    return gm


def mark_as_dynamos(gm: fx.GraphModule) -> None:
    """Restores the attributes by which AOTAutograd recognises a Dynamo graph: it then reads from placeholders which
    inputs are static parameters."""
    named = (*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False))
    gm.meta.setdefault("dynamo_compile_id", t.CompileId(frame_id=0, frame_compile_id=0))
    marked: Any = gm
    marked._param_name_to_source = {name: t.LocalSource(f"_graphdbg_{at}") for at, (name, _) in enumerate(named)}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            node._dynamo_source = t.LocalSource(node.name)


def cpp_compiler() -> str | None:
    """The path of the C++ compiler; None when there is none."""
    try:
        return shutil.which(t.get_cpp_compiler())
    except RuntimeError:  # torch's InvalidCxxCompiler, whose home has moved between versions
        return None


def has_cpp_compiler() -> bool:
    """Whether Inductor can compile for the CPU at all."""
    return cpp_compiler() is not None


def compiler_version() -> str:
    """The compiler's version text, on which Inductor's probes depend."""
    return t.get_compiler_version_info(t.get_cpp_compiler())
