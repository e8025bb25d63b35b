"""The compilers that AOTAutograd calls with the graphs that it makes: joint to partition, forward, backward, inference.

They mark which outputs the user sees and which inputs stay in place, then call the inner compiler. Must not compile themselves.

>>> compilers = Compilers(pipeline, model, inputs, inner)
>>> work = Work("dynamo", model, inputs, compilers.aot_arguments())
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...dumps.wording import counted
from . import _torch as t
from .freezing import frozen_compiler
from .input_names import keep_names
from .pipeline import Pipeline
from .work import Work


class Compilers:
    """What one whole compile gives to AOTAutograd. `inner` is the inner compiler, `make_decompositions()` the table."""

    def __init__(
        self, pipeline: Pipeline, model: Any, inputs: Sequence[Any], inner: Callable[..., Any],
        make_decompositions: Callable[[], Any],
    ) -> None:  # fmt: skip
        self.pipeline = pipeline
        self.model = model
        self.input_count = len(inputs)  # not the inputs: AOTAutograd keeps this object as long as its callable
        self.extra = t.config_extra(model)
        self.decompositions = make_decompositions()
        takes = t.INNER_TAKES_DECOMPOSITIONS
        self.inner = functools.partial(inner, get_decomp_fn=make_decompositions) if takes else inner

    def pre_grad(self, gm: Any, inputs: Sequence[Any]) -> Any:
        """Dynamo's graph after the pre-grad stage."""
        work = Work("dynamo", gm, inputs)
        self.pipeline.run("pre_grad", work)
        return work.gm

    def partition(self, gm: Any, joint_inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, Any]:
        """Forward and backward of a joint graph, after the joint stage."""
        override = kwargs.pop("partitioner_fn_override", None)  # of a region of invoke_subgraph
        work = Work("joint", gm, joint_inputs, kwargs, skip_invoke_subgraph=True)
        with t.on_device_of(gm):
            self.pipeline.run("joint", work)
        if override is not None:
            return override(work.gm, joint_inputs, **({"static_lifetime_input_indices": None} | kwargs))
        self.pipeline.run("partition", work)
        assert work.halves is not None
        return work.halves

    def forward(self, gm: Any, inputs: Sequence[Any]) -> Any:
        with t.dynamo_timed("compile_fx.<locals>.fw_compiler_base"):
            return self._forward(gm, inputs, is_inference=False)

    def inference(self, gm: Any, inputs: Sequence[Any]) -> Any:
        with t.dynamo_timed("compile_fx.<locals>.fw_compiler_base"):
            return self._forward(gm, inputs, is_inference=True)

    def backward(self, gm: Any, inputs: Sequence[Any]) -> Any:
        extra = self.extra
        with t.dynamo_timed("compile_fx.<locals>.bw_compiler"), t.compile_lock(), contextlib.ExitStack() as stack:
            keep_names(gm, self.model)
            show_outputs(gm, all_of_them=t.config.bw_outputs_user_visible)
            override = getattr(extra, "cudagraphs_bwd_override", None)
            cudagraphs = extra.cudagraphs if override is None else t.BoxedBool(override)
            partitioned = getattr(extra, "forward_is_partitioned", None)
            if partitioned is not None and partitioned.value:
                # what a split forward saves between its recordings does not stay where it is
                static: Sequence[int] = t.static_of_backward(gm)
            else:
                static = list(range(t.count_tangents(gm)))
            if t.config.cpp_wrapper:
                stack.enter_context(t.config.patch(t.stock.get_cpp_wrapper_config()))
            stack.enter_context(_annotated(cudagraphs))
            return self.inner(
                gm, inputs, static_input_idxs=static, cudagraphs=cudagraphs, is_backward=True, graph_id=extra.graph_id,
                boxed_forward_device_index=extra.forward_device,
            )  # fmt: skip

    def for_inference(self) -> Any:
        """The compiler of an inference graph: with freezing on, parameters become constants."""
        if t.config.freezing and not t.torch.is_grad_enabled():
            return frozen_compiler(self)
        return t.SerializableAOTDispatchCompiler(t.OutputCode, self.inference)

    def aot_arguments(self, ignore_shape_env: bool, compile_region_name: str | None) -> dict[str, Any]:
        """AOTAutograd's arguments, by the names that this torch has for them."""
        arguments: dict[str, Any] = {
            "fw_compiler": t.SerializableAOTDispatchCompiler(t.OutputCode, self.forward),
            "bw_compiler": t.SerializableAOTDispatchCompiler(t.OutputCode, self.backward),
            "inference_compiler": self.for_inference(),
            "decompositions": self.decompositions,
            "partition_fn": self.partition,
            "keep_inference_input_mutations": True,
            "ignore_shape_env": ignore_shape_env,
        }
        if t.AOT_TAKES_EXTRA:
            arguments["compiler_config_extra"] = self.extra
        else:
            arguments["cudagraphs"] = self.extra.cudagraphs
            arguments["boxed_forward_device_index"] = self.extra.forward_device
        if t.AOT_RUNS_PRE_GRAD:
            arguments["pre_grad_passes"] = self.pre_grad
        if t.AOT_TAKES_REGION:
            arguments["compile_region_name"] = compile_region_name
        return arguments

    def _forward(self, gm: Any, inputs: Sequence[Any], *, is_inference: bool) -> Any:
        keep_names(gm, self.model)
        originals = _outputs(self.model if isinstance(self.model, t.fx.GraphModule) else gm)
        if is_inference:
            gm = self._joint_of_inference(gm, inputs)
        fixed = t.num_fw_fixed_arguments(self.input_count, len(inputs))
        if t.config.keep_output_stride:
            show_user_outputs(gm, len(originals), is_inference=is_inference)
        else:
            t.output_node(gm).meta["user_visible_output_idxs"] = []
        t.stock._recursive_record_user_visible_output_idxs(gm)
        with _annotated(self.extra.cudagraphs):
            compiled = self.inner(
                gm, inputs, static_input_idxs=t.static_of_forward(fixed), cudagraphs=self.extra.cudagraphs,
                graph_id=self.extra.graph_id, is_inference=is_inference,
                boxed_forward_device_index=self.extra.forward_device,
            )  # fmt: skip
        split = len(getattr(compiled, "partition_maps", None) or ()) > 1
        if not is_inference and split and hasattr(self.extra, "forward_is_partitioned"):
            self.extra.forward_is_partitioned.value = True
        return compiled

    def _joint_of_inference(self, gm: Any, inputs: Sequence[Any]) -> Any:
        t.trace_text("before_joint_graph", lambda: t.text_of(gm))
        output = t.output_node(gm)
        if t.AOT_TAKES_EXTRA:  # later passes may lose where outputs came from
            output.meta["output_stack_traces"] = [
                arg.meta.get("stack_trace") if isinstance(arg, t.fx.Node) else None for arg in output.args[0]
            ]
        work = Work("inference", gm, inputs)
        self.pipeline.run("joint", work)
        t.trace_text("after_joint_graph", lambda: t.text_of(work.gm))
        return work.gm


def show_outputs(gm: Any, *, all_of_them: bool) -> None:
    """Marks all outputs, or none, as seen by the user, so that they keep their strides."""
    output = t.output_node(gm)
    leaves = t.pytree.arg_tree_leaves(*output.args) if all_of_them else []
    output.meta["user_visible_output_idxs"] = [i for i, leaf in enumerate(leaves) if isinstance(leaf, t.fx.Node)]


def show_user_outputs(gm: Any, count: int, *, is_inference: bool) -> None:
    """Marks the model's own `count` outputs. In training, those of mutated inputs come before them and saved values behind."""
    output = t.output_node(gm)
    made = t.pytree.arg_tree_leaves(*output.args)
    context = t.TracingContext.try_get()
    first = 0
    if context is not None and context.fw_metadata and not is_inference:
        first = context.fw_metadata.num_mutated_inp_runtime_indices
    assert first + count <= len(made), f"the graph returns {counted(len(made), 'value')}, the model {count} behind {first}"
    output.meta["user_visible_output_idxs"] = [i for i in range(first, first + count) if isinstance(made[i], t.fx.Node)]


def _outputs(gm: Any) -> list[Any]:
    return t.pytree.arg_tree_leaves(*t.output_node(gm).args)


def _annotated(cudagraphs: Any) -> contextlib.AbstractContextManager[None]:
    """CUDA graphs that an annotation of the model turns on, where the configuration has them off."""
    make = getattr(t.stock, "cudagraph_annotation_context", None)
    return make(cudagraphs) if make is not None else contextlib.nullcontext()
