"""`inductor`: stock Inductor, entered at the stage where the graph was recorded and with the recorded arguments.

forward, backward, an inference graph after its joint passes, and post-grad graphs go to the inner compiler; inference
graphs through the joint passes first; joint graphs through the partitioner into two inner compiles; Dynamo's graphs
through all of it. A graph that Inductor made is never traced a second time; one of another backend, with operators that
Inductor can only compile decomposed, is traced once through its decompositions first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import fx

from ...dumps.allowlist import words
from ...dumps.torchside.values import fake_of
from ...dumps.wording import error_line
from .. import torch_private as t
from ..live import entries, gpu_only
from ..live.eager import draws_from_generator, eager_draws, nodes_in
from ..live.entries import compiling, has_cpp_compiler, mode_of, propagate
from ..live.rung import CannotRun, Compiled, Rung
from ..live.spec import FULL_STAGES, ReplaySpec

RETRACED = "re-traced with Inductor's decompositions, because the recording has none"
CUSTOM_PASSES = words(
    """
    pre_grad_custom_pass joint_custom_pre_pass joint_custom_post_pass post_grad_custom_pre_pass
    post_grad_custom_post_pass
    """
)
"""Settings that hold the user's own passes over graphs."""
_MARKS = frozenset({"static_input_idxs", "graph_id", "cudagraphs", "boxed_forward_device_index", "num_example_inputs"})
_ONLY_INDUCTORS = frozenset({"joint_passed", "post_grad_forward", "post_grad_backward", "post_grad_inference"})

Half = Callable[
    [fx.GraphModule, Sequence[Any], Any, Mapping[str, Any]], tuple[Callable[[list[Any]], Any], Sequence[Any]]
]
"""Compiles a graph, or half of a joint one; returns a boxed callable, and the strides of its outputs where known."""
Whole = Callable[..., Callable[..., Any]]
Partition = Callable[..., tuple[Any, Any]]


class Inductor(Rung):
    """Compiles with Inductor."""

    name = "inductor"
    compiles_draws = True
    takes_kernels_on_cpu = False
    """Whether the user's own Triton kernels can run on CPU tensors."""

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return None if spec.device or has_cpp_compiler() else "no C++ compiler was found"

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        values = [(node.name, fake_of(node)) for node in gm.graph.find_nodes(op="placeholder")]
        layouts = {name: value.layout for name, value in values if isinstance(value, torch.Tensor)}
        if sparse := [name for name, layout in layouts.items() if layout is not torch.strided]:
            return f"Inductor takes no sparse tensors (input {', '.join(sparse)})"
        return None if self.takes_kernels_on_cpu else gpu_only.refusal(gm)

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        return [f"{RETRACED}: {', '.join(ops)}"] if (ops := needs_decomposing(gm, spec)) else []

    def settings(self) -> dict[str, Any]:
        """Inductor settings that this rung adds."""
        return {}

    @contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        # Normally a joint pass replaces torch's random functions; a graph that enters after it still has them.
        draws = needs_decomposing(gm, spec) and not spec.training_joint and draws_from_generator(gm)
        # Not `torch.compile(options=...)` or its modes: these are public, but start from the top.
        with eager_draws() if draws else nullcontext(), t.inductor_config.patch(self.settings()):
            yield

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        return enter(gm, fake_inputs, spec)


def enter(
    gm: fx.GraphModule,
    fakes: Sequence[Any],
    spec: ReplaySpec,
    *,
    whole: Whole = entries.compile_whole,
    compile_one: Half = entries.compile_inner,
    joint: Callable[..., Any] = entries.joint_passes,
    partition: Partition = entries.partition,
) -> Compiled:
    """Compiles a graph, which it may change, from its recorded stage on; by torch's own steps, or the given
    replacements."""
    mode = mode_of(gm, fakes)
    if needs_decomposing(gm, spec):
        gm = decomposed_copy(gm, fakes, mode)
    if spec.stage in FULL_STAGES:
        compiled = whole(gm, fakes, mode, pre_grad=spec.stage == "dynamo")
        return flat(lambda inputs: compiled(*inputs))
    flatten_outputs(gm)
    if spec.training_joint:
        return run_joint(gm, fakes, mode, spec, compile_one, partition)
    kwargs: dict[str, Any] = {"is_backward": spec.stage.endswith("backward")}
    if spec.stage in ("inference", "joint_passed"):
        kwargs = {"is_inference": True}
        if spec.stage == "inference":
            propagate(gm, fakes, mode)
            gm = joint(gm, fakes, mode)
        if "user_visible_output_idxs" not in gm.graph.output_node().meta:
            set_visible(gm)
    passed = spec.stage.startswith("post_grad")  # its post-grad passes have already run
    with t.inductor_config.patch(use_post_grad_passes=False) if passed else nullcontext():
        return flat(compile_one(gm, fakes, mode, {**kwargs, **spec.compile_kwargs})[0])


def run_joint(
    gm: fx.GraphModule,
    fakes: Sequence[Any],
    mode: Any,
    spec: ReplaySpec,
    compile_half: Half,
    partition: Partition = entries.partition,
) -> Compiled:
    """Partitions, compiles both halves, and runs the forward, then the backward on what it saved."""
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    kwargs = spec.compile_kwargs
    propagate(gm, fakes, mode)
    forward, backward = partition(gm, fakes, mode, kwargs, passes=spec.stage == "joint")
    kept = int(kwargs["num_fwd_outputs"])
    returned = [getattr(node, "name", None) for node in forward.graph.output_node().args[0]]
    first = int(kwargs.get("num_mutated_inp_runtime_indices", 0))
    last = first + int(kwargs.get("num_orig_model_outputs", kept - first))
    set_visible(forward, range(first, min(last, kept)))
    static = kwargs.get("static_lifetime_input_indices") or ()
    needs, takes = (half.graph.find_nodes(op="placeholder") for half in (forward, backward))
    wanted = _saved_names([node.name for node in takes], returned[kept:], names)
    donated = entries.donated_inputs(forward, backward, kept)
    asked = {name: kwargs[name] for name in ("cpp_wrapper", "cudagraphs") if name in kwargs}
    static_forward = {"static_input_idxs": list(static), **asked}
    compiled, strides = compile_half(forward, [node.meta.get("val") for node in needs], mode, static_forward)
    run_forward = flat(compiled)
    laid_out = dict(zip(returned, strides, strict=False))
    fakes_backward = [
        entries.restrided(node.meta.get("val"), laid_out.get(name)) for name, node in zip(wanted, takes, strict=True)
    ]
    set_visible(backward)
    tangents = sum("tangents" in name for name in wanted)
    fixed = list(range(len(wanted) - tangents))
    static_backward = {"is_backward": True, "static_input_idxs": fixed, "bw_donated_idxs": donated, **asked}
    run_backward = flat(compile_half(backward, fakes_backward, mode, static_backward)[0])

    def run(inputs: list[Any]) -> list[Any]:
        known = dict(zip(names, inputs, strict=True))
        outputs = run_forward([known[node.name] for node in needs])
        saved = {name: value for name, value in zip(returned, outputs, strict=True) if name is not None}
        gradients = run_backward([saved[name] if name in saved else known[name] for name in wanted])
        return [*outputs[:kept], *gradients]

    return run


def _saved_names(wanted: list[str], saved: list[str | None], inputs: list[str]) -> list[str]:
    """The backward's inputs under the forward's names. A value that the partitioner saved under a new name (the random
    state of a recomputation) is matched with the next output whose name no input has.
    """
    known = {*inputs, *(name for name in saved if name)}
    unclaimed = iter([name for name in saved if name and name not in wanted])
    return [name if name in known else next(unclaimed, name) for name in wanted]


def flat(compiled: Callable[[list[Any]], Any]) -> Compiled:
    return lambda inputs: t.tree_leaves(compiled(list(inputs)), is_leaf=lambda value: value is None)


def flatten_outputs(gm: fx.GraphModule) -> None:
    """Flattens a graph's outputs: the inner compiler takes a flat tuple, but a graph of the caller's own may return one
    value or a nested one."""
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    returned = output.args[0]
    if not isinstance(returned, (tuple, list)) or any(isinstance(value, (tuple, list, dict)) for value in returned):
        output.args = (tuple(t.tree_leaves(returned, is_leaf=lambda value: value is None)),)
        gm.recompile()


def set_visible(gm: fx.GraphModule, indices: Iterable[int] | None = None) -> None:
    """Marks the outputs visible to the user (None: all): Inductor keeps their strides."""
    output = gm.graph.output_node()
    returned: Any = output.args[0]
    seen = range(len(returned)) if indices is None else indices
    output.meta["user_visible_output_idxs"] = [at for at in seen if isinstance(returned[at], fx.Node)]


def decomposed_ops(gm: fx.GraphModule, *, without_lowering: bool = False) -> list[str]:
    """Ops of a graph, and of graphs inside it, that Inductor's decompositions cover; `without_lowering`: only those
    that Inductor cannot compile undecomposed.
    """
    table = t.select_decomp_table()
    ops = (node.target for node in nodes_in(gm) if node.op == "call_function" and node.target in table)
    return list(dict.fromkeys(str(op) for op in ops if not (without_lowering and op in t.lowerings)))


def decomposed_copy(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> fx.GraphModule:
    """The graph retraced through Inductor's decompositions, keeping its inputs' names and its nodes' origins. Raises
    CannotRun where it cannot be traced again.

    `make_fx` is public, Inductor's table and the tracer's memory of origins are not.
    """

    def run(*inputs: Any) -> Any:
        with t.preserve_node_meta():
            return fx.Interpreter(gm).run(*inputs)

    try:
        with compiling(mode), mode, t.enable_python_dispatcher(), torch.no_grad():
            traced = t.make_fx(run, decomposition_table=t.select_decomp_table())(*fakes)
            if _writes(traced) > _writes(gm):
                traced = t.make_fx(torch.func.functionalize(run), decomposition_table=t.select_decomp_table())(*fakes)
        _name_inputs_like(gm, traced)
    except Exception as error:  # tracing may raise anything: the graph was not made to be retraced
        why = f"it was recorded without Inductor's decompositions and cannot be traced again: {error_line(error)}"
        raise CannotRun(why) from error
    before, after = gm.graph.output_node(), traced.graph.output_node()
    after.meta.update({name: value for name, value in before.meta.items() if name not in after.meta})
    traced.meta.update(gm.meta)
    flatten_outputs(traced)
    return traced


def _writes(gm: fx.GraphModule) -> int:
    return sum(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in gm.graph.nodes)


def _name_inputs_like(gm: fx.GraphModule, traced: fx.GraphModule) -> None:
    """Gives inputs the original names: the partitioner tells tangents from primals by name."""
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


def made_by_inductor(spec: ReplaySpec) -> bool:
    """Whether a graph is certain to be decomposed by Inductor already."""
    return spec.stage in _ONLY_INDUCTORS or bool(_MARKS & set(spec.compile_kwargs))


def needs_decomposing(gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
    """The operators that Inductor can compile only after decomposing them; empty for a graph that needs no
    decomposing."""
    if spec.stage in FULL_STAGES or made_by_inductor(spec):
        return []
    return decomposed_ops(gm, without_lowering=True)


RUNG = Inductor(
    order=110, words="Inductor as it is", layer="inductor", command="graphdbg bisect {graph}", is_usual=True
)
"""The one instance that the registry hands out."""
