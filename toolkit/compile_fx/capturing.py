"""The compilers that AOTAutograd calls with the graphs that it makes: joint to partition, forward, backward, inference.

They mark which outputs the user sees and which inputs stay in place, then call the inner compiler. A region of
invoke_subgraph may have a partitioner of its own, which torch looks up by its name: during a compile of this package
the name resolves to this package's stages in this thread, and to torch's own everywhere else.

Ahead of time a library takes the user's inputs alone: what export lifted to inputs is unlifted, and the values that
buffers have now are kept beside it, since a run writes to them.

For example:

    compilers = Compilers(pipeline, model, inputs, inner)
    work = Work("dynamo", model, inputs, CaptureOptions(compilers.aot_arguments(False, None)))
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from unittest import mock

import torch
from torch import fx

from ...dumps.wording import counted
from .. import torch_private as t
from ..rungs.inductor import set_visible
from ..torch_private.replacing import Function, Hooks
from . import graphs
from .inputs import keep_names
from .pipeline import Pipeline
from .stage import CaptureOptions, JointOptions, Work


def compile_frozen(compilers: Compilers, gm: Any, inputs: Sequence[Any]) -> Any:
    """The inference compiler under `config.freezing`."""
    frozen = Frozen(compilers.model)
    work = Work("inference", gm, inputs, JointOptions(at_end=frozen.freeze))
    compilers.pipeline.run("joint", work)
    if not frozen.done:  # the stage was skipped or replaced; the configuration asks for frozen parameters all the same
        frozen.freeze(work.gm, inputs, work.notes)
    fakes = [inputs[index] for index in frozen.kept]
    set_visible(work.gm)
    fake_mode = t.detect_fake_mode(fakes)
    with mock.patch.object(fake_mode, "allow_non_fake_inputs", True) if fake_mode else contextlib.nullcontext():
        layout = {"is_inference": True, "layout_opt": frozen.channels_last}
        compiled = compilers.compile_inner(work.gm, fakes, frozen.static, **layout)
    # a library takes the remaining inputs alone
    return compiled if t.V.aot_compilation else _dropping(compiled, frozen.places)


def _dropping(compiled: Any, places: Sequence[int]) -> Any:
    """A boxed call that is given every argument, and hands on those at `places`."""

    def call(args: list[Any]) -> Any:
        needed = [args[place] for place in places]
        args.clear()
        return compiled(needed)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


@dataclass
class Frozen:
    """One graph's freezing.

    `kept`: inputs that stay, by their indices in AOTAutograd's graph; `places`: where a call finds them among its
    arguments; `static`: those of them whose memory stays in place; `channels_last`: whether convolutions were laid out
    again.
    """

    model: Any
    done: bool = False
    kept: Sequence[int] = ()
    places: Sequence[int] = ()
    static: Sequence[int] = ()
    channels_last: bool = False

    def freeze(self, gm: fx.GraphModule, inputs: Sequence[Any], notes: list[str]) -> None:
        """Freezes a graph in place and notes what was done to its parameters."""
        self.channels_last = bool(t.GraphLowering.decide_layout_opt(gm, is_inference=True))
        if self.channels_last:
            t.fake_tensor_prop(gm, inputs, True)
            before = _clones(gm)
            t.convert_conv_weights_to_channels_last(gm)
            if changed := _clones(gm) - before:
                notes.append(f"weights of {counted(changed, 'convolution')} are laid out channels-last")
        context = t.TracingContext.try_get()
        with t.enter_freezing():
            t.view_to_reshape(gm)  # a view of a weight that was laid out again may not exist
            self.kept = self._without_parameters(gm, context)
            gm.graph = t.fx_graph_cse(gm.graph)
            gm.recompile()
            t.freezing_passes(gm, [inputs[index] for index in self.kept])
            t.constant_fold(gm)
            if t.inductor_config.freezing_discard_parameters:
                t.invalidate_eager_modules()
                t.discard_traced_gm_params(self.model)
                notes.append("the parameters of the module itself are gone: freezing_discard_parameters")
            t.record_has_frozen_params(gm)
        self.places = list(self.kept)
        if context is not None:
            notes.append(self._released(context))
        else:
            notes.append("froze the constants of the graph; no parameter is an input")
        self.done = True

    def _without_parameters(self, gm: Any, context: Any) -> list[int]:
        """Makes constants of parameters that are neither written to nor returned, and returns the inputs that are
        left."""
        if context is None:
            return list(range(len(gm.graph.find_nodes(op="placeholder"))))
        flat = context.params_flat_unwrap_subclasses
        assert flat is not None and context.fw_metadata is not None, "freezing comes behind AOTAutograd"
        return list(t.replace_params_with_constants(gm, flat, context.fw_metadata))

    def _released(self, context: Any) -> str:
        """Drops the references to parameters that became constants, so that their memory can be freed; returns a
        sentence that says how much that is."""
        parts, whole = context.params_flat_unwrap_subclasses, context.params_flat
        owners = context.params_unwrapped_to_flat_index
        kept = set(self.kept)
        held = {owners[index] for index in range(len(parts)) if index in kept}
        self.places = places_of(self.kept, owners[: len(parts)], held)
        size = 0
        for index, value in enumerate(parts):
            if index not in kept:
                size += value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
                parts[index] = None
        for index in range(len(whole)):
            if index not in held:
                whole[index] = None
        if context.fw_metadata:
            self.static = context.fw_metadata.static_input_indices
        text = f"froze {counted(len(whole) - len(held), 'parameter')} ({size:,} bytes)"
        return f"{text}, {len(held)} kept, since they are written to or returned" if held else f"{text}, none kept"


def places_of(kept: Sequence[int], owners: Sequence[int], held: set[int]) -> list[int]:
    """Where a call finds the inputs `kept` (indices in the graph): `owners[i]` is the parameter that input i is a part
    of.

    A parameter that is a tensor subclass is several inputs of the graph. Its parts come one by one if it is `held`; a
    frozen one leaves a single empty argument.

    >>> places_of([2, 3], [0, 0, 1], {1})
    [1, 2]
    """
    places: dict[int, int] = {}
    next_place = 0
    for index, owner in enumerate(owners):
        starts = index == 0 or owners[index - 1] != owner
        if owner in held or starts:
            places[index] = next_place
            next_place += 1
    behind = next_place - len(owners)
    return [places[index] if index < len(owners) else index + behind for index in kept]


def _clones(gm: Any) -> int:
    return len(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default))


class Compilers:
    """The compilers and settings that one whole compile passes to AOTAutograd. `inner` is the inner compiler,
    `make_decompositions()` the table."""

    def __init__(
        self,
        pipeline: Pipeline,
        model: Any,
        inputs: Sequence[Any],
        inner: Callable[..., Any],
        make_decompositions: Callable[[], Any],
    ) -> None:
        self.pipeline = pipeline
        self.model = model
        self.input_count = len(inputs)  # not the inputs: AOTAutograd keeps this object as long as its callable
        # what the compiles of one graph share: the cudagraphs box, the graph's number, the forward's device
        whole = t.takes("create_compiler_config_extra", "gm")
        self.extra = t.create_compiler_config_extra(model if whole else t.inductor_config)
        self.decompositions = make_decompositions()
        takes = t.takes("GraphLowering", "get_decomp_fn")
        self.inner = functools.partial(inner, get_decomp_fn=make_decompositions) if takes else inner

    def pre_grad(self, gm: Any, inputs: Sequence[Any]) -> Any:
        """Dynamo's graph after the pre-grad stage."""
        work = Work("dynamo", gm, inputs)
        self.pipeline.run("pre_grad", work)
        return work.gm

    def partition(self, gm: Any, joint_inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, Any]:
        """Forward and backward of a joint graph, after the joint stage."""
        override = kwargs.pop("partitioner_fn_override", None)  # of a region of invoke_subgraph
        work = Work("joint", gm, joint_inputs, JointOptions(kwargs, skip_invoke_subgraph=True))
        with t.get_cuda_device_context(gm):
            self.pipeline.run("joint", work)
        if override is not None:
            return override(work.gm, joint_inputs, **({"static_lifetime_input_indices": None} | kwargs))
        self.pipeline.run("partition", work)
        assert work.halves is not None
        return work.halves

    def forward(self, gm: Any, inputs: Sequence[Any], *, is_inference: bool = False) -> Any:
        with t.dynamo_timed("compile_fx.<locals>.fw_compiler_base"):
            keep_names(gm, self.model)
            original = self.model if isinstance(self.model, fx.GraphModule) else gm
            count = len(t.pytree.arg_tree_leaves(*t.output_node(original).args))
            if is_inference:
                gm = self._joint_of_inference(gm, inputs)
            fixed = t.num_fw_fixed_arguments(self.input_count, len(inputs))
            if t.inductor_config.keep_output_stride:
                show_user_outputs(gm, count, is_inference=is_inference)
            else:
                set_visible(gm, ())
            t.record_user_visible_output_idxs(gm)
            with _annotated(self.extra.cudagraphs):
                compiled = self.compile_inner(gm, inputs, t.get_static_input_idxs(fixed), is_inference=is_inference)
            split = len(getattr(compiled, "partition_maps", None) or ()) > 1
            if not is_inference and split and hasattr(self.extra, "forward_is_partitioned"):
                self.extra.forward_is_partitioned.value = True
            return compiled

    def backward(self, gm: Any, inputs: Sequence[Any]) -> Any:
        extra = self.extra
        with t.dynamo_timed("compile_fx.<locals>.bw_compiler"), t.compile_lock, contextlib.ExitStack() as stack:
            keep_names(gm, self.model)
            set_visible(gm, None if t.inductor_config.bw_outputs_user_visible else ())
            override = getattr(extra, "cudagraphs_bwd_override", None)
            cudagraphs = extra.cudagraphs if override is None else t.BoxedBool(override)
            partitioned = getattr(extra, "forward_is_partitioned", None)
            if partitioned is not None and partitioned.value:
                # values that a split forward saves between its recordings do not stay in place
                static: Sequence[int] = t.get_static_bw_input_idxs(gm)
            else:
                static = list(range(t.count_tangents(gm)))
            if t.inductor_config.cpp_wrapper:
                stack.enter_context(t.inductor_config.patch(t.get_cpp_wrapper_config()))
            stack.enter_context(_annotated(cudagraphs))
            return self.compile_inner(gm, inputs, static, cudagraphs=cudagraphs, is_backward=True)

    def compile_inner(self, gm: Any, inputs: Sequence[Any], static: Sequence[int], **options: Any) -> Any:
        """Calls the inner compiler with the arguments that all graphs of this compile share. `static`: inputs that stay
        in place. The order of the arguments is stock's: torch's caches keep it."""
        given = {
            "static_input_idxs": static,
            "cudagraphs": self.extra.cudagraphs,
            "is_backward": None,
            "graph_id": self.extra.graph_id,
            "is_inference": None,
            "boxed_forward_device_index": self.extra.forward_device,
            **options,
        }
        return self.inner(gm, inputs, **{name: value for name, value in given.items() if value is not None})

    def for_inference(self) -> Any:
        """The compiler of an inference graph: with freezing on, parameters become constants."""
        if t.inductor_config.freezing and not torch.is_grad_enabled():
            return functools.partial(compile_frozen, self)
        return t.SerializableAOTDispatchCompiler(t.OutputCode, functools.partial(self.forward, is_inference=True))

    def aot_arguments(self, ignore_shape_env: bool, compile_region_name: str | None) -> dict[str, Any]:
        """AOTAutograd's arguments, by the parameter names of this version of torch."""
        newer = {
            "compiler_config_extra": self.extra,
            "pre_grad_passes": self.pre_grad,
            "compile_region_name": compile_region_name,
        }
        known = {name: value for name, value in newer.items() if t.takes("aot_module_simplified", name)}
        if "compiler_config_extra" not in known:
            known["cudagraphs"] = self.extra.cudagraphs
            known["boxed_forward_device_index"] = self.extra.forward_device
        return {
            "fw_compiler": t.SerializableAOTDispatchCompiler(t.OutputCode, self.forward),
            "bw_compiler": t.SerializableAOTDispatchCompiler(t.OutputCode, self.backward),
            "inference_compiler": self.for_inference(),
            "decompositions": self.decompositions,
            "partition_fn": self.partition,
            "keep_inference_input_mutations": True,
            "ignore_shape_env": ignore_shape_env,
            **known,
        }

    def _joint_of_inference(self, gm: Any, inputs: Sequence[Any]) -> Any:
        graphs.trace_text("before_joint_graph", lambda: graphs.text_of(gm))
        output = t.output_node(gm)
        if t.takes("aot_module_simplified", "compiler_config_extra"):  # later passes may lose where outputs came from
            output.meta["output_stack_traces"] = [
                arg.meta.get("stack_trace") if isinstance(arg, fx.Node) else None for arg in output.args[0]
            ]
        work = Work("inference", gm, inputs)
        self.pipeline.run("joint", work)
        graphs.trace_text("after_joint_graph", lambda: graphs.text_of(work.gm))
        return work.gm


def show_user_outputs(gm: Any, count: int, *, is_inference: bool) -> None:
    """Marks the model's own `count` outputs. In training, the outputs for mutated inputs come before them, and saved
    values after them."""
    context = t.TracingContext.try_get()
    first = 0
    if context is not None and context.fw_metadata and not is_inference:
        first = context.fw_metadata.num_mutated_inp_runtime_indices
    returned = counted(len(t.output_node(gm).args[0]), "value")
    assert first + count <= len(t.output_node(gm).args[0]), (
        f"the graph returns {returned}, the model {count} behind {first}"
    )
    set_visible(gm, range(first, first + count))


def _annotated(cudagraphs: Any) -> contextlib.AbstractContextManager[None]:
    """A context in which an annotation of the model turns CUDA graphs on where the configuration has them off."""
    return t.optional("cudagraph_annotation_context", lambda _: contextlib.nullcontext())(cudagraphs)


Partition = Callable[..., tuple[Any, Any]]


def partitioned_by(partition: Partition) -> AbstractContextManager[None]:
    """While entered, regions that are partitioned in this thread go to `partition`."""
    return _hooks.inside(partition)


def _routed(usual: Function) -> Function:
    def routed(gm: Any, joint_inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
        partition: Partition | None = _hooks.here
        # without the override it is a whole graph that stock compiles: our compiles pass their partitioner
        if partition is None or "partitioner_fn_override" not in kwargs:
            return usual(gm, joint_inputs, **kwargs)
        return partition(gm, joint_inputs, **kwargs)

    return routed


_hooks = Hooks(lambda: [(*t.home("partition_fn"), _routed)])


def compile_ahead(compilers: Compilers, gm: Any, inputs: Sequence[Any]) -> Any:
    """Captures an inference graph, unlifts its parameters and buffers, and compiles it to a library, with autocast
    off."""
    t.is_valid_aoti_model_name()
    fake_mode: Any = None

    def export(work: Work) -> None:
        nonlocal fake_mode
        with capture_settings():
            traced, signature = t.aot_export_module(
                gm, inputs, trace_joint=False, decompositions=compilers.decompositions
            )
        fake_mode = t.detect_fake_mode_from_gm(traced)
        _give_constants_values(traced, fake_mode)
        work.gm = t.unlift_graph(gm, traced, signature)
        work.notes.append(
            f"{counted(len(signature.parameters), 'parameter')} and {counted(len(signature.buffers), 'buffer')} "
            "are constants of the library"
        )

    work = Work("dynamo", gm, inputs, CaptureOptions(export=export))
    compilers.pipeline.run("capture", work)
    for name in ("dynamo_flat_name_to_original_fqn", "dynamo_compile_id"):
        if name in gm.meta:
            work.gm.meta[name] = gm.meta[name]
    # Patterns that are traced now would hold autocast's casts, and match what they must not. Off for all devices at
    # once: public contexts know one each.
    autocast_off = t.DisableAutocast() if t.is_any_autocast_enabled() else contextlib.nullcontext()
    with t.V.set_fake_mode(fake_mode), t.compiled_autograd_off(), autocast_off:
        return compilers.for_inference()(work.gm, inputs)


def capture_settings() -> contextlib.AbstractContextManager[None]:
    """Settings of AOTAutograd under which Inductor captures."""
    return t.functorch_config.patch(
        unlift_effect_tokens=True, selective_decompose=t.inductor_config.selective_decompose
    )


def _give_constants_values(gm: Any, fake_mode: Any) -> None:
    """Gives a fake value to each constant that export kept as an attribute."""
    for node in gm.graph.find_nodes(op="get_attr"):
        if "val" in node.meta:
            continue
        target = attrgetter(node.target)(gm)
        if isinstance(target, torch.Tensor):
            node.meta["val"] = fake_mode.from_tensor(target, static_shapes=True)
        elif isinstance(target, torch.ScriptObject) or t.is_opaque_type(type(target)):
            node.meta["val"] = t.maybe_to_fake_obj(fake_mode, target)
        elif isinstance(target, t.FakeScriptObject):
            node.meta["val"] = target
