"""The settings, compiler arguments and their values that a dump may set: a list, and everything else is refused.

Also: the kinds of values that a setting takes: true or false, numbers of a range, words of a fixed set, plain names,
and lists and tables of these.

Also: the settings of torch's compiler that a dump may set, each by its name and kind; and names that are refused.

Settings that name paths, commands, flags, libraries or callbacks, and unknown ones, are shown, but applied only where
the user trusts the dump. Values are plain ones (`walk.plain`). Imports no torch, and does not check what torch would
accept.

>>> refusal("inductor", "cpp.cxx", [None, "./x.sh"]), refusal("inductor", "max_autotune", True)
('it names commands', '')
>>> refusal("inductor", "cpp.threads", 10**9)
'it takes a whole number of -1 to 1024'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, cast

from .wording import listed

_PLAIN = re.compile(r"[A-Za-z0-9_.:]{0,120}", re.ASCII)
_MOST = 1000
"""The most items of a list."""


class Switch(NamedTuple):
    """True or false, also as 1 or 0."""

    def takes(self, value: Any) -> bool:
        """Whether a value is one of these."""
        return isinstance(value, (bool, int)) and value in (0, 1)

    def text(self) -> str:
        """The words after "takes"."""
        return "true or false"


class Number(NamedTuple):
    """A number in a range, both ends included."""

    least: float
    most: float
    whole: bool = True

    def takes(self, value: Any) -> bool:
        """Whether a value is such a number; infinity and NaN are not."""
        return isinstance(value, int if self.whole else (int, float)) and self.least <= value <= self.most

    def text(self) -> str:
        """The words after "takes"."""
        return f"{'a whole number' if self.whole else 'a number'} of {self.least:g} to {self.most:g}"


class Words(NamedTuple):
    """One word of a fixed set; `several`: any number of them between commas, in any case; `or_bool`: true and false
    besides."""

    words: str
    several: bool = False
    or_bool: bool = False

    def takes(self, value: Any) -> bool:
        """Whether a value is one of the words."""
        if isinstance(value, bool):
            return self.or_bool
        if not isinstance(value, str) or len(value) > _MOST:
            return False
        if not self.several:
            return value in self.words.split()
        known = self.words.upper().split()
        return not value or all(word.strip(" ").upper() in known for word in value.split(","))

    def text(self) -> str:
        """The words after "takes"."""
        return ", ".join(self.words.split()) + (" between commas" if self.several else "")


class PlainNames(NamedTuple):
    """Names between commas, of letters, digits, `_`, `.` and `:`."""

    def takes(self, value: Any) -> bool:
        """Whether a value consists of plain names."""
        return isinstance(value, str) and len(value) <= _MOST * 10 and all(map(_PLAIN.fullmatch, value.split(",")))

    def text(self) -> str:
        """The words after "takes"."""
        return "plain names"


class Each(NamedTuple):
    """A list or tuple of at most `most` values that `of` takes; `as_text`: a text with numbers between commas."""

    of: Any
    as_text: bool = False
    most: int = _MOST

    def takes(self, value: Any) -> bool:
        """Whether a value is such a list. Where the items may be lists, a lone item may stand in place of a list."""
        if self.as_text:
            parts = value.split(",") if isinstance(value, str) and len(value) <= _MOST else [""]
            return all(
                re.fullmatch(r" ?-?[0-9]{1,9}", number, re.ASCII) and self.of.takes(int(number)) for number in parts
            )
        if isinstance(self.of, Each) and self.of.of.takes(value):
            return True
        many = cast("list[Any]", list(value)) if isinstance(value, (list, tuple)) else None  # pyright: ignore[reportUnknownArgumentType]
        return many is not None and len(many) <= self.most and all(map(self._inner, many))

    def _inner(self, value: Any) -> bool:
        return self.of.takes(value) or (isinstance(self.of, Each) and self.of.of.takes(value))

    def text(self) -> str:
        """The words after "takes"."""
        return f"{'numbers between commas' if self.as_text else 'a list'}, each {self.of.text()}"


class NumberTable(NamedTuple):
    """A table: plain name -> number, true, false, or another such table (one level deep)."""

    def takes(self, value: Any) -> bool:
        """Whether a value is such a table."""
        return self._table(value, 2)

    def _table(self, value: Any, levels: int) -> bool:
        if not isinstance(value, dict) or not levels:
            return False
        table, number = cast("dict[Any, Any]", value), Number(0, 2**20, whole=False)
        names = len(table) <= _MOST and all(isinstance(name, str) and _PLAIN.fullmatch(name) for name in table)
        return names and all(number.takes(entry) or self._table(entry, levels - 1) for entry in table.values())

    def text(self) -> str:
        """The words after "takes"."""
        return "a table of plain names and numbers"


Kind = Switch | Number | Words | PlainNames | Each | NumberTable


class Alike(NamedTuple):
    """Settings of one kind. `under`: the prefixes of their names; `names`: separated by spaces, with a `?` where None
    is accepted too."""

    kind: Kind
    under: str
    names: str


_SWITCH = Switch()
_SETTING_COUNT, _BYTES, _SECONDS = Number(0, 2**20), Number(0, 2**50), Number(0, 10**6, whole=False)
_REAL, _SIGNED, _SEARCH, _LEVEL = Number(0, 1e15, whole=False), Number(-1, 2**20), Number(0, 1000), Number(0, 9)
_BACKENDS = Words("ATEN TRITON CPP CUTLASS CUTEDSL CK CKTILE NVGEMM", several=True)
_BUCKETS = Words("default custom_ops custom_ops_multidtype coalesced")
_SIDES = Words("Anderson2021 Li2018 Adams2019 Mullapudi2016")
_LAYOUTS = Words("needs_exact_strides needs_fixed_stride_order flexible_layout")
_NAMES = Words("torch original_aten inductor_node")
_BUGS = Words("compile_error runtime_error accuracy")
_FORM = Words("svg png pdf dot")

ROWS = (
    Alike(_SWITCH, "inductor",
        "TYPE_CHECKING inplace_padding can_inplace_pad_graph_input enable_auto_functionalized_v2 debug "
        "disable_progress verbose_progress fx_graph_cache bundle_triton_into_fx_graph_cache? autotune_local_cache "
        "force_disable_caches unsafe_skip_cache_dynamic_shape_guards cpp_wrapper cpp_wrapper_build_separate "
        "fx_wrapper cpp_cache_precompile_headers online_softmax apply_gumbel_max_trick dce static_weight_shapes "
        "size_asserts nan_asserts runtime_triton_nan_asserts scalar_asserts alignment_asserts pick_loop_orders "
        "inplace_buffers allow_buffer_reuse memory_planning use_fast_math benchmark_harness epilogue_fusion "
        "epilogue_fusion_with_atomic_add prologue_fusion epilogue_fusion_first "
        "epilogue_fusion_user_defined_triton_kernel pattern_matcher b2b_gemm_pass split_cat_fx_passes "
        "efficient_conv_bn_eval_fx_passes is_predispatch group_fusion batch_fusion reorder_for_locality "
        "dynamic_scale_rblock force_fuse_int_mm_with_mul keep_addmm_fused_for_half_dtypes use_mixed_mm "
        "reorder_for_compute_comm_overlap reorder_for_peak_memory reorder_for_peak_memory_debug dedup_reduce_scatters "
        "runtime_estimations_mms_benchmark use_experimental_benchmarker distributed_max_autotune_gemm "
        "pipeline_max_autotune_gemm use_torch_profiler_benchmarker max_autotune max_autotune_pointwise "
        "max_autotune_gemm incremental_autotune? max_autotune_report_choices_stats "
        "max_autotune_prune_choices_based_on_shared_mem triton_disable_device_detection graph_partition "
        "max_autotune_allow_flexible_layouts nvgemm_supplement_configs fallback_by_default selective_decompose "
        "use_dce use_pre_grad_passes use_joint_graph_passes use_post_grad_passes cutedsl_enable_autotuning "
        "autotune_fallback_to_aten search_autotune_cache autotune_in_subproc autotune_multi_device "
        "coordinate_descent_tuning coordinate_descent_check_all_directions run_jit_post_compile_hook "
        "layout_optimization force_layout_optimization cache_sdpa_constraint keep_output_stride warn_mix_layout "
        "delay_realize_cheap_outputs fallback_random align_random_eager fallback_embedding_bag_byte_unpack "
        "implicit_fallbacks assume_unaligned_fallback_output aggressive_fusion debug_fusion benchmark_fusion "
        "loop_ordering_after_fusion loop_reindexing_after_fusion loop_index_inversion_in_fusion "
        "benchmark_epilogue_fusion force_pointwise_cat comment_origin conv_1x1_as_mm split_reductions deterministic "
        "batch_invariant benchmark_kernel constant_and_index_propagation always_keep_tensor_constants "
        "assert_indirect_indexing do_not_emit_runtime_assertions compute_all_bounds combo_kernels "
        "benchmark_combo_kernel combo_kernel_foreach_dynamic_shapes combo_kernel_per_subkernel_blocks "
        "combo_kernel_autotune_grouping combo_kernels_pointwise_only joint_graph_constant_folding debug_index_asserts "
        "is_nightly_or_source developer_warnings optimize_scatter_upon_const_tensor worker_suppress_logging "
        "log_tlparse _fuse_ddp_communication _micro_pipeline_tp partitioned_scatter_enabled "
        "quiesce_async_compile_pool use_static_cuda_launcher use_static_triton_launcher "
        "static_launch_user_defined_triton_kernels strict_static_cuda_launcher strict_static_triton_launcher "
        "keep_static_cubin_raw use_fast_triton_launcher use_launch_metadata_schema shape_padding "
        "comprehensive_padding pad_channels_last pad_dynamic_shapes disable_padding_cpu "
        "expand_dimension_for_pointwise_nodes pad_outputs bw_outputs_user_visible force_shape_pad permute_fusion "
        "profiler_mark_wrapper_call generate_intermediate_hooks debug_ir_traceback _raise_error_for_testing "
        "_use_fp64_for_unbacked_floats profile_bandwidth profile_bandwidth_with_do_bench_using_profiling "
        "disable_cpp_codegen freezing freezing_discard_parameters decompose_mem_bound_mm "
        "wrap_inductor_compiled_regions assume_aligned_inputs assume_32bit_indexing "
        "unsafe_ignore_unsupported_triton_autotune_args check_stack_no_cycles_TESTING_ONLY "
        "force_disable_cudagraph_TESTING_ONLY enable_linear_binary_folding annotate_training "
        "enable_caching_generated_triton_templates enable_autograd_for_aot write_are_deterministic_algorithms_enabled "
        "emulate_precision_casts emulate_precision_casts_on_saved_tensors force_same_precision "
        "always_complex_memory_overlap_TESTING_ONLY strict_signed_zero reorder_for_locality_in_training "
        "decompose_shard_dim_alltoall autotune_cudagraph_benchmarking nvgemm_swap_ab strict_output_strides "
        "combo_kernel_compile_time_autotune partitioned_scatter_force"),
    Alike(_SWITCH, "inductor.autoheuristic_collect", "pad_mm mixed_mm"),
    Alike(_SWITCH, "inductor.autoheuristic_use", "mixed_mm pad_mm?"),
    Alike(_SWITCH, "inductor._collective", "auto_select"),
    Alike(_SWITCH, "inductor.aten_distributed_optimizations",
        "enable_overlap_scheduling collective_bucketing? insert_overlap_deps? log_final_collectives_estimations "
        "bucket_exposed_first? bucket_only_internode_comms enable_fusion_regions? "
        "prioritize_bucketing_during_scheduling spmd_check overlap_scheduling_autofix_cycles "
        "enable_low_contention_collectives low_contention_skip_overlap_check pre_bucketing_fsdp_collectives "
        "pre_bucketing_fsdp_collectives_verbose allow_comms_decompositions enable_simple_overlap "
        "low_contention_all_gather_ce_multicast"),
    Alike(_SWITCH, "inductor.auto_chunker", "enable"),
    Alike(_SWITCH, "inductor.cpp",
        "no_redundant_loops dynamic_threads enable_kernel_profile weight_prepack vec_isa_ok? "
        "fallback_scatter_reduce_sum enable_unsafe_math_opt_flag enable_tiling_heuristics "
        "enable_grouped_gemm_template enable_loop_tail_vec enable_concat_linear use_decompose_tanh "
        "use_small_dequant_buffer force_inline_kernel use_constexpr_for_int_array enable_kernel_context_guard"),
    Alike(_SWITCH, "inductor.triton",
        "cudagraphs cudagraph_trees cudagraph_skip_dynamic_graphs slow_path_cudagraph_asserts "
        "cudagraph_trees_history_recording cudagraph_support_input_mutation force_cudagraph_sync "
        "force_cudagraphs_warmup cudagraph_or_error reorder_for_reducing_graph_partitions fast_path_cudagraph_asserts "
        "skip_cudagraph_warmup debug_sync_graph debug_sync_kernel dense_indexing coalesce_tiling_analysis "
        "prefer_nd_tiling autotune_pointwise autotune_cublasLt autotune_at_compile_time? autotune_with_sample_inputs "
        "tile_reductions native_matmul tiling_prevents_pointwise_fusion tiling_prevents_reduction_fusion "
        "unique_kernel_names unique_user_kernel_names persistent_reductions decompose_sort_ops cooperative_reductions "
        "force_cooperative_reductions divisible_by_16 emit_pointer_range_32 store_cubin use_block_ptr "
        "use_tensor_descriptor transpose_discontiguous_tensor_descriptor codegen_upcast_to_fp32 "
        "enable_persistent_tma_matmul enable_template_tma_store enable_tma_load_for_template_epilogue skip_l1_cache "
        "disallow_failing_autotune_kernels_TESTING_ONLY enable_pdl mix_order_reduction "
        "mix_order_reduction_autotune_split_size mix_order_reduction_non_strict_mode "
        "mix_order_reduction_allow_multi_stages nested_reduction dynamic_disable_pipelining enable_tlx_templates "
        "enable_host_side_tma enable_template_autows"),
    Alike(_SWITCH, "inductor.aot_inductor",
        "autotune_per_kernel_alloc debug_compile debug_symbols enable_frame_pointer enable_line_tables "
        "use_runtime_constant_folding force_mmap_weights use_consts_asm_build package package_cpp_only? "
        "dynamic_linkage raise_error_on_ignored_optimization check_lowerbound allow_stack_allocation "
        "use_minimal_arrayref_interface weight_use_caching_allocator package_constants_in_so precompile_headers "
        "embed_kernel_binary? emit_multi_arch_kernel? enable_lto link_libtorch"),
    Alike(_SWITCH, "inductor.aot_inductor_mode", "compile_standalone"),
    Alike(_SWITCH, "inductor.cutlass inductor.cuda inductor.xpu",
        "enable_debug_info use_fast_math cutlass_epilogue_fusion_enabled cutlass_tma_only "
        "cutlass_hash_with_compile_cmd cutlass_prescreening enable_caching_codegen"),
    Alike(_SWITCH, "inductor.cuda", "enable_cuda_lto enable_ptxas_info"),
    Alike(_SWITCH, "inductor.rocm",
        "is_debug use_fast_math flush_denormals print_kernel_resource_usage use_preselected_instances origami"),
    Alike(_SWITCH, "inductor.mtia", "disable_welford_reduction"),
    Alike(_SWITCH, "inductor.halide", "asserts debug scan_kernels"),
    Alike(_SWITCH, "inductor.lookup_table", "check_src_hash"),
    Alike(_SWITCH, "inductor.test_configs",
        "force_extern_kernel_in_multi_template force_custom_op_decomposition? force_no_impl_grouping "
        "runtime_triton_dtype_assert runtime_triton_shape_assert static_cpp_dtype_assert "
        "graphsafe_rng_func_ignores_fallback_random use_libtorch assume_bucketing_reduces_latency "
        "force_filter_reduction_configs bisect_pre_grad_graph bisect_keep_custom_backend_for_inductor"),
    Alike(_SWITCH, "inductor.eager_numerics", "division_rounding disable_ftz use_pytorch_libdevice"),
    Alike(_SWITCH, "functorch",
        "TYPE_CHECKING functionalize_rng_ops fake_tensor_allow_meta debug_assert debug_partitioner "
        "decompose_custom_triton_ops static_weight_shapes treat_parameters_as_free_to_save cse "
        "unsafe_treat_script_objects_as_zero_size enable_autograd_cache "
        "autograd_cache_allow_custom_autograd_functions bundled_autograd_cache bypass_autograd_cache_key "
        "autograd_cache_normalize_inputs check_custom_op_aliasing error_on_custom_op_aliasing "
        "view_replay_for_aliased_outputs ban_recompute_used_far_apart ban_recompute_long_fusible_chains "
        "ban_recompute_materialized_backward ban_recompute_not_in_allowlist ban_recompute_reductions recompute_views "
        "is_non_builtin_to_include remat_using_tags_for_fwd_loss_bwd_graph aggressive_recomputation "
        "enable_activation_offloading activation_offload_separate_stream activation_offload_sink_wait "
        "activation_reload_prefetch fake_tensor_allow_unsafe_data_ptr_access unlift_effect_tokens "
        "fake_tensor_crossref fake_tensor_propagate_real_tensors donated_buffer "
        "generate_fake_kernels_from_real_mismatches graphsafe_rng_functionalization force_non_lazy_backward_lowering "
        "_test_disable_functionalization strict_autograd_cache unsafe_allow_optimization_of_collectives "
        "disable_guess_zero_tangent_for_mutated_input_subclass guess_tangent_strides_as_outputs "
        "_sync_decision_cross_ranks force_autograd_cache selective_decompose enable_complex_wrapper"),
    Alike(_SWITCH, "dynamo",
        "TYPE_CHECKING verbose verify_correctness leaf_function_validate_outputs "
        "leaf_function_check_escaped_gradients replay_side_effects generate_pycode "
        "skip_code_recursive_on_recompile_limit_hit fail_on_recompile_limit_hit "
        "skip_code_recursive_on_cache_limit_hit fail_on_cache_limit_hit specialize_int specialize_float "
        "dynamic_shapes use_lazy_graph_module assume_static_by_default automatic_dynamic_shapes "
        "automatic_dynamic_exclusion_guard log_graph_in_out_metadata force_parameter_static_shapes "
        "force_nn_module_property_static_shapes allow_ignore_mark_dynamic guard_nn_modules "
        "guard_nn_modules_using_dict_tags prepare_freezing suppress_errors disable same_two_models_use_fp64 "
        "capture_scalar_outputs capture_dynamic_output_shape_ops prefer_deferred_runtime_asserts_over_guards "
        "force_unspec_int_unbacked_size_like_on_torchrec_kjt allow_unspec_int_on_nn_module optimize_ddp "
        "do_not_emit_runtime_asserts skip_torchrec dont_skip_tracing optimize_ddp_lazy_compile "
        "use_lamba_guard_for_object_aliasing skip_fsdp_guards skip_nnmodule_hook_guards "
        "skip_no_tensor_aliasing_guards_on_parameters skip_tensor_guards_with_matching_dict_tags "
        "skip_guards_on_constant_func_defaults assume_dunder_attributes_remain_unchanged "
        "use_recursive_dict_tags_for_guards raise_on_ctx_manager_usage raise_on_unsafe_aot_autograd "
        "error_on_nested_jit_trace error_on_nested_fx_trace force_compile_during_fx_trace allow_rnn "
        "capture_sparse_compute error_on_recompile report_guard_failures trace_numpy trace_autograd_ops "
        "use_numpy_random_stream enable_cpp_guard_manager enable_cpp_symbolic_shape_guards enable_trace_contextlib "
        "enable_trace_unittest enable_trace_load_build_class enable_faithful_generator_behavior "
        "inline_inbuilt_nn_modules nested_graph_breaks error_on_dynamo_callback_in_fullgraph_compiled_code "
        "install_free_tensors install_free_tensors_for_export enable_cpp_framelocals_guard_eval "
        "use_graph_deduplication track_nodes_for_deduplication graph_deduplication_lint issue_3_13_0_warning "
        "allow_empty_graphs debug_force_nested_calls debug_force_graph_break_on_leaf_return "
        "debug_disable_compile_counter record_compile_time_instruction_count cudagraph_backend_keep_input_mutation "
        "cudagraph_backend_support_input_mutation only_allow_pt2_compliant_ops capture_autograd_function "
        "capture_func_transforms capture_profiler_record_function log_compilation_metrics "
        "inject_BUILD_SET_unimplemented_TESTING_ONLY fake_tensor_cache_enabled fake_tensor_cache_crosscheck_enabled "
        "fake_tensor_disable_inference_mode caching_precompile strict_precompile compiled_autograd "
        "enable_dynamo_decompositions graph_break_on_nn_param_ctor inline_torch_dispatch_torch_compile "
        "skip_fwd_side_effects_in_bwd_under_checkpoint enable_compiler_collectives enable_p2p_compilation "
        "automatic_dynamic_local_pgo _unsafe_skip_fsdp_module_guards run_gc_after_compile "
        "constant_fold_autograd_profiler_enabled wrap_top_frame record_runtime_overhead enable_aot_compile "
        "enable_invoke_subgraph_regional_compile inline_invoke_subgraph inline_single_use_invoke_subgraph "
        "invalidate_compile_context_weakrefs? skip_fsdp_hooks canonicalize_output_graph_node_order dynamo_profiler "
        "dead_code_elimination? rewrite_assert_with_torch_assert repro_forward_only repro_ignore_non_fp"),
    Alike(_SETTING_COUNT, "inductor",
        "realize_reads_threshold _realize_opcount_threshold_default realize_opcount_threshold? "
        "realize_cpu_opcount_threshold _realize_acc_reads_threshold_default realize_acc_reads_threshold? "
        "realize_cpu_acc_reads_threshold realize_opusers_threshold reorder_prefetch_limit? "
        "size_threshold_for_succ_based_strategy score_fusion_memory_threshold max_epilogue_benchmarked_choices "
        "max_fusion_size max_fusion_buffer_group_pairwise_attempts max_fusion_unique_io_buffers? "
        "max_complex_pointwise_cat_inputs max_pointwise_cat_inputs unroll_reductions_threshold min_num_split "
        "combo_kernels_autotune combo_kernel_allow_mixed_sizes combo_kernel_max_num_args combo_kernel_max_num_nodes "
        "kernel_name_max_ops padding_alignment_bytes padding_stride_threshold unbacked_symint_fallback "
        "autotune_num_choices_displayed? _fuse_ddp_bucket_size partitioned_scatter_min_partitions "
        "partitioned_scatter_max_partitions partitioned_scatter_min_index_size"),
    Alike(_BYTES, "inductor",
        "small_memory_access_threshold realize_acc_reads_size_threshold? partitioned_scatter_non_model_floor_bytes"),
    Alike(_REAL, "inductor",
        "intra_node_bw? inter_node_bw? cpu_gpu_bw min_overlap_ratio combo_kernel_peak_memory_increase_gb? "
        "combo_kernel_peak_memory_pct_threshold? partitioned_scatter_memory_budget "
        "partitioned_scatter_min_contention_ratio"),
    Alike(_SIGNED, "inductor", "combo_kernel_max_distance"),
    Alike(_SEARCH, "inductor",
        "coordinate_descent_search_radius collective_benchmark_nruns nvgemm_max_profiling_configs? compile_threads?"),
    Alike(Number(0, 10**4), "inductor", "inductor_default_autotune_warmup inductor_default_autotune_rep"),
    Alike(_SECONDS, "inductor",
        "precompilation_timeout_seconds max_autotune_subproc_result_timeout_seconds "
        "max_autotune_subproc_graceful_timeout_seconds max_autotune_subproc_terminate_timeout_seconds "
        "collective_benchmark_timeout quiesce_async_compile_time file_lock_timeout compile_worker_wait_timeout "
        "compile_worker_watchdog_interval_seconds"),
    Alike(Each(_BYTES), "inductor", "multi_kernel_hints"),
    Alike(_LAYOUTS, "inductor", "triton_kernel_default_layout_constraint"),
    Alike(Words("none intermediates outputs combined"), "inductor", "memory_pool"),
    Alike(Words("default triton aten heuristic"), "inductor", "mixed_mm_choice"),
    Alike(Words("none all only_fsdp"), "inductor",
        "bucket_all_gathers_fx bucket_reduce_scatters_fx bucket_all_reduces_fx"),
    Alike(_BUCKETS, "inductor", "bucket_all_gathers_bucket_mode bucket_reduce_scatters_bucket_mode"),
    Alike(_BACKENDS, "inductor",
        "max_autotune_gemm_backends _conv_default_backends max_autotune_conv_backends "
        "max_autotune_conv_bwd_weight_backends max_autotune_conv_bwd_input_backends"),
    Alike(Words("DEFAULT EXHAUSTIVE"), "inductor", "max_autotune_gemm_search_space max_autotune_flex_search_space"),
    Alike(Words("early late default"), "inductor", "pre_grad_pass_timing"),
    Alike(Words("default benchmark"), "inductor", "estimate_op_runtime"),
    Alike(Words("default strict"), "inductor", "numerics"),
    Alike(Words("0 1"), "inductor", "layout_opt_default _partitioned_scatter_default"),
    Alike(Words("subprocess fork spawn"), "inductor", "worker_start_method"),
    Alike(Words("cpp triton halide pallas"), "inductor", "cpu_backend cuda_backend tpu_backend xpu_backend"),
    # Torch looks up a pass of this list by name among all functions of its own module, so only these names may be
    # given.
    Alike(Each(Words("reorder_compute_for_overlap sink_waits raise_comms sink_waits_iterative "
                   "reorder_communication_preserving_peak_memory")), "inductor",
        "reorder_for_compute_comm_overlap_passes"),
    Alike(Each(Words("fuse_ddp_with_concat_op fuse_ddp_with_coalesced_op schedule_comm_wait")), "inductor",
        "_fuse_ddp_communication_passes"),
    # Only compared with the names of passes and operators.
    Alike(PlainNames(), "inductor",
        "disabled_passes add_pre_grad_passes? remove_pre_grad_passes? autoheuristic_collect autoheuristic_use"),
    Alike(Each(PlainNames()), "inductor", "custom_should_partition_ops cudagraph_unsafe_unbacked_ops"),
    Alike(NumberTable(), "inductor", "pre_grad_fusion_options post_grad_fusion_options fx_passes_numeric_check"),
    Alike(_BYTES, "inductor._collective", "one_shot_all_reduce_threshold_bytes"),
    Alike(_SETTING_COUNT, "inductor.aten_distributed_optimizations", "max_compute_pre_fetch? max_coll_distance?"),
    Alike(_REAL, "inductor.aten_distributed_optimizations",
        "compute_overlap_multipler? max_memory_increase_gb? max_memory_increase_ratio? max_in_flight_gb? "
        "low_contention_min_bytes_per_rank pre_bucketing_fsdp_collectives_bucket_cap_mb? "
        "pre_bucketing_fsdp_collectives_min_bucket_cap_mb pre_bucketing_fsdp_collectives_max_bucket_cap_mb "
        "pre_bucketing_fsdp_collectives_saturation_calibration_multiplier"),
    Alike(Words("analytical benchmark"), "inductor.aten_distributed_optimizations",
        "collective_estimator compute_estimator"),
    Alike(_BUCKETS, "inductor.aten_distributed_optimizations", "bucket_mode?"),
    Alike(Words("warn error"), "inductor.aten_distributed_optimizations", "spmd_mismatch"),
    Alike(_BYTES, "inductor.auto_chunker", "output_size_threshold amplify_ratio_threshold num_chunk?"),
    Alike(Number(-1, 1024), "inductor.cpp", "threads"),
    Alike(Number(0, 2048), "inductor.cpp", "simdlen?"),
    Alike(_SETTING_COUNT, "inductor.cpp",
        "min_chunk_size max_horizontal_fusion_size gemm_max_k_slices use_two_step_variance_threshold"),
    Alike(Words("off on fast fast-honor-pragmas"), "inductor.cpp", "enable_floating_point_contract_flag"),
    Alike(_NAMES, "inductor.cpp inductor.triton", "descriptive_names"),
    Alike(_BUGS, "inductor.cpp inductor.triton", "inject_relu_bug_TESTING_ONLY?"),
    Alike(_BUGS, "inductor.cpp", "inject_log1p_bug_TESTING_ONLY?"),
    Alike(Each(Number(-1, 2**20), as_text=True), "inductor.cpp", "gemm_cache_blocking? gemm_thread_factors?"),
    Alike(_SETTING_COUNT, "inductor.triton",
        "cudagraph_min_partition_size cudagraph_unexpected_rerecord_limit cudagraph_dynamic_shape_warn_limit? "
        "use_two_step_variance_min_numel use_two_step_variance_threshold min_split_scan_rblock spill_threshold "
        "num_decompose_k_splits decompose_k_threshold mix_order_reduction_initial_xblock "
        "mix_order_reduction_split_size? mix_order_reduction_max_reads"),
    Alike(Number(1, 3), "inductor.triton", "max_tiles?"),
    Alike(Number(0, 3), "inductor.triton", "multi_kernel"),
    Alike(_REAL, "inductor.triton", "cudagraph_partition_memory_budget"),
    Alike(Each(Each(_BYTES)), "inductor.triton", "cudagraph_capture_sizes?"),
    Alike(Words("allow force"), "inductor.triton", "tlx_mode?"),
    Alike(Words("user_visible"), "inductor.triton", "cudagraph_trees_generation_cloning?"),
    Alike(Words("O0 O1 O2 O3 Os"), "inductor.aot_inductor", "compile_wrapper_opt_level"),
    Alike(Words("-O0 -O1 -O2 -O3 -OS"), "inductor.cutlass inductor.cuda inductor.xpu", "compile_opt_level"),
    Alike(Words("-O0 -O1 -O2 -O3 -Os -Oz -Omin -Ofast -Omax"), "inductor.rocm", "compile_opt_level"),
    Alike(_SEARCH, "inductor.cuda", "nvgemm_max_profiling_configs?"),
    Alike(_SEARCH, "inductor.cutlass inductor.cuda inductor.xpu", "cutlass_max_profiling_configs?"),
    Alike(_BYTES, "inductor.cutlass inductor.cuda inductor.xpu", "cutlass_backend_min_gemm_size"),
    Alike(Each(_SETTING_COUNT), "inductor.cutlass inductor.cuda inductor.xpu",
        "cutlass_max_profiling_swizzle_options cutlass_dynamic_cluster_shape cutlass_dynamic_cluster_fallback"),
    Alike(PlainNames(), "inductor.cutlass inductor.cuda inductor.xpu",
        "cutlass_instantiation_level cutlass_enabled_ops"),
    Alike(_SEARCH, "inductor.rocm",
        "n_max_profiling_configs? ck_max_profiling_configs? ck_tile_max_profiling_configs? split_k_threshold "
        "contiguous_threshold origami_topk"),
    Alike(Each(_SETTING_COUNT), "inductor.rocm", "kBatch_sweep?"),
    Alike(_SIDES, "inductor.halide", "scheduler_cuda scheduler_cpu"),
    Alike(_SEARCH, "inductor.test_configs", "max_mm_configs? max_flex_configs?"),
    Alike(Words("assert log"), "inductor.test_configs", "track_memory_lifecycle?"),
    Alike(Words("inverse random", several=True), "inductor.test_configs", "distort_benchmarking_result"),
    Alike(_SETTING_COUNT, "functorch", "max_dist_from_bw"),
    Alike(_REAL, "functorch", "activation_memory_budget activation_offload_cpu_gpu_bw"),
    Alike(Words("flops profile testing"), "functorch", "activation_memory_budget_runtime_estimator"),
    Alike(Words("dp greedy ilp dp_knapsack_sliding_hirschberg"), "functorch", "activation_memory_budget_solver"),
    Alike(_LAYOUTS, "functorch", "custom_op_default_layout_constraint"),
    Alike(Words("same_as_forward off"), "functorch", "backward_pass_autocast"),
    Alike(_FORM, "functorch", "torch_compile_graph_format"),
    Alike(Words("cpu cuda xpu mps mtia hpu meta"), "functorch", "fake_tensor_prefer_device_type?"),
    Alike(Words("donated no_static all"), "functorch", "saved_tensors_hooks_filtering_mode"),
    Alike(_SETTING_COUNT, "dynamo",
        "minimum_call_count recompile_limit accumulated_recompile_limit cache_size_limit accumulated_cache_size_limit "
        "max_saved_pointers_for_recursive_dict_tags_check computed_lazy_constant_max_nodes"),
    Alike(_LEVEL, "dynamo", "repro_level"),
    Alike(_LEVEL, "inductor.aot_inductor", "repro_level"),
    Alike(_REAL, "dynamo", "repro_tolerance"),
    Alike(Words("silent info warn error"), "dynamo", "side_effect_replay_policy"),
    Alike(Words("dynamic unbacked"), "dynamo", "automatic_dynamic_shapes_mark_as"),
    Alike(Words("ddp_optimizer python_reducer python_reducer_without_compiled_forward no_optimization", or_bool=True),
        "dynamo", "optimize_ddp"),
    Alike(Words("float16 float32 float64"), "dynamo", "numpy_default_float"),
    Alike(Words("complex64 complex128"), "dynamo", "numpy_default_complex"),
    Alike(Words("int8 int16 int32 int64 uint8"), "dynamo", "numpy_default_int"),
)  # fmt: skip

REFUSED = {
    "code": r"custom_(pre_|post_)?pass|custom_partitioner_fn|size_determinator|custom_runtime_estimation"
    r"|external_matmul|choices_class|cudagraph_policy|joint_custom|custom_ops_(to_c_shims|profile)|tensor_subclasses"
    r"|logging_functions|logger_methods|(allow|ignore)list$|_shapes_spec|_banned_ops|kwargs_override"
    r"|unsafe_marked_cacheable|^inductor\.trace\.upload",
    "commands": r"\.cxx$|cuda_cxx|_override$|worker_start",
    "libraries": r"_libs?$|_library(_path)?$|_home$|_root$|oneapi",
    "paths": r"_dir$|_path$|logpath|file_name|_files$|^dynamo\.(base_dir|debug_dir_root)|pareto_dir|output_dir"
    r"|bandwidth_output",
    "flags of a compiler": r"\.march$|\.arch$|\.version$|_arch$|_target(_platform)?$",
    "files that are written": r"^inductor\.trace\.|save_args|objgraph|proton|kernel_dump|dump_kernel|dump_aoti"
    r"|save_temps|repro_after|visualize_memory|replay_record|cprofile|generate_test_runner|metric_tables"
    r"|value_printer|provenance|on_disk_format",
    "the network": r"remote",
    "text for generated code": r"serialized_(in|out)_spec|\.metadata$|\.presets$|lookup_table|kernel_names$|id_prefix",
    "a pattern to search with": r"_regex$|_profile_var",
    "a time to wait": r"sleep_sec",
    "how settings are kept": r"_config_(ignore|factory)",
}
"""What a refused setting names ("commands") -> the names of such settings, as a regular expression (`room.name`). Only
for the reason in messages: a setting is refused because no row has it."""


_COUNT, _OPTIONAL = Number(0, 2**31), "?"
ARGUMENTS: dict[str, Kind] = {
    name: kind
    for kind, names in (
        (Switch(), "is_backward is_inference cpp_wrapper fx_wrapper layout_opt cudagraphs aot_mode"),
        (_COUNT, "graph_id num_fwd_outputs num_example_inputs num_orig_model_outputs num_mutated_inp_runtime_indices"),
        (_COUNT, "boxed_forward_device_index"),
        (Each(_COUNT, most=2**20), "static_input_idxs static_input_indices static_lifetime_input_indices"),
        (Each(_COUNT, most=2**20), "bw_donated_idxs user_visible_output_idxs"),
    )
    for name in names.split()
}
"""Arguments of the backends that compiled a graph, and notes on its outputs; no other argument reaches a backend."""

_OF_THE_PROCESS = re.compile(
    r"compile_threads|worker_|trace\.|fx_graph_cache|fx_graph_remote_cache|enable_autograd_cache|enable_remote_autograd_cache"
    r"|force_disable_caches|bundled_autograd_cache|caching_precompile|repro_|debug_dir_root|verbose|suppress_errors"
    r"|fresh_cache|recompile_limit|accumulated_recompile_limit|use_numpy_random_stream"
)
_SHOWN, _MOST_SHOWN = 60, 8


def of_the_process(name: str) -> bool:
    """Whether a setting affects how a process works or what it writes, not the compiled code: a replay ignores it."""
    return _OF_THE_PROCESS.match(name) is not None


@cache
def known() -> dict[str, tuple[Kind, bool]]:
    """`room.name` -> its kind, and whether None is accepted too."""
    return {
        f"{under}.{name.removesuffix(_OPTIONAL)}": (row.kind, name.endswith(_OPTIONAL))
        for row in ROWS
        for under in row.under.split()
        for name in row.names.split()
    }


def refused_by_name(room: str, name: str) -> str:
    """What an unlisted setting names ("commands"), judged by the setting's own name; empty where that does not say."""
    return next((what for what, pattern in REFUSED.items() if re.search(pattern, f"{room}.{name}")), "")


def refusal(room: str, name: str, value: Any) -> str:
    """Why a dump may not set a setting to a value, as half a sentence; empty where it may."""
    kind, optional = known().get(f"{room}.{name}", (None, False))
    if kind is None:
        what = refused_by_name(room, name)
        return f"it names {what}" if what else "this graphdbg does not know it"
    return "" if (value is None and optional) or kind.takes(value) else f"it takes {kind.text()}"


def argument_refusal(name: str, value: Any) -> str:
    """Why a dump may not pass a value as an argument of a compiler, as half a sentence; empty where it may."""
    kind = ARGUMENTS.get(name)
    return "" if kind is None or value is None or kind.takes(value) else f"it takes {kind.text()}"


def without(refused: Mapping[str, tuple[Any, str]]) -> str:
    """A sentence on the settings that were not applied: name -> (value, why not)."""
    few = list(refused.items())[:_MOST_SHOWN]
    reasons = ", ".join(f"{name} = {_short(value)} ({why})" for name, (value, why) in few)
    return f"{JUDGED_WITHOUT} {listed(refused, _MOST_SHOWN)}{_BY_ITSELF}: {reasons}"


JUDGED_WITHOUT, _BY_ITSELF = "judged without", ", which a dump sets only with --trust"
"""The beginning of that sentence, and the words after the names in it."""


def names_of(sentence: str) -> str:
    """The part of that sentence that only names the settings, for a verdict."""
    return sentence.partition(_BY_ITSELF)[0]


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
