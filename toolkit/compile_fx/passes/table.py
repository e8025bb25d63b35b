"""The named passes of pre_grad, joint and post_grad, in the order in which they run. Names are torch's own where these
are clear.

Where they are not (`pass_pattern_0` is in two stages, group fusions are called `post_grad_custom_pre_pass`), the pass
has a readable name here and torch's is its alias. Read on torch 2.11.0 and 2.13.0. Imports no torch.

>>> PASSES["joint", "softmax_patterns"].aliases
('pass_pattern_1',)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ... import torch_private as t
from ...live.spec import setting


@dataclass(frozen=True)
class NamedPass:
    """One pass. `needed`: why it cannot be skipped; with `needed_for` only in a graph that has one of these operators.

    `when`: what turns it on, "" where it always runs. `patterns`: names of the patterns that a group of them tries,
    with `*`. `only`: the torch that has it, "" for all that were checked.

    Of a pass that is called by name from a module, with no observer, and is replaced there: `called`: what it returns
    when it is skipped, "graph" for the first argument, "count" for 0. `inside`: the pass that calls it. `torchs`: its
    row of private names, where that has another name. `switch`: the setting without which torch does not import it.
    """

    stage: str
    name: str
    does: str
    aliases: tuple[str, ...] = ()
    needed: str | None = None
    needed_for: tuple[str, ...] = ()
    when: str = ""
    patterns: tuple[str, ...] = ()
    only: str = ""
    called: str | None = None
    inside: str = ""
    torchs: str = ""
    switch: str = ""

    @property
    def full_name(self) -> str:
        """`stage.name`, which is unique to the pass."""
        return f"{self.stage}.{self.name}"

    @property
    def always_needed(self) -> bool:
        """Whether it cannot be skipped in any graph."""
        return self.needed is not None and not self.needed_for


_SORTS = "passes before it leave nodes ahead of what they use, and such a graph can be neither checked nor lowered"
_NO_RULE = "lowering has no rule for {}, which this pass takes apart"
_OPTION = '{}_fusion_options has "{}"'

_AUTO_FUNCTIONALIZED = ("auto_functionalized", "auto_functionalized_v2")
_RANDOM = ("aten.rand.default", "aten.randn.default", "aten.native_dropout.default")
_PAD_MM = ("mm_pattern*", "addmm_pattern*", "bmm_pattern*")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PRE_GRAD_PATTERNS = _words("""
    normalization_pass remove_split_with_size_one_pass merge_getitem_cat_pass merge_stack_tahn_unbind_pass
    merge_splits_pass mutate_cat_pass split_cat_pass unbind_stack_pass split_cat_to_slices_pass
    unbind_cat_to_view_pass split_stack_to_cats_pass unbind_stack_to_slices_pass move_reshape_out_of_split_stack_pass
    einsum_to_pointwise_pass
""")
PRE_GRAD_FUSIONS = _words("""
    batch_linear_lhs batch_linear batch_layernorm batch_tanh batch_sigmoid batch_relu batch_detach batch_nan_to_num
    batch_clamp batch_dropout
""")
POST_GRAD_PATTERNS = _words("""
    normalization_aten_pass decompose_mm_pass unbind_stack_aten_pass shape_padding_multiplier pad_aten_mm_pass
    split_cat_aten_pass select_cat_aten_pass move_view_after_cat_aten_pass
""")
POST_GRAD_FUSIONS = _words("""
    batch_linear_post_grad group_linear batch_aten_tanh batch_aten_sigmoid batch_aten_relu batch_aten_add
    batch_aten_sub batch_aten_div batch_aten_mul
""")
PREDISPATCH = _words("""
    normalization_pass_aten normalize_node_kwargs_pass remove_noop_pass relu_nan_to_num fuse_chunk_reshape_concat_pass
    fuse_chunk_squeeze_cat_pass merge_concats_pass fuse_split_linear_add_pass remove_reshape_pass
    fuse_parallel_linear_pass remove_split_ops_pass stack_to_unsqueeze_pass fuse_chunk_reshape_unsqueeze_concat_pass
    fuse_split_getitem_squeeze_cat use_triton_dot_compress use_triton_lce_replace_simple_LCE
    use_triton_lce_replace_normal_LCE use_matmul_fuse_lce_replace_first_LCE use_matmul_lce_replace_normal_LCE
""")


def _optional(stage: str, names: tuple[str, ...], does: str) -> tuple[NamedPass, ...]:
    return tuple(NamedPass(stage, name, does, when=_OPTION.format(stage, name)) for name in names)


_PRE_GRAD = (
    NamedPass("pre_grad", "numpy_compat_normalization", "numpy's argument names (axis, keepdims) to torch's",
              called=""),
    NamedPass("pre_grad", "sink_cat_after_pointwise", "pointwise operators on the inputs of cat go behind it",
              called="graph"),
    NamedPass("pre_grad", "linear_permute_fusion", "a permute behind a linear into one operator",
              when="permute_fusion, on a GPU", called="graph"),
    NamedPass("pre_grad", "permute_linear_fusion", "a permute before a linear into one operator",
              when="permute_fusion, on a GPU", called="graph"),
    NamedPass("pre_grad", "permute_matmul_fusion", "a permute before a matmul into one operator",
              when="permute_fusion, on a GPU", called="graph"),
    NamedPass("pre_grad", "remove_identity", "takes nn.Identity out", when="freezing, on a CPU without gradients",
              called="graph"),
    NamedPass("pre_grad", "fuse_conv_bn", "batch norm into the weights of the convolution before it",
              when="freezing, on a CPU without gradients", called="graph"),
    NamedPass("pre_grad", "group_batch_fusion_passes", "runs the fusions that pre_grad_fusion_options names"),
    *_optional("pre_grad", PRE_GRAD_PATTERNS, "patterns of split, cat, stack and unbind"),
    *_optional("pre_grad", PRE_GRAD_FUSIONS, "many operators of one kind into a batched one"),
    NamedPass("pre_grad", "efficient_conv_bn_eval_pass", "convolution and batch norm in evaluation, while training",
              when="efficient_conv_bn_eval_fx_passes"),
    NamedPass("pre_grad", "apply_gumbel_max_trick_pass", "sampling by the Gumbel-max trick, without a sum"),
    *(NamedPass("pre_grad", name, "a pass on ATen before dispatch", when="is_predispatch") for name in PREDISPATCH),
    NamedPass("pre_grad", "pre_grad_custom_pass", "the user's own", when="pre_grad_custom_pass"),
    NamedPass("pre_grad", "stable_topological_sort", "puts nodes behind what they use", needed=_SORTS,
              called="", torchs="pre_grad_sort"),
    NamedPass("pre_grad", "quant_lift_up", "moves quantised views ahead, for int8 attention", called=""),
)  # fmt: skip

_JOINT = (
    NamedPass("joint", "canonicalize_aten_ir_passes", "invoke_quant_packed to the form that lowering knows",
              needed=_NO_RULE.format("invoke_quant_packed"), needed_for=("invoke_quant_packed",), called=""),
    NamedPass("joint", "joint_custom_pre_pass", "the user's own", when="joint_custom_pre_pass"),
    NamedPass("joint", "remove_noop_ops", "takes out views, slices and copies that change nothing"),
    NamedPass("joint", "constant_fold_uniform_value", "values that are one number everywhere become full",
              when="joint_graph_constant_folding"),
    NamedPass("joint", "early_patterns", "views and permutes that cancel out",
              patterns=("pointless_view", "pointless_view_pair", "pointless_permute_pair")),
    NamedPass("joint", "auto_chunker", "splits large operators to save memory", when="auto_chunker.enable",
              called="graph", torchs="auto_chunk", switch="auto_chunker.enable"),
    NamedPass("joint", "attention_patterns", "attention to one operator, matmuls padded, casts and scatters simplified",
              aliases=("pass_pattern_0",),
              patterns=("fix_iota_device", "pointless_convert", "bmm_to_mm", "scatter_upon_const_tensor",
                        "randperm_index*", "_sfdp_pattern_*", *_PAD_MM)),
    NamedPass("joint", "softmax_patterns", "softmax of scaled values without overflow", aliases=("pass_pattern_1",),
              patterns=("mul_softmax_pattern", "div_softmax_pattern")),
    NamedPass("joint", "replace_random_passes", "random operators to Inductor's own generator",
              needed="lowering has no rule for random operators of eager; fallback_random=True keeps them in both "
              "places",
              needed_for=_RANDOM, patterns=("replace_random", "replace_randint"), called="count"),
    NamedPass("joint", "fuse_seed_creation_pass", "one tensor for all seeds, inside replace_random_passes",
              needed=_NO_RULE.format("a single seed"), needed_for=("prims.inductor_seed.default",),
              called="count", inside="replace_random_passes"),
    NamedPass("joint", "fuse_offset_creation_pass", "one tensor for all offsets, inside replace_random_passes",
              needed=_NO_RULE.format("a single offset"), needed_for=("prims.inductor_rand_eager_offset.default",),
              only="2.13", when="align_random_eager", called="count", inside="replace_random_passes"),
    NamedPass("joint", "joint_custom_post_pass", "the user's own", when="joint_custom_post_pass"),
    NamedPass("joint", "stable_topological_sort", "puts nodes behind what they use", needed=_SORTS,
              when="a pass before it changed something", called="", torchs="joint_sort"),
)  # fmt: skip

_POST_GRAD = (
    NamedPass("post_grad", "view_to_reshape", "views to reshapes, as layouts may change",
              needed="a layout that Inductor chooses may have no such view", called=""),
    NamedPass("post_grad", "fake_tensor_prop", "a fake value for each node",
              needed="lowering takes shapes, strides and devices from these values", called=""),
    NamedPass("post_grad", "remove_fsdp2_unsharded_param_graph_input_usage", "FSDP's parameters, read without a copy",
              when="skip_fsdp_hooks off", only="2.11", called=""),
    NamedPass("post_grad", "dce", "takes out nodes that nobody uses", when="dce"),
    NamedPass("post_grad", "reorder_for_locality", "nodes next to their users", when="inference"),
    NamedPass("post_grad", "post_grad_custom_pre_pass", "the user's own", when="post_grad_custom_pre_pass"),
    NamedPass("post_grad", "grouped_gemm_pass", "matmuls of one input as one group", when="max_autotune with CPP",
              called="", switch="cpp.enable_grouped_gemm_template"),
    NamedPass("post_grad", "concat_linear_woq_int4", "int4 linears of one input side by side",
              when="cpp.enable_concat_linear", called=""),
    NamedPass("post_grad", "remove_profiler_ops", "takes record_function out"),
    NamedPass("post_grad", "group_batch_fusion_passes", "runs the fusions that post_grad_fusion_options names",
              aliases=("post_grad_custom_pre_pass",)),
    *_optional("post_grad", POST_GRAD_FUSIONS, "many operators of one kind into a batched one"),
    NamedPass("post_grad", "remove_noop_ops", "takes out views, slices and copies that change nothing"),
    NamedPass("post_grad", "remove_assert_ops", "takes out asserts on dtypes and layouts, which lower to nothing"),
    NamedPass("post_grad", "first_patterns", "patterns registered ahead of the others", aliases=("pass_pattern_0",),
              patterns=()),
    NamedPass("post_grad", "matmul_patterns", "matmuls, oneDNN's fusions, cat of slices, cumsum of ones",
              aliases=("pass_pattern_1",),
              patterns=("mm_plus_mm", "fn", "pointless_cumsum_replacement", "cat_slice_cat", "randperm_index*",
                        "woq_int8", "qmaxpool2d", "qcat", "qreshape", "prepare_softmax_pattern")),
    NamedPass("post_grad", "addmm_patterns", "add and matmul as one or apart, cat of split, oneDNN's linears",
              aliases=("pass_pattern_2",),
              patterns=("splitwithsizes_cat_replace", "cat_splitwithsizes_replace", "unfuse_bias_add_to_pointwise",
                        "addmm", "reuse_partial", "qconv*", "qlinear*")),
    NamedPass("post_grad", "partitioned_scatter_optimization", "scatters with fewer collisions",
              when="partitioned_scatter_enabled"),
    *_optional("post_grad", POST_GRAD_PATTERNS, "patterns of split, cat, select and mm"),
    NamedPass("post_grad", "b2b_gemm_pass", "two matmuls in a row as one kernel", when="b2b_gemm_pass",
              patterns=("b2b_gemm_handler",)),
    NamedPass("post_grad", "micro_pipeline_tp_pass", "collectives in pieces beside matmuls", when="_micro_pipeline_tp",
              called=""),
    NamedPass("post_grad", "fuse_ddp_communication", "DDP's all-reduces in buckets", when="_fuse_ddp_communication"),
    NamedPass("post_grad", "post_grad_custom_post_pass", "the user's own", when="post_grad_custom_post_pass"),
    NamedPass("post_grad", "chain_random_ops_ordering", "random operators keep their order", when="fallback_random",
              only="2.13"),
    NamedPass("post_grad", "stable_sort", "puts nodes behind what they use", needed=_SORTS),
    NamedPass("post_grad", "move_constructors_to_cuda", "tensors made on the CPU for a GPU are made there"),
    NamedPass("post_grad", "incremental_update", "new fake values where passes changed nodes",
              needed="changed nodes would keep the shapes and strides of others, and get wrong layouts",
              called="", torchs="FakeTensorUpdater.incremental_update"),
    NamedPass("post_grad", "custom_backend_passes_*", "a device's own, by its type", when="a backend registered one"),
    NamedPass("post_grad", "spmd_check", "compares the graphs of all ranks", only="2.13",
              when="aten_distributed_optimizations.spmd_check",
              called="", switch="aten_distributed_optimizations.spmd_check"),
    NamedPass("post_grad", "decomp_comms", "collectives around a product of a matrix with itself", only="2.13",
              when="aten_distributed_optimizations.allow_comms_decompositions"),
    NamedPass("post_grad", "dedup_reduce_scatters", "equal reduce-scatters once", when="dedup_reduce_scatters",
              only="2.13"),
    NamedPass("post_grad", "bucket_reduce_scatters", "reduce-scatters in buckets", when="bucket_reduce_scatters_fx"),
    NamedPass("post_grad", "bucket_all_reduce", "all-reduces in buckets", when="bucket_all_reduces_fx"),
    NamedPass("post_grad", "bucket_all_gathers", "all-gathers in buckets", when="bucket_all_gathers_fx"),
    NamedPass("post_grad", "stable_topological_sort", "puts nodes behind what they use", needed=_SORTS,
              when="collectives were put in buckets", called="", torchs="post_grad_sort"),
    NamedPass("post_grad", "overlap_scheduling", "collectives beside what does not wait for them",
              when="aten_distributed_optimizations.enable_overlap_scheduling"),
    NamedPass("post_grad", "replace_collectives_with_low_contention", "collectives by copies between GPUs", only="2.13",
              when="aten_distributed_optimizations.enable_low_contention_collectives"),
    NamedPass("post_grad", "reinplace_inplaceable_ops", "writes in place where nobody reads the old value"),
    NamedPass("post_grad", "fix_auto_functionalized_dtype_views", "inputs that are one memory as two dtypes",
              needed="operators that write in place would take two views of one memory for two memories",
              needed_for=_AUTO_FUNCTIONALIZED, only="2.13"),
    NamedPass("post_grad", "decompose_triton_kernel_wrapper_functional", "the user's Triton kernels to in-place calls",
              needed=_NO_RULE.format("triton_kernel_wrapper_functional"),
              needed_for=("triton_kernel_wrapper_functional",)),
    NamedPass("post_grad", "decompose_auto_functionalized", "operators that write in place to copies and the operator",
              needed=_NO_RULE.format("auto_functionalized"), needed_for=_AUTO_FUNCTIONALIZED),
    NamedPass("post_grad", "reinplace_fsdp_all_gather", "FSDP's all-gather into one buffer", only="2.11",
              when="skip_fsdp_hooks off"),
    NamedPass("post_grad", "decompose_scan_to_while_loop", "scan to while_loop", needed=_NO_RULE.format("scan"),
              needed_for=("scan",)),
    NamedPass("post_grad", "decompose_map_to_while_loop", "map to while_loop", needed=_NO_RULE.format("map_impl"),
              needed_for=("map_impl",)),
)  # fmt: skip

PASSES = {(row.stage, row.name): row for row in (*_PRE_GRAD, *_JOINT, *_POST_GRAD)}
"""(stage, name) -> pass, in order."""
FAMILIES = {"pad_mm": _PAD_MM, "attention": ("_sfdp_pattern_*",)}
"""Words for patterns that belong together, as they can be asked for."""


def calls() -> Iterator[tuple[NamedPass, Any, str]]:
    """The passes that this torch has and that are called by name, each with the module or class and the attribute."""
    for row in PASSES.values():
        name = row.torchs or row.name
        switched_on = not row.switch or setting("inductor", row.switch)[1]
        if row.called is not None and switched_on and t.optional(name) is not None:
            yield row, *t.home(name)
