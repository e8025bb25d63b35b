"""The programs of the capture matrix, one line each: name, kind, builder, what is run.

Builders lie in capture_hops, capture_shapes, capture_values, capture_models and capture_ranks. A builder gives
(function or module, arguments); it is compiled and run in training, without gradients, or captured by
`toolkit.capture`.

>>> PROGRAMS["cond"].run()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.models import capture_hops as hops
from tests.models import capture_inputs as inputs
from tests.models import capture_models as models
from tests.models import capture_ranks as ranks
from tests.models import capture_shapes as shapes
from tests.models import capture_values as values

TRAIN, INFER, SAVED, BACKWARD = "train", "infer", "save_graph", "backward"
STAGES_OF = {
    TRAIN: (
        "dynamo",
        "pre_grad",
        "joint",
        "joint_passed",
        "forward",
        "backward",
        "post_grad_forward",
        "post_grad_backward",
    ),
    INFER: ("dynamo", "pre_grad", "inference", "joint_passed", "post_grad_inference"),
    BACKWARD: ("compiled_autograd",),
}
"""The stages that must be recorded of a program that is run so."""


@dataclass(frozen=True)
class Program:
    """`mode`: "train", "infer", "joint_graph" | "inference_graph" of toolkit.capture, or "save_graph" for what
    torch.compile does not let through to a compiler: traced by torch.fx; "backward": nothing is compiled, and the
    backward recorded. `ranks`: above 1, run by torchrun. `known`: why a row does not hold, in the words of the page.
    `imports`: a module that a replay has to import first, for the custom operators it registers. `whole`: Dynamo makes
    one graph of it. `dynamo`: settings of its own."""

    name: str
    kind: str
    build: Callable[[], hops.Made]
    mode: str = INFER
    dynamic: bool | None = None
    imports: str = ""
    ranks: int = 1
    known: str = ""
    whole: bool = True
    dynamo: tuple[tuple[str, bool], ...] = ()

    @property
    def api(self) -> bool:
        """Whether it is captured by toolkit.capture, with no torch.compile."""
        return self.mode in ("joint_graph", "inference_graph", SAVED)

    @property
    def about(self) -> str:
        """What the program is, in a sentence."""
        return " ".join((self.build.__doc__ or "").partition("\n\n")[0].split())

    def stages(self) -> tuple[str, ...]:
        """Stages that must have been recorded."""
        return ("api",) if self.api else STAGES_OF[self.mode]

    def run(self, backend: str = "inductor") -> None:
        """Compiles it and runs it once, with a backward in training."""
        function, arguments = self.build()
        if self.mode == BACKWARD:
            total(function(*arguments)).backward()
            return
        compiled: Any = torch.compile(function, dynamic=self.dynamic, fullgraph=self.whole, backend=backend)
        settings = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True, **dict(self.dynamo)}
        with torch._dynamo.config.patch(settings), torch.set_grad_enabled(self.mode == TRAIN):
            loss = total(compiled(*arguments))
            if loss.requires_grad:
                torch.autograd.backward(loss)

    def captured(self) -> Any:
        """The graph by toolkit.capture; for "save_graph" the graph by torch.fx and its inputs."""
        from graphdbg.toolkit import capture

        function, arguments = self.build()
        if self.mode == SAVED:
            return torch.fx.symbolic_trace(function), list(arguments)
        return getattr(capture, self.mode)(function, arguments, dynamic=bool(self.dynamic))


def total(result: Any) -> torch.Tensor:
    """A number whose gradient reaches every output that has one."""
    parts = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return sum((part.abs().double().square().mean() for part in parts), torch.zeros((), dtype=torch.float64))


HOP, SYMBOLS, RANDOM, NUMBERS, VIEWS = "higher-order op", "symbols", "random", "value kinds", "views and writes"
MEMORY = "inputs' memory"
GROUPS, AUTOGRAD = "process groups", "compiled autograd"
MODEL, TRANSFORM, CUSTOM, API = "model", "transform", "custom op", "captured by function"
OPS = "tests.models.capture_hops"
TANGENT = (
    "torch's own fault, which the replay reports as it must: a branch that Inductor compiled writes into the "
    "gradient it is "
    "given (in the program, the tensor passed to backward() is changed)"
)
NEGATIVE = (
    "torch's own fault, which the replay reports as it must: generated code reads the memory of a negative "
    "view as it lies, "
    "without its sign (torch/_inductor asks for it once, in `same_meta` of fx_passes/post_grad.py, and never "
    "of an input)"
)
QUANTISED = "saved and loaded with its values, but no compiler takes it: torch has no fake quantised tensors"
SPARSE = "saved, loaded and run to the same bits; Dynamo hands no sparse tensor to a compiler, and Inductor takes none"
SUBCLASS = (
    "graphs from before AOTAutograd are refused, because ragged sizes and placements on a mesh have no saved "
    "form; those after "
    "it, where subclasses are taken apart, hold"
)

ROWS = [
    Program("cond", HOP, hops.cond),
    Program("cond_nested", HOP, hops.cond_nested),
    Program("cond_training", HOP, hops.cond_training, TRAIN, known=TANGENT),
    Program("while_loop", HOP, hops.while_loop),
    Program("scan", HOP, hops.scan),
    Program("map", HOP, hops.mapped),
    Program("associative_scan", HOP, hops.associative_scan),
    Program("flex_attention", HOP, hops.flex_attention),
    Program("checkpoint", HOP, hops.checkpointed, TRAIN),
    Program("invoke_subgraph", HOP, hops.invoke_subgraph),
    Program("invoke_subgraph_training", HOP, hops.invoke_subgraph, TRAIN),
    Program("auto_functionalized", HOP, hops.auto_functionalized, imports=OPS),
    Program("auto_functionalized_input", HOP, hops.auto_functionalized_input, imports=OPS),
    Program("custom_op", CUSTOM, hops.custom_op, TRAIN, imports=OPS),
    Program("custom_op_list", CUSTOM, hops.custom_op_list, imports=OPS),
    Program("dynamic_batch", SYMBOLS, shapes.dynamic_batch, TRAIN),
    Program("dynamic_divisible", SYMBOLS, shapes.dynamic_divisible),
    Program("dynamic_ranges", SYMBOLS, shapes.dynamic_ranges),
    Program("dynamic_conv", SYMBOLS, shapes.dynamic_conv),
    Program("unbacked_nonzero", SYMBOLS, shapes.nonzero),
    Program("unbacked_item", SYMBOLS, shapes.item_checked),
    Program("unbacked_split", SYMBOLS, shapes.items_split),
    Program("unbacked_float", SYMBOLS, shapes.item_float),
    Program("unbacked_repeat", SYMBOLS, shapes.repeat_interleave),
    Program("unbacked_mask_training", SYMBOLS, shapes.mask_training, TRAIN),
    Program("rounded", SYMBOLS, shapes.rounded, dynamic=True),
    Program("int_inputs", SYMBOLS, shapes.int_inputs, dynamic=True),
    Program("dropout", RANDOM, values.dropout, TRAIN),
    Program("random_makers", RANDOM, values.random_makers),
    Program("bernoulli", RANDOM, values.bernoulli),
    Program("randperm", RANDOM, values.randperm),
    Program("quantised_ops", NUMBERS, values.quantised_ops, imports="torch.ao.quantization.fx._decomposed"),
    Program("quantised_tensor", NUMBERS, values.quantised_tensor, SAVED, known=QUANTISED),
    Program("float8", NUMBERS, values.float8),
    Program("complex", NUMBERS, values.complex_numbers),
    Program("complex_fft", NUMBERS, values.complex_fft),
    Program("sparse", NUMBERS, values.sparse_product, SAVED, known=SPARSE),
    Program("nested", NUMBERS, values.nested_tensor, known=SUBCLASS),
    Program("two_tensor", NUMBERS, values.two_tensor, TRAIN),
    Program("compiled_numpy", NUMBERS, values.compiled_numpy),
    Program("double", NUMBERS, values.double_precision, TRAIN),
    Program("half", NUMBERS, values.half_precision),
    Program("integers", NUMBERS, values.integers),
    Program("bool_masks", NUMBERS, values.bool_masks),
    Program("odd_shapes", NUMBERS, values.odd_shapes),
    Program("expanded_input", VIEWS, values.expanded_input),
    Program("strided_input", VIEWS, values.strided_input),
    Program("unfolded_input", VIEWS, values.unfolded_input),
    Program("shared_storage", VIEWS, values.shared_storage),
    Program("views_returned", VIEWS, values.views_returned),
    Program("aliased_output", VIEWS, values.aliased_output),
    Program("input_written", VIEWS, values.input_written),
    Program("metadata_written", VIEWS, values.metadata_written),
    Program("result_written", VIEWS, values.result_written, TRAIN),
    Program("two_views", MEMORY, inputs.two_views),
    Program("base_and_view", MEMORY, inputs.base_and_view, TRAIN),
    Program("view_before_base", MEMORY, inputs.view_before_base, TRAIN),
    Program("overlapping_strided", MEMORY, inputs.overlapping_strided),
    Program("overlapping_training", MEMORY, inputs.overlapping_training, TRAIN),
    Program("buffer_written_training", MEMORY, inputs.buffer_written_training, TRAIN),
    Program("buffer_and_its_view", MEMORY, inputs.buffer_and_its_view),
    Program("leaves_and_results", MEMORY, inputs.leaves_and_results, TRAIN),
    Program("detached_alias", MEMORY, inputs.detached_alias, TRAIN),
    Program("expanded_training", MEMORY, inputs.expanded_training, TRAIN),
    Program("zero_strides", MEMORY, inputs.zero_strides),
    Program("labelled", MEMORY, inputs.labelled),
    Program("dropout_and_rand", RANDOM, inputs.dropout_and_rand, TRAIN),
    Program("channels_last_result", MEMORY, inputs.channels_last_result, TRAIN),
    Program("offsets", MEMORY, inputs.offsets, TRAIN),
    Program("number_tensors", MEMORY, inputs.number_tensors, TRAIN),
    Program("tied_and_turned", MEMORY, inputs.tied_and_turned, TRAIN),
    Program("parameter_and_data", MEMORY, inputs.parameter_and_data, TRAIN),
    Program("one_twice", MEMORY, inputs.one_twice, TRAIN),
    Program("two_dtypes", MEMORY, inputs.two_dtypes),
    Program("imaginary", MEMORY, inputs.imaginary, known=NEGATIVE),
    Program("views_of_a_leaf", MEMORY, inputs.views_of_a_leaf, TRAIN),
    Program("results_of_inference", MEMORY, inputs.results_of_inference),
    Program("empty_views", MEMORY, inputs.empty_views),
    Program("bucket", MEMORY, inputs.bucket),
    Program("dynamic_views", MEMORY, inputs.dynamic_views, dynamic=True),
    Program("dynamic_overlap_training", MEMORY, inputs.dynamic_overlap_training, TRAIN, dynamic=True),
    Program("parted_under_no_grad", MEMORY, inputs.parted_under_no_grad, TRAIN),
    Program("spread_tangents", MEMORY, inputs.spread_tangents, TRAIN),
    Program("ones_and_holes", MEMORY, inputs.ones_and_holes),
    Program("transformer", MODEL, models.transformer, TRAIN),
    Program("convnet", MODEL, models.convnet, TRAIN),
    Program("lstm", MODEL, models.lstm, TRAIN),
    Program("gru", MODEL, models.gru),
    Program("embedding_bag", MODEL, models.embedding_bag, TRAIN),
    Program("mixture_of_experts", MODEL, models.mixture, TRAIN),
    Program("autocast", MODEL, models.autocast, TRAIN),
    Program("channels_last", MODEL, models.channels_last, TRAIN),
    Program("buffer_written", MODEL, models.buffer_written),
    Program("scatter", MODEL, models.scatter),
    Program("sorting", MODEL, models.sorting),
    Program("einsum", MODEL, models.einsum, TRAIN),
    Program("sdpa", MODEL, models.sdpa, TRAIN),
    Program("autograd_function", MODEL, models.autograd_function, TRAIN),
    Program("rotary_attention", MODEL, models.rotary_attention, TRAIN),
    Program("nested_outputs", MODEL, models.nested_outputs),
    Program("none_gradient", MODEL, models.none_gradient, TRAIN),
    Program("backward_inside", MODEL, models.backward_inside, TRAIN, whole=False),
    Program("gradient_inside", MODEL, models.gradient_inside, INFER, dynamo=(("trace_autograd_ops", True),)),
    Program("loss", MODEL, models.loss, TRAIN),
    Program("interpolated", MODEL, models.interpolated),
    Program("tied_weights", MODEL, models.tied_weights, TRAIN),
    Program("vmap", TRANSFORM, models.vmap),
    Program("func_grad", TRANSFORM, models.func_grad),
    Program("func_jvp", TRANSFORM, models.func_jvp),
    Program("collectives", GROUPS, ranks.collectives),
    Program("collectives_two_ranks", GROUPS, ranks.collectives, ranks=2),
    Program("subgroups_two_ranks", GROUPS, ranks.subgroups, ranks=2),
    Program("reduced_in_place", GROUPS, ranks.reduced_in_place),
    Program("collectives_training", GROUPS, ranks.training, TRAIN),
    Program("dtensor_two_ranks", GROUPS, ranks.dtensor, ranks=2, known=SUBCLASS),
    Program("compiled_autograd_transformer", AUTOGRAD, models.transformer, BACKWARD),
    Program("compiled_autograd_hooks", AUTOGRAD, models.hooked, BACKWARD),
    Program("compiled_autograd_function", AUTOGRAD, models.autograd_function, BACKWARD),
    Program("joint_graph", API, models.transformer, "joint_graph"),
    Program("joint_graph_dynamic", API, models.einsum, "joint_graph", dynamic=True),
    Program("inference_graph", API, models.convnet, "inference_graph"),
]
HOOKED = [
    Program("step_inside", AUTOGRAD, models.step_inside, TRAIN, whole=False),
    Program("eager_backward_inside", AUTOGRAD, models.eager_backward_inside, TRAIN, whole=False),
]
"""Programs with hooks that Dynamo compiles, whose Dynamo graphs cannot be loaded: for unseen_matrix.py."""
PROGRAMS = {program.name: program for program in ROWS}
"""Name -> program, in the order of the table."""
